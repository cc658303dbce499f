"""The command line on malformed words and files: an answer or one line of error, never a traceback.

Most inputs go through `rv.cli.app` in this process, which is all that the `rv` command runs; some
start the command itself. `RV_MALFORMED=10000` draws ten thousand.
"""

import io
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from rv.cli import app
from rv.errors import EXIT_DONE, EXIT_GAVE_UP, EXIT_INTERRUPTED, EXIT_RV_FAILED, EXIT_USAGE
from rv.transport.query_retry import retry_query
from tests.unit import malformed
from tests.unit.parsers import CONFIG, RACE, ROOT, STATE_FILES

SNAPSHOTS: Final = sorted((ROOT / "tests" / "data" / "snapshots").glob("*.json"))
CODES: Final = {EXIT_DONE, EXIT_USAGE, EXIT_GAVE_UP, EXIT_RV_FAILED, EXIT_INTERRUPTED}
SHARES: Final = {"words": 0.4, "config": 0.15, "strategies": 0.05, "snapshot": 0.25, "race": 0.15}
"""How many of the inputs are of which kind."""

CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
TAIL: Final = 1500
PROFILE: Final = "cluster: x\nnods: []\n"
"""A sandbox profile with a slip in it, so that no sandbox ever comes up here."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: Any
    out: str
    err: str


@dataclass(frozen=True)
class Home:
    """The folders of a user who has no cluster: Slurm's commands are there, and fail at once."""

    path: Path

    def __post_init__(self) -> None:
        for folder in (self.user / "strategies", self.user / "templates", self.races, self.work):
            folder.mkdir(parents=True)
        (self.path / "slurm.conf").write_text("ClusterName=x\n")
        (self.work / "train.py").touch()
        (self.work / "profile.yaml").write_text(PROFILE)

    @property
    def user(self) -> Path:
        return self.path / "config" / "rv"

    @property
    def races(self) -> Path:
        return self.path / "races"

    @property
    def work(self) -> Path:
        return self.path / "work"

    @property
    def environment(self) -> dict[str, str]:
        kinds = ("STATE", "CACHE", "CONFIG", "DATA")
        folders = {f"XDG_{kind}_HOME": str(self.path / kind.lower()) for kind in kinds}
        return folders | {
            "HOME": str(self.path),
            "SLURM_CONF": str(self.path / "slurm.conf"),
            "RV_RACE_ROOT": str(self.races),
            "RV_SITE_CONFIG": str(self.path / "site.yaml"),
            "COLUMNS": "100",
        }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home, entered."""
    made = Home(tmp_path)
    for name in [name for name in os.environ if name.startswith(("RV_", "SLURM"))]:
        monkeypatch.delenv(name)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(made.work)
    # No cluster answers here, ever: patience with each input would take a quarter of an hour.
    monkeypatch.setitem(retry_query.__kwdefaults__, "retry_for_s", 0.0)
    monkeypatch.setattr("rv.slurm.probe.retry_query", lambda query, **_: query())
    monkeypatch.setattr("rv.race.cancel._PATIENCE_S", 0.0)
    return made


def inside(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Ended:
    """Run the command line in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(sys, "stdin", io.StringIO(""))
        try:
            app.main(arguments)
        except SystemExit as end:
            code = end.code
    texts = [stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err)]  # type: ignore[attr-defined]
    return Ended(code, *texts)


def outside(arguments: list[str], home: Home) -> Ended:
    """Run the `rv` command."""
    done = subprocess.run(
        [sys.executable, "-m", "rv", *map(os.fsencode, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=home.work, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=120,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))


def check(ended: Ended, *, is_json: bool) -> None:
    """A documented code, no traceback, no fault of rv's, nothing that moves a cursor."""
    assert ended.code in CODES, ended
    for text in (ended.out, ended.err):
        assert "Traceback" not in text
        assert "error[internal]" not in text, text[-TAIL:]
        assert '"kind": "internal"' not in text, text[-TAIL:]
        assert not CONTROL.search(text), repr(text[-TAIL:])
    assert ended.code == EXIT_DONE or ended.err.strip() or is_json, "no word about what is wrong"
    if is_json and ended.out:
        json.loads(ended.out)


COMMANDS: Final = (
    "up --dry-run --snapshot {snapshot} --gpu 4 --type a100,h200 --time 2h --run 'torchrun train.py'",
    "up --dry-run --json --snapshot {snapshot} -g 2 --vram 40G --mem 64G --cpus 8 -p gpu-a40 -A lab -q normal --run true",
    "up --dry-run --snapshot {snapshot} --checkpoint --checkpoint-buffer 3m --time 24h --min-time 1h --layouts all --run 'python train.py'",
    "up --dry-run --snapshot {snapshot} -C 'a&b' -x n[1-3],m4 --fanout each --max-submissions 3 --widen-after 5 --wait-timeout 1h",
    "up --dry-run --snapshot {snapshot} --sbatch nice=1 --sbatch=--reservation=x --modules cuda/12,gcc --max-cost 10 -n mine --run true",
    "run --dry-run --snapshot {snapshot} --mig --time 10m -- python train.py --lr 1e-3",
    "run --gpu 2 'torchrun train.py' --detach",
    "up --run true --gpu 1 --power-up --preemptible --strict-gpu",
    "cost --snapshot {snapshot} --gpu 8 --time 12h --json",
    "status --snapshot {snapshot}", "status", "snapshot", "explain --json", "explain abcd2345",
    "ps -a --json", "ps", "logs abcd2345 --node 0 --err", "logs --json", "stop nobody --json",
    "sandbox status --name x", "sandbox up --profile profile.yaml --name x", "sandbox load --name x --share 0.5 --min 1m",
    "sandbox fault n1 hang --name x", "--help", "--version", "up --help", "",
)  # fmt: skip
FOLLOWED: Final = {"-f", "--follow", "down"}
"""What would wait for ever without a cluster, or end one."""


def words(dice: random.Random, home: Home) -> list[str]:
    """Draw a command line with slips in some of its words."""
    line = dice.choice(COMMANDS).format(snapshot=dice.choice(SNAPSHOTS))
    drawn = re.findall(r"'[^']*'|\S+", line)
    drawn = [word.strip("'") for word in drawn]
    for _ in range(dice.randint(1, 3)):
        at = dice.randint(0, len(drawn))
        if not drawn or dice.random() < 0.3:
            drawn.insert(at, dice.choice((malformed.noise(dice), *malformed.NASTY, *drawn)))
        elif dice.random() < 0.2:
            del drawn[at : at + 1]
        else:
            at = min(at, len(drawn) - 1)
            drawn[at] = malformed.mutated(dice, drawn[at])[:2000]
    kept = [word for word in drawn if word not in FOLLOWED and not re.fullmatch(r"-\w*f\w*", word)]
    is_up = "sandbox" in kept and "up" in kept
    kept = [*kept[: kept.index("up") + 1], "--profile", "profile.yaml"] if is_up else kept
    # As the kernel hands words to a program: bytes without NUL.
    return [os.fsdecode(w.encode("utf-8", "surrogatepass").replace(b"\0", b"")) for w in kept]


def config(dice: random.Random, home: Home) -> list[str]:
    """Draw a configuration file."""
    text = malformed.mutated(dice, dice.choice(CONFIG))
    path = dice.choice((home.user / "config.yaml", home.path / "site.yaml"))
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return planned(dice, SNAPSHOTS[0])


def strategies(dice: random.Random, home: Home) -> list[str]:
    """Draw the user's own copy of a file of strategies, or of a template."""
    own = (*(ROOT / "strategies").glob("*.yaml"), *(ROOT / "templates").glob("*.j2"))
    source = dice.choice(sorted(own))
    text = malformed.mutated(dice, source.read_text(encoding="utf-8"))
    path = home.user / source.parent.name / source.name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return planned(dice, SNAPSHOTS[0])


def snapshot(dice: random.Random, home: Home) -> list[str]:
    """Draw a saved cluster."""
    path = home.path / "cluster.json"
    text = malformed.mutated_json(dice, dice.choice(SNAPSHOTS).read_text(encoding="utf-8"))
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return planned(dice, path)


def planned(dice: random.Random, path: Path) -> list[str]:
    """Draw a command that plans on a saved cluster."""
    more = dice.choice(("", " --json"))
    line = dice.choice((
        "up --dry-run -g 4 --run true", "up --dry-run -g 2 --layouts all --checkpoint --time 24h --run true",
        "cost -g 8", "status", "up --dry-run --mig",
    ))  # fmt: skip
    return [*f"{line}{more}".split(), "--snapshot", str(path)]


def race(dice: random.Random, home: Home) -> list[str]:
    """Draw a race's directory: its record, its marks, its verdict, and files nobody wrote."""
    name = dice.choice(("abcd2345", "abcd2345", "x y", "\x1b[2Jx", ".abcdefgh.1.x"))
    directory = home.races / name
    verdict = {"state": "FAILED", "exit_code": 3, "started_at": 1763700010.0, "ended_at": 1763700020.0, "why": "it broke",
               "warnings": ["odd"], "saved_at": None, "jobs": [[1, 7, "FAILED", "", "a1"]]}  # fmt: skip
    record = RACE | {"cluster": f"slurm:{home.path}/slurm.conf"}
    files = {
        "race.json": json.dumps(record),
        "verdict.json": json.dumps(verdict),
        **STATE_FILES,
        "output/node0.out": "hello\n",
    }
    for file, whole in files.items():
        chance = 0.15 if file == "race.json" else 0.5
        if file != "race.json" and dice.random() < 0.5:
            continue
        path = directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        change = malformed.mutated_json if file.endswith(".json") else malformed.mutated
        # What the command wrote is its user's own, and goes out as it is.
        is_rvs = not file.startswith("output/")
        text = change(dice, whole) if is_rvs and dice.random() < chance else whole
        if dice.random() < 0.03:
            path.mkdir(exist_ok=True)
        elif not path.is_dir():
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
    (directory / "jobs").mkdir(exist_ok=True)
    odd = dice.choice(malformed.NASTY).replace("/", "").replace("\0", "").encode("utf-8", "ignore")
    (directory / "jobs" / f"{odd.decode()[:50]}.id").touch()
    line = dice.choice(
        (
            "ps -a",
            "ps -a --json",
            "ps",
            "logs abcd2345",
            "logs --json --err abcd2345",
            "explain abcd2345",
            "explain --json",
            "stop abcd2345",
            "stop 7 --json",
        )
    )
    return line.split()


DRAW: Final[dict[str, Callable[[random.Random, Home], list[str]]]] = {
    "words": words, "config": config, "strategies": strategies, "snapshot": snapshot, "race": race,
}  # fmt: skip


def drawn(kind: str, home: Home, count: int) -> Iterator[tuple[int, list[str]]]:
    """Draw inputs, each in folders that hold nothing of the one before."""
    for number in range(count):
        dice = random.Random(f"{kind} {number}")
        yield number, DRAW[kind](dice, home)
        clean(home)


def clean(home: Home) -> None:
    """Remove what an input left."""
    import shutil

    for path in (home.user / "config.yaml", home.path / "site.yaml", home.path / "cluster.json"):
        path.unlink(missing_ok=True)
    for path in (*home.races.iterdir(), *home.user.glob("*/*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("kind", SHARES)
def test_malformed(kind: str, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, arguments in drawn(kind, home, round(SHARES[kind] * malformed.COUNT)):
        try:
            check(inside(arguments, monkeypatch), is_json="--json" in arguments)
        except BaseException as error:
            error.add_note(f"{kind} {number}: {arguments!r}"[:TAIL])
            raise


@pytest.mark.parametrize("kind", SHARES)
def test_malformed_as_a_process(kind: str, home: Home) -> None:
    for number, arguments in drawn(kind, home, max(2, malformed.COUNT // 500)):
        try:
            check(outside(arguments, home), is_json="--json" in arguments)
        except BaseException as error:
            error.add_note(f"{kind} {number}: {arguments!r}"[:TAIL])
            raise


@pytest.mark.parametrize(
    "template",
    [b"\xff\xfe#!/bin/bash", b"{{ 1 / 0 }}", b"{{ job.nothing }}", b"{% if", b"{{ ''.x.y }}"],
)
def test_a_template_of_ones_own_that_is_none(
    template: bytes, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, and nothing is planned with it."""
    (home.user / "templates" / "single_node.sh.j2").write_bytes(template)
    arguments = [
        "up",
        "--dry-run",
        "--json",
        "--single-node",
        "--run",
        "true",
        "--snapshot",
        str(SNAPSHOTS[0]),
    ]
    ended = inside(arguments, monkeypatch)
    check(ended, is_json=True)
    assert ended.code == EXIT_RV_FAILED
    assert json.loads(ended.out)["error"]["kind"] == "config"
