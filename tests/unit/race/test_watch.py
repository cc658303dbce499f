"""How often a client asks Slurm, and whose answers it takes. The clock is the test's own."""

from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from rv.models.job import JobState
from rv.models.race import Claim, JobStatus, Race, RaceState, RaceStatus, StateFiles
from rv.race import watch as watching
from rv.race.observe import RaceSnapshot
from rv.race.submit import SubmitOutcome, SubmitResult
from rv.race.watch import WaitTimedOut, Watch
from tests.unit.race.test_merged_race import CLAIM, RACE


@dataclass
class Shared:
    """The queue as the cache has it: whose answer each look took, and how old it was."""

    now: float = 1000.0
    answer_at: float = 0.0
    asked: list[float] = field(default_factory=list)
    stale: list[float] = field(default_factory=list)
    transport: Any = None

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def records(self, max_age: timedelta) -> tuple[()]:
        """Ask where the stored answer is too old; an answer takes its time."""
        if not self.now - self.answer_at < max_age.total_seconds():
            self.asked.append(self.now)
            self.now += 0.4
            self.answer_at = self.now
        else:
            self.stale.append(self.now - self.answer_at)
        return ()


class Silent:
    """Nobody listens."""

    def status(self, status: RaceStatus) -> None: ...
    def submitted(self, results: object) -> None: ...
    def output(self, chunk: object) -> None: ...


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Shared:
    """A race of which nothing is ever heard, watched for a while."""
    monkeypatch.setattr(watching, "random", Random(0))
    monkeypatch.setattr(watching, "load_state_files", lambda race, transport: StateFiles())
    monkeypatch.setattr(watching, "recover", lambda seen, transport: ())
    return Shared()


def watch(
    looks: Shared,
    status: RaceStatus,
    monkeypatch: pytest.MonkeyPatch,
    files: StateFiles = StateFiles(),  # noqa: B008 - it is frozen
    **more: Any,
) -> None:
    """Watch until half an hour is over."""

    def observe(races: tuple[Race, ...], *_: object) -> tuple[RaceSnapshot]:
        if looks.now > 1000.0 + 1800:
            raise WaitTimedOut
        return (RaceSnapshot(status=status, files=files, records=(), reachable=True),)

    monkeypatch.setattr(watching, "observe", observe)
    monkeypatch.setattr(watching, "resolve", lambda *_: status)
    monkeypatch.setattr(watching, "OutputReader", lambda *_: Mute())
    sink = more.pop("sink", Silent())
    client = Watch(race=RACE, queue=looks, sink=sink, clock=looks.clock, sleep=looks.sleep, **more)
    with pytest.raises(WaitTimedOut):
        client.run()


class Mute:
    """A command that prints nothing."""

    def read(self) -> list[object]:
        return []


def pauses(looks: Shared) -> list[float]:
    return [after - before for before, after in zip(looks.asked, looks.asked[1:], strict=False)]


def running(why: str) -> RaceStatus:
    claim: Claim = CLAIM
    return RaceStatus(race=RACE, state=RaceState.RUNNING, jobs=(), claim=claim, why=why)


@pytest.mark.parametrize("claimed", [False, True], ids=["waiting", "running"])
def test_a_client_alone_never_takes_its_own_last_answer(
    looks: Shared, monkeypatch: pytest.MonkeyPatch, claimed: bool
) -> None:
    """It would learn nothing, and learn it late."""
    pending = RaceStatus(race=RACE, state=RaceState.PENDING, jobs=())
    watch(looks, running("") if claimed else pending, monkeypatch)
    assert looks.stale == []
    assert max(pauses(looks)) < 70
    assert len(looks.asked) < 60


def test_a_winner_in_question_is_asked_about_soon(
    looks: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end may be known any moment now; after a while it is asked as seldom as any other."""
    watch(looks, running("accounting calls job 7 RUNNING"), monkeypatch)
    assert pauses(looks)[0] < 5
    assert pauses(looks)[-1] > 40


def test_a_first_job_that_boots_its_node_is_not_asked_about_all_the_time(
    looks: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it may come any moment, the later waves wait; half an hour is long."""
    booting = JobStatus(number=1, name="", strategy="", job_id=7, state=JobState.CONFIGURING)
    status = RaceStatus(race=RACE, state=RaceState.PENDING, jobs=(booting,))
    watch(looks, status, monkeypatch, waves=[(2,)])
    assert len(looks.asked) < 110


def test_what_is_refused_again_and_again_is_told_once(
    looks: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And asked about ever more seldom."""
    told: list[object] = []

    class Listening(Silent):
        def submitted(self, results: object) -> None:
            told.append(results)

    no = SubmitResult(number=1, outcome=SubmitOutcome.REFUSED, text="account expired")
    monkeypatch.setattr(watching, "recover", lambda seen, transport: (no,))
    pending = RaceStatus(race=RACE, state=RaceState.PENDING, jobs=())
    files = StateFiles(refused=((1, "account expired"),))
    watch(looks, pending, monkeypatch, files, sink=Listening())
    assert told == []
    assert len(looks.asked) < 60
