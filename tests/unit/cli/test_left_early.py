"""What follows a race and leaves it before its end: who has to, and what programs are told then.

The race directories are real, and so is all that rv makes of them; Slurm's answers are the test's.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from rv.cli import launching, logs, rerun
from rv.cli.caller import Caller
from rv.cli.sweep import Following
from rv.errors import ErrorKind, RvError, UnwritableError
from rv.models.race import Race
from rv.models.request import Request
from rv.models.site import Site
from rv.models.sweep import Sweep, Task, write_tasks
from rv.race.directory import record_text
from rv.race.output import Chunk
from rv.race.stage import FOLDERS, TASK_FOLDERS
from rv.race.watch import WaitTimedOut, Watch
from rv.slurm.cache import SnapshotCache
from rv.ui import console
from rv.workflow import sweep as sweeps
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


def interrupt() -> None:
    raise KeyboardInterrupt


def test_logs_that_are_interrupted_describe_the_race(
    here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    here.race()
    here.run()
    here.at_turn = interrupt
    assert code_of(partial(logs.logs, follow=True, json=True)) == 130
    assert told(capsys)["state"] == "RUNNING"


@pytest.mark.parametrize("is_over", [False, True], ids=["running", "succeeded"])
def test_what_is_not_raced_again_is_described(
    here: Here, capsys: pytest.CaptureFixture[str], *, is_over: bool
) -> None:
    here.race()
    here.run()
    if is_over:
        here.end(0)
    rerun.rerun(failed=True, json=True)
    assert told(capsys)["state"] == ("COMPLETED" if is_over else "RUNNING")


@pytest.mark.parametrize(
    ("why", "code", "detach"),
    [(WaitTimedOut, 124, False), (KeyboardInterrupt, 130, False), (KeyboardInterrupt, 130, True)],
    ids=["timed out", "Ctrl-C", "Ctrl-C as it is sent"],
)
def test_a_race_that_is_left_is_described(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    why: type[BaseException], code: int, *, detach: bool,
) -> None:  # fmt: skip
    """Its jobs may still be in the queue as rv ends; `why` tells a stop from the rest."""
    race = here.race(wait_timeout=AT_ONCE)
    made = SimpleNamespace(
        plan=SimpleNamespace(notes=(), job_notes=()), request=Request(command="true"),
        script=SimpleNamespace(race_id=race.race_id, race_dir=race.directory),
    )  # fmt: skip
    how = launching.Following(json=True, detach=detach, stops_unclaimed=False)

    def leave(*_: object, **__: object) -> None:
        raise why

    monkeypatch.setattr("rv.workflow.follow.start", leave)
    monkeypatch.setattr(launching, "start", leave)
    monkeypatch.setattr("rv.workflow.follow.send_rest", lambda *_: None)
    assert code_of(lambda: launching.follow(made, here.caller, Site(), how)) == code
    document = told(capsys)
    assert (document["race"], document["state"]) == (race.race_id, "PENDING")
    assert ("stopped" in str(document["why"])) == (why is WaitTimedOut)


def launched(here: Here, command: str | None = "true", **request: timedelta | int) -> object:
    """A launch whose race is there."""
    race = here.race(**request)
    return SimpleNamespace(
        plan=SimpleNamespace(notes=(), job_notes=()),
        request=Request(command=command, **request),
        script=SimpleNamespace(race_id=race.race_id, race_dir=race.directory),
    )


def followed(
    here: Here, made: object, how_to_follow: str = "rv logs -f {race}", *, detach: bool = False
) -> object:
    """Follow it, as rv run does."""
    how = launching.Following(
        json=False, detach=detach, stops_unclaimed=True, how_to_follow=how_to_follow
    )
    return launching.follow(made, here.caller, Site(), how)


def full_disk(*_: object, **__: object) -> None:
    raise UnwritableError("No space left on device")


@pytest.mark.parametrize(
    ("ends", "hint"),
    [
        (False, f"race {RACE.race_id} goes on: rv accept run --resume {RACE.race_id}"),
        (True, f"race {RACE.race_id} was submitted: rv accept run --resume {RACE.race_id}"),
    ],
    ids=["while it runs", "when it is over"],
)
def test_output_that_cannot_be_written_leaves_a_race_that_can_be_gone_on_with(
    here: Here, monkeypatch: pytest.MonkeyPatch, hint: str, *, ends: bool
) -> None:
    """Who typed it again would have two."""
    made = launched(here)
    here.run()
    if ends:
        here.end(0)
    monkeypatch.setattr("rv.workflow.follow.start", full_disk)
    with pytest.raises(UnwritableError) as told:
        followed(here, made, "rv accept run --resume {race}")
    assert (told.value.hint, told.value.exit_code) == (hint, 125)


def test_so_does_output_that_is_written_at_its_end(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a last line without its end, of one of several nodes."""
    made = launched(here)
    here.end(0)
    monkeypatch.setattr("rv.workflow.follow.start", lambda *_, **__: None)
    monkeypatch.setattr("rv.workflow.follow.watch", lambda *_, **__: None)
    monkeypatch.setattr("rv.workflow.follow.keep_past", lambda *_: None)
    monkeypatch.setattr("rv.ui.progress.Progress.finish", full_disk)
    with pytest.raises(UnwritableError) as told:
        followed(here, made)
    assert told.value.hint.startswith(f"race {RACE.race_id} was submitted: ")


def test_output_that_cannot_be_written_is_told_though_the_cluster_is_silent(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows then whether the race was submitted."""

    def silent(*_: object) -> None:
        raise RvError(ErrorKind.UNREACHABLE, "no answer")

    made = launched(here)
    monkeypatch.setattr("rv.workflow.follow.start", full_disk)
    monkeypatch.setattr("rv.workflow.follow.load_race", silent)
    with pytest.raises(UnwritableError) as told:
        followed(here, made)
    assert told.value.hint.startswith(f"race {RACE.race_id} may have been submitted: rv logs -f")


@pytest.mark.parametrize("command", [None, "true"], ids=["a shell", "not submitted"])
def test_where_no_race_is_left_the_command_is_typed_again(
    here: Here, monkeypatch: pytest.MonkeyPatch, command: str | None
) -> None:
    made = launched(here, command)
    if command:
        (here.squeue.root / RACE.race_id / "race.json").unlink()
    monkeypatch.setattr("rv.workflow.follow.start", full_disk)
    with pytest.raises(UnwritableError, match="No space left") as told:
        followed(here, made)
    assert told.value.hint == "see where it is sent to, then type it again"


@pytest.mark.parametrize("json", [False, True], ids=["text", "json"])
def test_an_id_that_cannot_be_written_is_in_the_hint(
    here: Here, monkeypatch: pytest.MonkeyPatch, *, json: bool
) -> None:
    for name in ("answer", "emit_json"):
        monkeypatch.setattr(console, name, full_disk)
    with pytest.raises(UnwritableError) as told:
        launching.say_detached(here.race(), json=json)
    assert told.value.hint.startswith(f"race {RACE.race_id} goes on: rv logs -f {RACE.race_id} ")


def test_a_race_that_cannot_be_described_at_its_end_is_named(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "emit_json", full_disk)
    monkeypatch.setattr(launching, "race_document", lambda _: {})
    raced = launching.Raced(status=SimpleNamespace(race=here.race()), caller=here.caller)
    with pytest.raises(UnwritableError) as ended:
        launching.end(raced, json=True)
    assert RACE.race_id in ended.value.hint
    with pytest.raises(UnwritableError) as left:
        launching.leave(raced.status.race.directory, here.caller, 130, json=True)
    assert RACE.race_id in left.value.hint


@pytest.fixture
def unhandled() -> Iterator[object]:
    """What handles signals where nothing of rv's does: not the end of all tests."""

    def fail(number: int, _: object) -> None:
        raise AssertionError(f"signal {number} is not handled")

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [(number, signal.signal(number, fail)) for number in numbers]
    yield fail
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("claimed", [True, False], ids=["running", "waiting"])
def test_a_signal_leaves_the_race_of_a_command(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    unhandled: object, number: int, *, claimed: bool,
) -> None:  # fmt: skip
    """It says how to go on, as Ctrl-C does; it cancels nothing, whatever Ctrl-C would."""
    made = launched(here)
    if claimed:
        here.run()
    sent: list[object] = []
    monkeypatch.setattr("rv.workflow.follow.start", lambda *_, **__: os.kill(os.getpid(), number))
    monkeypatch.setattr("rv.workflow.follow.send_rest", lambda *call: sent.append(call))
    assert code_of(lambda: followed(here, made)) == 128 + number
    assert capsys.readouterr().err == f"detached: rv logs -f {RACE.race_id}\n"
    assert not (here.squeue.root / RACE.race_id / "stop").exists()
    assert bool(sent) is not claimed  # no client is there to send the later waves
    assert signal.getsignal(number) is unhandled  # a second one ends rv


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_race_is_only_sent_leaves_it_too(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    unhandled: object, number: int,
) -> None:  # fmt: skip
    """As `rv run -d` does by itself: what was not sent yet is, and it says how to go on."""
    made = launched(here)
    sent: list[object] = []
    monkeypatch.setattr(launching, "start", lambda *_, **__: os.kill(os.getpid(), number))
    monkeypatch.setattr("rv.workflow.follow.send_rest", lambda *call: sent.append(call))
    assert code_of(lambda: followed(here, made, detach=True)) == 128 + number
    assert capsys.readouterr().err == f"detached: rv logs -f {RACE.race_id}\n"
    assert sent
    assert signal.getsignal(number) is unhandled  # a second one ends rv


@pytest.mark.usefixtures("unhandled")
def test_a_signal_before_anything_is_submitted(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = launched(here)
    (here.squeue.root / RACE.race_id / "race.json").unlink()
    end = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
    monkeypatch.setattr("rv.workflow.follow.start", end)
    assert code_of(lambda: followed(here, made)) == 143
    assert capsys.readouterr().err == "stopped: nothing was submitted\n"


@pytest.mark.usefixtures("unhandled")
def test_a_signal_ends_rv_also_where_that_cannot_be_said(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = launched(here)
    here.run()
    end = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
    monkeypatch.setattr("rv.workflow.follow.start", end)
    monkeypatch.setattr("rv.ui.progress.Progress.say", full_disk)
    assert code_of(lambda: followed(here, made)) == 143


def launch_sweep(here: Here, monkeypatch: pytest.MonkeyPatch, retry: int = 0) -> int:
    """Follow a sweep that was launched; its exit code."""
    race = here.race(Sweep(tasks=2), wait_timeout=AT_ONCE if not retry else None, retry=retry)
    monkeypatch.setattr(launching, "start_detached", lambda *_: race)
    launch = SimpleNamespace(plan=SimpleNamespace(notes=()), request=race.request)
    following = Following(caller=here.caller, site=Site(), json=True)
    return code_of(lambda: following.submit(SimpleNamespace(launch=launch)))


def test_a_sweep_that_is_given_up_is_described(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch_sweep(here, monkeypatch) == 124
    assert "stopped" in str(told(capsys)["why"])


def test_a_sweep_that_is_left_is_described(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here.at_turn = interrupt
    assert launch_sweep(here, monkeypatch, retry=1) == 130
    assert told(capsys)["state"] == "PENDING"


@pytest.mark.parametrize("kind", [ErrorKind.UNREACHABLE, ErrorKind.LIMIT, ErrorKind.INFEASIBLE])
def test_a_sweep_that_cannot_run_again_ends_as_it_did(
    here: Here,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: ErrorKind,
) -> None:
    def refuse(*_: object) -> None:
        raise RvError(kind, "not now")

    monkeypatch.setattr("rv.cli.sweep.prepare_unfinished", refuse)
    here.at_turn = lambda: here.end_tasks("3 -")
    assert launch_sweep(here, monkeypatch, retry=2) == 1
    shown = capsys.readouterr()
    assert shown.err.count("not raced again: not now") == 1
    assert json.loads(shown.out)["state"] == "FAILED"


def test_a_task_that_was_lost_and_has_succeeded_counts(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its word comes while the rest is prepared, and then there is no rest."""

    def prepare(*call: object) -> object:
        here.write("workers/11.0.cd34", "end 2 0 - 13 .\n")
        return sweeps.prepare_unfinished(*call)

    monkeypatch.setattr("rv.cli.sweep.prepare_unfinished", prepare)
    here.at_turn = lambda: here.end_tasks("143 TERM")
    assert launch_sweep(here, monkeypatch, retry=1) == 0
    document = told(capsys)
    assert (document["state"], document["sweep"]["done"]) == ("COMPLETED", 2)
