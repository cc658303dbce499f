"""The commands of README and docs/, typed as they stand by who has a checkout and a sandbox.

Those that are run elsewhere are in tests/data/not_typed.yaml, with the reason.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Timer

import pytest

from tests.typed_lines import LAPTOP, PAGES, ROOT, to_type

pytest.importorskip("torch")

SAYS = {
    "rv up --gpu 4 --dry-run": "sbatch -p ",
    'rv up --gpu 4 --run "torchrun train.py"': "[RESULT] PASS",
    "rv run check.py --mig": "[RESULT] PASS",
    "rv logs -f": "[RESULT] PASS",
    "rv accept list": "storage_net",
    "rv accept run check --gpu 2 --type a100": ": PASS (",
    "rv accept run --resume last": ": PASS (",
    "rv accept report": "rv-report/report.html",
    "rv up --gpu 4 --time 2h --dry-run --json": '"submissions"',
    "rv explain --json job-17": '"job-17"',
    "rv up --gpu 2 --time 10m --dry-run": "sbatch -p ",
    "rv run --gpu 2 --time 10m -- python3 examples/what_i_got.py": "GPU",
    "rv logs -f count": "step 3",
    "rv ps -a": "count",
    "rv explain late": "h200",
    "rv accept history": "check",
}  # fmt: skip
"""What a command's output must have in it, where its exit code alone says too little."""
TYPED_INTO = {"rv env set HF_TOKEN": "a-token\n"}
UNTIL = dict.fromkeys(to_type("long-jobs.md"), "from step 0 of 40000")
"""Commands that go on for hours, and what they have said when they are left by Ctrl-C."""
Typist = Callable[[str], "subprocess.Popen[str]"]


def first_on(page: str) -> list[str]:
    """The lines of a page that stand on no page before it."""
    before = list(PAGES)[: list(PAGES).index(page)]
    earlier = {line for other in before if other != LAPTOP for line in to_type(other)}
    return [line for line in to_type(page) if line not in earlier]


TYPED = [page for page in PAGES if page != LAPTOP and first_on(page)]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, sandbox_home: Path) -> Iterator[Typist]:
    """Start a line in a folder with the examples and a job script, on a sandbox of its own."""
    home = tmp_path_factory.mktemp("typed")
    (home / "examples").symlink_to(ROOT / "examples")
    (home / "job.sh").write_text("sleep 600\n")
    folders = ("RV_RACE_ROOT", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    environment = {
        **{key: value for key, value in os.environ.items() if key != "RV_CLUSTER"},
        **{key: str(home / key.lower()) for key in folders},
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    begin = partial(
        subprocess.Popen, cwd=home, env=environment, text=True, process_group=0,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    rv_sandbox = partial(subprocess.run, cwd=home, env=environment, check=True)
    rv_sandbox(["rv", "sandbox", "up", "--profile", "campus"], capture_output=True)
    try:
        yield lambda line: begin(["bash", "-c", line])
    finally:
        rv_sandbox(["rv", "sandbox", "down"], capture_output=True)


@pytest.mark.parametrize("page", TYPED)
def test_every_command_of_a_page_does_what_it_says(page: str, start: Typist) -> None:
    """Each ends with 0, in their order, and says what it should; none leaves a job."""
    for line in first_on(page):
        if line in UNTIL:
            left_by_ctrl_c(start(line), UNTIL[line])
        else:
            ends_well(start(line), line)
    if page != "tour.md":  # which ends the cluster
        ends_well(start("rv stop --all"), "")


def ends_well(process: "subprocess.Popen[str]", line: str) -> None:
    """Wait for the end of a line; one that goes on is killed, with what it started here."""
    limit = Timer(240, os.killpg, (process.pid, signal.SIGKILL))
    limit.start()
    with process:
        said, _ = process.communicate(TYPED_INTO.get(line, ""))
    limit.cancel()
    assert process.returncode == 0, f"{line}\n{said}"
    assert SAYS.get(line, "") in said, f"{line}\n{said}"


def left_by_ctrl_c(process: "subprocess.Popen[str]", text: str) -> None:
    """Read a line's output until it has said something, then interrupt it as a terminal does."""
    assert process.stdout
    limit = Timer(60, process.kill)
    limit.start()
    said = ""
    with process:
        for part in process.stdout:
            said += part
            if text in part:
                os.killpg(process.pid, signal.SIGINT)
    limit.cancel()
    assert process.returncode == 130, said
    assert "rv logs" in said, said


def test_what_is_expected_is_of_a_line_that_stands_there() -> None:
    """A command that left its page leaves the tables too."""
    assert {*SAYS, *TYPED_INTO} <= {line for page in TYPED for line in first_on(page)}
