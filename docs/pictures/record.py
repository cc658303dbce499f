"""Record what a race shows on a terminal, from a real run: text, and SVG pictures of it.

    docs/pictures/make.sh           # the pictures of the documentation
    docs/pictures/make.sh FOLDER    # every state of the live wait, as text and as pictures

Needs tmux, and `rv sandbox`, which it starts and ends.
"""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
NAME = "pictures"
IN_DOCS = ("live-wait", "rejected-node", "end")
"""The pictures that the documentation shows."""
PATIENCE_S = 120.0
PROMPT = r"^\$ ?$"


class Screen:
    """A window of tmux with a shell in it."""

    def __init__(self, work: Path, *, columns: int, lines: int, **environment: str) -> None:
        self._columns = columns
        socket = Path(tempfile.mkdtemp(dir=work)) / "tmux"
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        variables = {"TERM": "screen-256color", "PS1": "$ ", **environment}
        shell = ["env", "-u", "NO_COLOR", *(f"{key}={value}" for key, value in variables.items())]
        line = shlex.join([*shell, "bash", "--norc", "--noprofile"])
        self._call("new-session", "-d", "-x", str(columns), "-y", str(lines), line)

    def _call(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def types(self, line: str) -> None:
        """Type a line below an empty screen."""
        self._call("send-keys", "clear", "Enter")
        self._call("send-keys", line, "Enter")
        self.shows(re.escape(line[:20]))

    def presses(self, key: str) -> None:
        """Press a key."""
        self._call("send-keys", key)

    def shows(self, pattern: str) -> None:
        """Wait until a line of it matches."""
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self._call("capture-pane", "-p"), re.MULTILINE):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{pattern}\n{self._call('capture-pane', '-p')}")
            time.sleep(0.1)

    def keep(self, folder: Path, name: str) -> None:
        """Write what stands there, as text and as a picture."""
        if folder == HERE and name not in IN_DOCS:
            return
        coloured = self._call("capture-pane", "-p", "-e").rstrip()
        if folder != HERE:
            (folder / f"{name}.txt").write_text(self._call("capture-pane", "-p").rstrip() + "\n")
        (folder / f"{name}.svg").write_text(picture(coloured, name, self._columns))

    def close(self) -> None:
        """End the shell and what runs in it."""
        self._call("kill-server")


def picture(coloured: str, name: str, columns: int) -> str:
    """Make an SVG of a terminal's text, without fonts from elsewhere: the reader's own will do."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(coloured))
    svg = console.export_svg(title="rv", unique_id=name)
    svg = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def rv(*words: str) -> None:
    """Run rv to its end."""
    subprocess.run(["rv", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def screen(work: Path, *, columns: int = 112, lines: int = 14, **more: str) -> Iterator[Screen]:
    """A terminal that is closed at the end."""
    made = Screen(work, columns=columns, lines=lines, **more)
    try:
        yield made
    finally:
        made.close()


TRAIN = "rv up --gpu 8 --time 1h --run 'torchrun train.py'"
STEPS = "for i in 1 2 3 4; do echo step $i; sleep 1; done"
SHORT = f"rv run --gpu 2 --type v100 --time 10m '{STEPS}'"
"""Commands that wait on a full cluster, and that start soon on an empty one."""


def while_full(work: Path, folder: Path) -> None:
    """What stands there while nothing is free."""
    rv("sandbox", "load", "--name", NAME, "--share", "1.0", "--min", "5m", "--max", "9m")
    time.sleep(30)  # until Slurm has planned the starts
    with screen(work) as window:
        window.types(TRAIN)
        window.shows(r"^00:1\d.* best")
        window.keep(folder, "live-wait")
        window.presses("d")
        window.shows(PROMPT)
        window.keep(folder, "detached")
    with screen(work, lines=40) as window:
        window.types("rv explain")
        window.shows(PROMPT)
        window.keep(folder, "place-in-line")
    rv("stop", "--all")
    with screen(work) as window:
        window.types(TRAIN)
        window.shows(r"^00:0[3-9]")
        window.presses("C-c")
        window.shows(PROMPT)
        window.keep(folder, "ctrl-c")
    with screen(work, columns=60) as window:
        window.types(TRAIN)
        window.shows(r"^00:1\d")
        window.keep(folder, "narrow")
        window.presses("C-c")
        window.shows(PROMPT)
    with screen(work, NO_COLOR="1") as window:
        window.types(TRAIN)
        window.shows(r"^00:1\d")
        window.keep(folder, "no-color")
        with silent_controller():
            window.shows("Slurm is asked again")
            window.keep(folder, "silent")
        window.presses("C-c")
        window.shows(PROMPT)
        window.types(f"{TRAIN} 2>&1 | cat")
        window.shows("waiting: ")
        window.keep(folder, "no-terminal")
        window.presses("C-c")
        window.shows(PROMPT)
    rv("sandbox", "load", "--name", NAME, "--stop")


@contextmanager
def silent_controller() -> Iterator[None]:
    """slurmctld of the sandbox is there, and answers nothing."""
    pid = controller()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def controller() -> int:
    """The process of the sandbox's slurmctld."""
    words = ["rv", "sandbox", "status", "--name", NAME, "--json"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    daemons = json.loads(said)["sandboxes"][0]["daemons"]
    return int(next(row["pid"] for row in daemons if row["name"] == "slurmctld"))


def while_free(work: Path, folder: Path) -> None:
    """What stands there when a job starts: its node check, a rejected node, a winner, the end."""
    with screen(work) as window:
        rv("sandbox", "fault", "--name", NAME, "v100n1", "hang")
        window.types(SHORT)
        window.shows("checks its node$")
        window.keep(folder, "node-check")
        window.shows("^node check: ")
        window.keep(folder, "rejected-node")
        window.shows("^step 2")
        window.keep(folder, "streaming")
        window.shows("^race ")
        window.keep(folder, "end")


def main(folder: Path) -> None:
    """Record all of it on a sandbox of its own."""
    os.environ["RV_CLUSTER"] = f"sandbox:{NAME}"
    with tempfile.TemporaryDirectory() as work:
        try:
            rv("sandbox", "up", "--name", NAME, "--profile", "campus")
            while_free(Path(work), folder)
            while_full(Path(work), folder)
        finally:
            rv("sandbox", "down", "--name", NAME)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else HERE).absolute())
