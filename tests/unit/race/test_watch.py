"""How often a client asks Slurm, and whose answers it takes.

The clock and the queue's answers are the test's own; the race directory is real, and so is what
the client makes of both.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.job import JobRecord
from rv.models.race import RaceStatus
from rv.race import pace
from rv.race.directory import record_text
from rv.race.output import Chunk
from rv.race.submit import SubmitResult
from rv.race.watch import WaitTimedOut, Watch
from rv.transport import ScriptResult
from rv.transport.local import LocalTransport
from tests.unit.race.test_status import RACE, record

BEGIN = 1_000_000.0
CLAIM = f"11.0\nsubmission=1\nnodes=a1\nhost=a1\nstarted={BEGIN}\nstrategy=s1\nwhole\n"
REFUSAL = "sbatch: error: Batch job submission failed: account expired"


class Refusing(LocalTransport):
    """Its disk is real; sbatch refuses everything, and no other command answers."""

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        """Answer as the shell that calls sbatch does."""
        mark, numbers = re.search(r"RV_MARK=(\S+)", script), re.search(r"RV_NUMBERS=(\S+)", script)
        said = f"{mark[1]} {numbers[1]} rc 1 {REFUSAL}\n" if mark and numbers else ""
        return ScriptResult(returncode=0, stdout=said, stderr="")


@dataclass
class Queue:
    """The queue as the cache has it: whose answer each look took, and how old it was."""

    transport: LocalTransport
    rows: tuple[JobRecord, ...] = ()
    silent_until_s: float = 0.0
    now_s: float = BEGIN
    answer_at: float = 0.0
    asked: list[float] = field(default_factory=list)
    stale: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def records(self, max_age: timedelta) -> tuple[JobRecord, ...] | None:
        """Ask where the stored answer is too old; an answer takes its time."""
        if self.now_s > BEGIN + 1800:
            raise WaitTimedOut
        if timedelta(seconds=self.now_s - self.answer_at) >= max_age:
            self.asked.append(self.now_s)
            self.now_s += 0.4
            self.answer_at = self.now_s
        else:
            self.stale.append(self.now_s - self.answer_at)
        return None if self.now_s < self.silent_until_s else self.rows


class Recorder:
    """What a client was told."""

    def __init__(self) -> None:
        self.states: set[str] = set()
        self.submissions: list[Sequence[SubmitResult]] = []
        self.sentences: list[str] = []

    def status(self, status: RaceStatus) -> None:
        self.states.add(f"{status.state}: {status.why}")

    def submitted(self, results: Sequence[SubmitResult]) -> None:
        self.submissions.append(results)

    def output(self, chunk: object) -> None: ...

    def say(self, text: str) -> None:
        self.sentences.append(text)


Watching = Callable[..., tuple[Queue, Recorder]]


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watching:
    """Watch a race for half an hour, in which its files and the queue's rows stay as they are."""
    monkeypatch.setattr(pace, "random", Random(0))
    race = replace(RACE, directory=str(tmp_path / RACE.race_id), submitted_at=BEGIN)

    def run(
        files: Mapping[str, str],
        *rows: JobRecord,
        waves: Sequence[tuple[int, ...]] = (),
        silent_s: float = 0.0,
    ) -> tuple[Queue, Recorder]:
        for name, text in {"race.json": record_text(race), "jobs/1.id": "11\n", **files}.items():
            path = Path(race.directory, name)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(text)
        queue, sink = Queue(Refusing({}), rows, BEGIN + silent_s), Recorder()
        client = Watch(race=race, queue=queue, sink=sink, waves=list(waves),
                       clock=queue.clock, sleep=queue.sleep)  # fmt: skip
        with pytest.raises(WaitTimedOut):
            client.run()
        return queue, sink

    return run


def test_a_silence_of_slurm_is_told_once_and_so_is_its_end(watch: Watching) -> None:
    """With the time since when, and without an end to the race."""
    _, sink = watch({}, record("PENDING"), silent_s=90)
    silent, answers = sink.sentences
    assert re.match(r"Slurm has not answered since \d\d:\d\d:\d\d: the race goes on", silent)
    assert answers == "Slurm answers again"
    _, sink = watch({}, record("PENDING"))
    assert sink.sentences == []


def pauses(queue: Queue) -> list[float]:
    return [after - before for before, after in zip(queue.asked, queue.asked[1:], strict=False)]


@pytest.mark.parametrize(
    ("files", "state"),
    [({}, "PENDING"), ({"claim": CLAIM}, "RUNNING")],
    ids=["waiting", "running"],
)
def test_a_client_alone_never_takes_its_own_last_answer(
    watch: Watching, files: dict[str, str], state: str
) -> None:
    """It would learn nothing, and learn it late."""
    queue, sink = watch(files, record(state))
    assert f"{state}: " in sink.states
    assert queue.stale == []
    assert max(pauses(queue)) < 70
    assert len(queue.asked) < 60


def test_a_winner_in_question_is_asked_about_soon(watch: Watching) -> None:
    """Its end may be known any moment now; after a while it is asked as seldom as any other."""
    queue, sink = watch({"claim": CLAIM}, record("RUNNING", source="sacct"))
    assert "RUNNING: accounting calls job 11 RUNNING" in sink.states
    assert pauses(queue)[0] < 5
    assert pauses(queue)[-1] > 40


@pytest.mark.parametrize("state", ["CONFIGURING", "RUNNING"])
def test_a_first_job_that_starts_keeps_no_later_wave_back(watch: Watching, state: str) -> None:
    """Its node may hang in the check; only a claim means that it has started."""
    _, sink = watch({}, record(state), waves=[(2,)])
    assert [result.number for results in sink.submissions for result in results] == [2]
    _, sink = watch({"claim": CLAIM}, record(state), waves=[(2,)])
    assert sink.submissions == []


def test_what_is_refused_again_and_again_is_told_once(watch: Watching) -> None:
    """And asked about ever more seldom."""
    refused = {"again/1": "a1\n11\n", "jobs/1.refused": "account expired"}
    queue, sink = watch(refused, record("COMPLETED"))
    assert "PENDING: a job that left a rejected node waits to be submitted again" in sink.states
    assert sink.submissions == []
    assert len(queue.asked) < 60


class Losing(Refusing):
    """Its connection is lost for so many of its next looks."""

    losses = 0

    def read_tree(self, root: str, names: Sequence[str]) -> dict[str, bytes]:
        """Look, where it is there."""
        if self.losses:
            self.losses -= 1
            raise RvError(ErrorKind.UNREACHABLE, "the connection was lost")
        return super().read_tree(root, names)


class Losses(Recorder):
    """What a client was told of a race whose connection is lost as its output comes."""

    def __init__(self, transport: Losing, ended: Path) -> None:
        super().__init__()
        self.transport, self.ended = transport, ended
        self.written: list[bytes] = []

    def output(self, chunk: object) -> None:
        """Lose it, and let the command end meanwhile."""
        assert isinstance(chunk, Chunk)
        self.written.append(chunk.data)
        self.transport.losses = 50
        self.ended.write_text(f"11.0\ncode=0\nsignal=\nended={BEGIN + 9}\n")


@pytest.mark.parametrize("patience_s", [0.0, 3600.0])
def test_a_lost_connection_is_waited_for(tmp_path: Path, patience_s: float) -> None:
    """For as long as it is told; once it is there the watch goes on, and repeats no output."""
    race = replace(RACE, directory=str(tmp_path / RACE.race_id), submitted_at=BEGIN)
    files = {"race.json": record_text(race), "claim": CLAIM, "output/node0.out": "line\n"}
    for name, text in files.items():
        path = Path(race.directory, name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text)
    transport = Losing({})
    queue, sink = Queue(transport), Losses(transport, Path(race.directory, "ended"))
    client = Watch(race=race, queue=queue, sink=sink, clock=queue.clock, sleep=queue.sleep,
                   patience_s=patience_s)  # fmt: skip
    if not patience_s:
        with pytest.raises(RvError, match="connection was lost"):
            client.run()
        assert sink.sentences == []
        return
    assert client.run().state == "COMPLETED"
    assert sink.written == [b"line\n"]
    assert sink.sentences == ["the connection was lost; trying again until it is there"]
