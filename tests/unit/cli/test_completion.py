"""Completion: what is offered, from files of this machine alone, in the real bash, zsh and fish."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rv import bundle
from rv.cli.command_tree import walk
from rv.cli.complete import complete
from rv.cli.completion_table import SOURCES, command_table, make_table
from rv.config.gpu_models import load_catalogue
from rv.models.snapshot import read_snapshot
from rv.slurm.cache import SnapshotCache
from rv.workflow.names import keep_names

ROOT = Path(__file__).parents[3]
CAMPUS = ROOT / "tests/data/snapshots/campus.json"
ODD = "$(touch /tmp/x)"
RACES = [
    {"race_id": "k3f9a2qd", "name": "train", "state": "runs", "command": "python a.py: --lr 1"},
    {"race_id": "b7c1x0pz", "name": ODD, "state": "waits", "command": "python\x1b[2J b.py"},
    {"race_id": ODD, "name": "odd", "state": "waits", "command": ""},
]


@pytest.fixture(scope="module")
def table() -> dict[str, object]:
    """The commands, once for all."""
    return make_table()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has asked a cluster behind a login node before; nobody could connect to it."""
    for kind in ("STATE", "CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RV_CLUSTER", "you@login.invalid")
    cache = SnapshotCache(directory=tmp_path / "CACHE" / "rv", key="ssh:you@login.invalid")
    keep_names(cache, read_snapshot(CAMPUS.read_text(), "campus"), load_catalogue())
    races = [race | {"submitted_at": time.time() - 60 * at} for at, race in enumerate(RACES)]
    cache.store("races", json.dumps(races), "")
    config = tmp_path / "CONFIG" / "rv" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("clusters:\n  lab: {host: you@login.invalid}\n  other: {host: x@y.invalid}\n")
    (tmp_path / "here" / "src").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    Path("my data.txt").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("s", ["sweep", "stop", "sync", "status", "snapshot", "ssh-config", "sandbox"]),
        ("stop ", ["k3f9a2qd", "train", "b7c1x0pz"]),
        ("accept run --resume ", ["k3f9a2qd", "train", "b7c1x0pz"]),
        ("logs -f tr", ["train"]),
        ("explain --cluster other ", []),
        ("up --cluster lab -p gpu-h", ["gpu-h200"]),
        ("up -p gpu-v100,gpu-h", ["gpu-v100,gpu-h200"]),
        ("up --partition=gpu-h", ["--partition=gpu-h200"]),
        ("up --type a100,h", ["a100,h200"]),
        ("up --account ", ["lab", "root"]),
        ("up -q ", ["normal"]),
        ("up --exclude cpu1,a100", ["cpu1,a100n1", "cpu1,a100n2"]),
        ("up --cluster ", ["lab", "other", "all", "local"]),
        ("up --fanout ", ["auto", "each"]),
        ("up --wait", ["--wait-timeout"]),
        ("up --gpu ", []),
        ("run ck", ["ckpt_cycle.py"]),
        ("run -- train", ["train.py", "train_fsdp.py"]),
        ("run python ck", []),
        ("accept run check membw allr", ["allreduce"]),
        ("accept drain h200n1", ["h200n1"]),
        ("accept baseline ", ["show", "make"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("nonesuch ", None),
    ],
)
def test_what_is_offered(
    home: Path, table: dict[str, object], line: str, offered: list[str] | None
) -> None:
    words = line.split(" ")
    if offered is None:
        with pytest.raises(KeyError):
            complete(words, table)
        return
    _, values = complete(words, table)
    found = [value for value, _ in values]
    order = sorted if line == "s" else list
    assert order(found[: len(offered)]) == order(offered)
    assert len(found) == len(offered)


def test_what_a_race_is_stands_beside_it(home: Path, table: dict[str, object]) -> None:
    """Nothing in it moves the cursor."""
    _, values = complete(["stop", ""], table)
    assert dict(values)["k3f9a2qd"] == "runs, 0s: python a.py: --lr 1"
    assert dict(values)["b7c1x0pz"] == "waits, 1m: python b.py"


def test_races_of_this_machine_are_read_where_they_lie(
    home: Path, table: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this cluster, as their files say."""
    monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
    monkeypatch.setenv("RV_CLUSTER", "local")
    root = home / "STATE" / "rv" / "races"
    for race_id, cluster, files in (
        ("waiting1", "slurm:/nowhere/slurm.conf", ()),
        ("running2", "slurm:/nowhere/slurm.conf", ("claim",)),
        ("finished", "slurm:/nowhere/slurm.conf", ("claim", "ended")),
        ("another4", "sandbox:default", ()),
    ):
        (root / race_id).mkdir(parents=True)
        record = {"race_id": race_id, "cluster": cluster, "name": "", "submitted_at": time.time()}
        (root / race_id / "race.json").write_text(json.dumps(record | {"command": "x"}))
        for name in files:
            (root / race_id / name).touch()
    (root / "broken").mkdir()
    (root / "broken" / "race.json").write_text("[")
    _, values = complete(["stop", ""], table)
    states = {value: text.partition(",")[0] for value, text in values}
    assert states == {"waiting1": "waits", "running2": "runs", "finished": "over"}


def test_every_source_is_of_a_parameter() -> None:
    """None is left of an option that was renamed."""
    names = set[str]()
    for words, command, context in walk():
        for parameter in command.get_params(context):
            names |= {parameter.name, f"{words} {parameter.name}"}
    assert SOURCES.keys() <= names


def test_the_table_is_kept_and_made_anew_when_rv_changes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = command_table()
    kept = home / "CACHE" / "rv" / "commands.json"
    told = json.loads(kept.read_text())
    told["commands"]["ps"] = "kept"
    kept.write_text(json.dumps(told))
    assert command_table() == told["commands"] != made
    told["stamp"][0] = "0.0.1"
    kept.write_text(json.dumps(told))
    assert command_table()["ps"] == made["ps"]


def ask(*words: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """Ask rv in a process of its own, and run some code at its end."""
    argv = ["rv", "__complete", *words]
    text = (
        f"import sys; sys.argv = {argv!r}\n"
        "from rv.__main__ import main\n"
        f"try: main()\nexcept SystemExit as end: assert end.code == 0\n{code}"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("words", [("stop", ""), ("up", "-p", "gpu-h"), ("run", "ck"), ("up", "-")])
def test_nothing_heavy_is_imported(home: Path, words: tuple[str, ...]) -> None:
    """Neither the planner nor rich nor paramiko, and not typer either."""
    command_table()
    heavy = "{'typer', 'rich', 'paramiko', 'rv.planner', 'subprocess'} & set(sys.modules)"
    done = ask("fish", *words, code=f"print('heavy:', {heavy})")
    *_, last = done.stdout.splitlines()
    assert (done.stderr, last) == ("", "heavy: set()")
    assert len(done.stdout.splitlines()) > 2


@pytest.mark.parametrize("cluster", ["", "nonesuch", "x@y.invalid", "sandbox:none"])
def test_where_nothing_is_known_nothing_is_offered(
    home: Path, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    monkeypatch.setenv("RV_CLUSTER", cluster)
    for words in (("stop", ""), ("up", "-p", ""), ("sandbox", "down", "--name", ""), ()):
        done = ask("zsh", *words)
        assert (done.stdout.splitlines()[0], done.stderr) == ("values", "")
        assert words == () or done.stdout == "values\n"


@pytest.fixture
def shell_home(home: Path) -> Path:
    """The same, with an `rv` on PATH and the script of each shell."""
    (home / "bin").mkdir()
    program = home / "bin" / "rv"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m rv "$@"\n')
    program.chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        (home / f"rv.{shell}").write_text(bundle.completion_script(shell))
    command_table()
    return home


@pytest.fixture
def typed(shell_home: Path) -> Iterator[Callable[[str, str], str]]:
    """Type into an interactive shell, press Tab, and return its screen's last line."""
    env = os.environ | {"PATH": f"{shell_home / 'bin'}:{os.environ['PATH']}", "TERM": "screen"}
    tmux = ["tmux", "-S", str(shell_home / "tmux"), "-f", "/dev/null"]
    starts = {
        "bash": "bash --norc --noprofile -i",
        "zsh": "zsh -f -i",
        "fish": "fish --no-config -i",
    }
    prepares = {
        "bash": f"PS1='$ '; source {shell_home}/rv.bash; clear",
        "zsh": f"PS1='$ '; autoload -Uz compinit; compinit -u -D; source {shell_home}/rv.zsh; clear",
        "fish": f"function fish_prompt; echo '$ '; end; source {shell_home}/rv.fish; clear",
    }

    def screen(wanted: str) -> str:
        until = time.monotonic() + 30
        text = ""
        while time.monotonic() < until and wanted not in text:
            time.sleep(0.05)
            shown = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True)
            text = shown.stdout.strip()
        return text

    def type_into(shell: str, line: str, wanted: str) -> str:
        start = [*tmux, "new-session", "-d", "-x", "100", "-y", "20", starts[shell]]
        subprocess.run(start, env=env, check=True)
        subprocess.run([*tmux, "send-keys", "-l", prepares[shell]], check=True)
        subprocess.run([*tmux, "send-keys", "Enter"], check=True)
        screen("$")
        time.sleep(0.5)
        subprocess.run([*tmux, "send-keys", "-l", line], check=True)
        screen(line)
        subprocess.run([*tmux, "send-keys", "Tab"], check=True)
        return screen(wanted)

    yield type_into
    subprocess.run([*tmux, "kill-server"], check=False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("rv stop tr", "rv stop train"),
        ("rv up --type=a100,h", "rv up --type=a100,h200"),
        ("rv run my", "rv run my\\ data.txt"),
    ],
)
def test_a_shell_completes(
    typed: Callable[[str, str, str], str], shell: str, line: str, wanted: str
) -> None:
    """The real one, with a key pressed in a terminal."""
    assert wanted in typed(shell, line, wanted)
