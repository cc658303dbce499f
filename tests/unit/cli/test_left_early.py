"""What follows a race and leaves it before its end: who has to, and what programs are told then.

The race directories are real, and so is all that rv makes of them; Slurm's answers are the test's.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from rv.cli import logs, rerun
from rv.cli.caller import Caller
from rv.models.race import Race
from rv.models.request import Request
from rv.models.sweep import Sweep, Task, write_tasks
from rv.race.directory import record_text
from rv.race.output import Chunk
from rv.race.stage import FOLDERS, TASK_FOLDERS
from rv.race.watch import Watch
from rv.slurm.cache import SnapshotCache
from rv.ui import console
from rv.workflow.cluster import Cluster
from tests.json_schema import complaints
from tests.unit.race.test_status import RACE
from tests.unit.workflow.test_watch_races import Squeue

AT_ONCE = timedelta(microseconds=1)
CLAIM = "11.0\nsubmission=1\nnodes=a1\nhost=a1\nstarted={}\nstrategy=s1\nwhole\n"
ENDED = "11.0\ncode={}\nsignal=\nended={}\n"
DONE = "start 1 10 .\nend 1 0 - 11 .\nstart 2 11 .\nend 2 {} 12 ."


class Here:
    """A cluster, its one race, and the turns of whoever watches it."""

    def __init__(self, home: Path) -> None:
        self.squeue = Squeue(home / "races")
        cache = SnapshotCache(directory=home / "cache", key="k", clock=time.time)
        self.cluster = Cluster(
            key=RACE.cluster, label="here", transport=self.squeue, cache=cache,
            race_root=str(self.squeue.root), slurm_path="/usr/bin",
        )  # fmt: skip
        self.caller = Caller(environ={}, workdir="/", now_s=time.time(), cluster=self.cluster)
        self.turns = 0
        self.at_turn: Callable[[], object] = lambda: None
        self.has_reader = True

    def race(self, sweep: Sweep | None = None, **request: timedelta | int) -> Race:
        """Write a race that was sent."""
        made = replace(
            RACE, directory=str(self.squeue.root / RACE.race_id), submitted_at=time.time() - 5,
            sweep=sweep, request=Request(command=None, **request),
        )  # fmt: skip
        for folder in (*FOLDERS, *TASK_FOLDERS):
            Path(made.directory, folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.write("jobs/1.id", "11\n")
        self.write("race.json", record_text(made))
        self.write("task-list", write_tasks([Task(number=1), Task(number=2)]).decode())
        return made

    def write(self, name: str, text: str) -> None:
        path = self.squeue.root / RACE.race_id / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def run(self) -> None:
        self.squeue.state = "RUNNING"
        self.write("claim", CLAIM.format(time.time()))

    def end(self, code: int) -> None:
        self.squeue.state = "FAILED" if code else "COMPLETED"
        self.write("ended", ENDED.format(code, time.time()))

    def end_tasks(self, second: str) -> None:
        """The worker is over: one task succeeded, and the second ended so: "0 -", "143 TERM"."""
        self.squeue.state = "COMPLETED"
        self.write("workers/11.0.ab12", DONE.format(second) + "\n")

    def lose_reader(self) -> None:
        self.has_reader = False

    def sleep(self, seconds: float) -> None:
        self.turns += 1
        assert self.turns < 20, f"it still watches, and sleeps for {seconds} s"
        self.at_turn()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    made = Here(tmp_path)
    for module in ("rv.workflow.wait", "rv.workflow.sweep"):
        monkeypatch.setattr(f"{module}.Watch", partial(Watch, sleep=made.sleep))
    for command in (logs, rerun):
        monkeypatch.setattr(command, "current_caller", lambda *_, **__: made.caller)
    monkeypatch.setattr(console, "has_reader", lambda: made.has_reader)
    monkeypatch.setattr("rv.race.cancel._PATIENCE_S", 0.0)  # its job is there for ever
    return made


def code_of(call: Callable[[], object]) -> int:
    """The exit code."""
    with pytest.raises((SystemExit, typer.Exit)) as left:
        call()
    return left.value.code if isinstance(left.value, SystemExit) else left.value.exit_code


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """The one object on stdout."""
    document = json.loads(capsys.readouterr().out)
    assert complaints("race", document) == []
    return document


def test_who_reads_a_sweep_cancels_nothing(here: Here) -> None:
    """The limit of its launch is for the client that launched it."""
    here.race(Sweep(tasks=2), wait_timeout=AT_ONCE)
    here.at_turn = lambda: here.end_tasks("0 -")
    assert code_of(partial(logs.logs, follow=True)) == 0
    assert not (here.squeue.root / RACE.race_id / "stop").exists()


@pytest.mark.parametrize("task", [None, 1], ids=["race", "task"])
def test_logs_end_with_their_reader(here: Here, task: int | None) -> None:
    """As `tail -f | head` does: also where the command writes nothing more."""
    here.race(Sweep(tasks=2) if task else None)
    here.run()
    here.at_turn = here.lose_reader
    assert code_of(partial(logs.logs, follow=True, task=task)) == 0
    assert here.turns < 3


def test_logs_end_with_their_reader_where_the_command_never_pauses(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output then always has more than was read."""
    here.race()
    here.run()
    rest = [Chunk(node=0, is_error=False, data=b"y\n")] * 9

    def read() -> tuple[Chunk, ...]:
        here.has_reader = len(rest) > 5
        return (rest.pop(),)

    monkeypatch.setattr(logs, "_reader", lambda *_: SimpleNamespace(read=read, has_more=True))
    assert code_of(partial(logs.logs, follow=True)) == 0
    assert len(rest) == 4


def test_logs_with_a_reader_end_as_the_race_does(here: Here) -> None:
    here.race()
    here.run()
    here.at_turn = lambda: here.end(3)
    assert code_of(partial(logs.logs, follow=True)) == 3
