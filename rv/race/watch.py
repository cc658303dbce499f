"""Watch one race until it is over: the claim within a second, the queue seldom, both cheaply."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Protocol

from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import Race, RaceState, RaceStatus
from rv.race.directory import load_state_files
from rv.race.observe import RaceSnapshot, observe
from rv.race.output import Chunk, OutputReader
from rv.race.queue import Queue
from rv.race.recover import advance, unsent
from rv.race.sources import Sources
from rv.race.status import awaits_code, resolve
from rv.race.submit import SubmitOutcome, SubmitResult, send

_FIRST_ASK_S: Final = 3.0
_LAST_ASK_S: Final = 60.0
_RUNNING_ASK_S: Final = (30.0, 60.0)
_GROWTH: Final = 1.3
_TICK_S: Final = 1.0
_QUICK_TICK_S: Final = 0.1
_QUICK_FOR_S: Final = 10.0
_WIDENING_S: Final = 2.0
_LAST_WIDENING_S: Final = 30.0
_LAST_WORD_TRIES: Final = 20
_LAST_WORD_S: Final = 0.5
_SHARED_S: Final = 10.0


class Sink(Protocol):
    """Where what happens goes: the terminal, or a test."""

    def status(self, status: RaceStatus) -> None:
        """The state may have changed."""

    def submitted(self, results: Sequence[SubmitResult]) -> None:
        """Submissions were sent, and this became of them."""

    def output(self, chunk: Chunk) -> None:
        """The command wrote something."""


class WaitTimedOut(Exception):  # noqa: N818 - the user's own limit was reached: nothing is in error
    """The user's `--wait-timeout` passed before the command started."""


@dataclass(kw_only=True, slots=True)
class Watch:
    """One client's watch over one race. Times in seconds; `clock` is the epoch's.

    `waves` are those still to be sent; `until_claim` ends the watch as soon as there is a winner.
    """

    race: Race
    queue: Queue
    sink: Sink
    waves: list[tuple[int, ...]] = field(default_factory=list)
    widen_after: timedelta = timedelta(seconds=5)
    wait_timeout: timedelta | None = None
    until_claim: bool = False
    node: int | None = None
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    _began: float = 0.0
    _next_ask: float = 0.0
    _asked: float = 0.0
    _pace: float = _FIRST_ASK_S
    _records: tuple[JobRecord, ...] = ()
    _unfit_nodes: int = 0
    _next_widening: float = 0.0
    _widening: float = _WIDENING_S

    def run(self) -> RaceStatus:
        """Watch until the race is over (or claimed) and return what it came to.

        Raises `WaitTimedOut` when nothing has started by `wait_timeout`.
        """
        self._began = self.clock()
        self._next_ask = self._began + _FIRST_ASK_S
        self._asked = self._began
        reader = OutputReader(self.race, self.queue.transport, self.node)
        while True:
            status = self._look()
            self.sink.status(status)
            if status.claim:  # output since the look would come before its winner
                self._stream(reader)
            if status.state.is_over and (final := self._settle(status)):
                self._stream(reader)
                return final
            if status.claim and self.until_claim:
                return status
            if not status.claim:
                self._while_unclaimed(status)
            self.sleep(self._tick())

    def _tick(self) -> float:
        return _QUICK_TICK_S if self.clock() - self._began < _QUICK_FOR_S else _TICK_S

    def _stream(self, reader: OutputReader) -> None:
        while chunks := reader.read():
            for chunk in chunks:
                self.sink.output(chunk)

    def _look(self) -> RaceStatus:
        """A cheap look at the directory; a full one when the queue is due."""
        now = self.clock()
        if now < self._next_ask:
            files = load_state_files(self.race, self.queue.transport)
            if files.deleted:  # now only Slurm can tell
                self._ask_soon()
            return resolve(self.race, files, Sources(records=self._records, now=now))
        return self._tend(self._ask(now))

    def _tend(self, snapshot: RaceSnapshot) -> RaceStatus:
        """Do for the race what it needs; one that was just given new jobs is not over."""
        refused = {number for number, _ in snapshot.files.refused}
        tried = advance(snapshot, self.queue.transport)
        # What is refused time and again is no news, and no reason to ask again soon.
        results = [
            f for f in tried if f.outcome is not SubmitOutcome.REFUSED or f.number not in refused
        ]
        if not results:
            return snapshot.status
        self.sink.submitted(results)
        self._ask_soon()
        return replace(snapshot.status, state=RaceState.PENDING, why="other jobs were sent")

    def _ask_soon(self) -> None:
        self._pace = _FIRST_ASK_S
        self._next_ask = min(self._next_ask, self.clock() + _FIRST_ASK_S)

    def _ask(self, now: float) -> RaceSnapshot:
        """Ask again; what another client has heard since, just now, serves too."""
        return self._observe(now, timedelta(seconds=min(now - self._asked, _SHARED_S)))

    def _ask_now(self) -> RaceSnapshot:
        return self._observe(self.clock(), timedelta(0))

    def _observe(self, now: float, max_age: timedelta) -> RaceSnapshot:
        records = self.queue.records(max_age)
        self._asked = self.clock()
        (snapshot,) = observe([self.race], self.queue.transport, records, now)
        self._records = snapshot.records
        self._next_ask = now + self._pause(snapshot.status) * random.uniform(0.9, 1.1)  # noqa: S311
        return snapshot

    def _pause(self, status: RaceStatus) -> float:
        """How long Slurm is not asked again: of a command that runs, its exit file tells.

        Where the state is in question, such as that of a job that only accounting calls running,
        it is asked as soon, at first, as for a job that waits.
        """
        if status.claim and not status.why:
            self._pace = _FIRST_ASK_S
            return random.uniform(*_RUNNING_ASK_S)  # noqa: S311 - spreads load only
        self._pace = min(self._pace * _GROWTH, _LAST_ASK_S)
        return self._pace

    def _settle(self, status: RaceStatus) -> RaceStatus | None:
        """Ask once more: Slurm's word for the end, and whether a late sibling is left to cancel.

        None where the race goes on after all, such as with strategies that nobody had tried yet.
        """
        snapshot = self._ask_now()
        for _ in range(_LAST_WORD_TRIES):
            if not _awaits_word(snapshot):
                break
            self.sleep(_LAST_WORD_S)
            snapshot = self._ask_now()
        if not snapshot.reachable:
            return status
        settled = self._tend(snapshot)
        if settled.state.is_over:
            return settled
        self._ask_soon()
        return None

    def _while_unclaimed(self, status: RaceStatus) -> None:
        waited = self.clock() - self._began
        if self.wait_timeout and waited > self.wait_timeout.total_seconds():
            raise WaitTimedOut
        unfit = bool(status.warnings) or self._all_refused(status)
        is_time = waited > self.widen_after.total_seconds() or unfit
        if self.waves and is_time and self.clock() >= self._next_widening:
            self._widen()
            self._next_widening = self.clock() + self._widening
        if len(status.warnings) != self._unfit_nodes:
            # A job has just given a node up and may need its hold lifted.
            self._unfit_nodes = len(status.warnings)
            self._ask_soon()

    def _all_refused(self, status: RaceStatus) -> bool:
        tried = [job for job in status.jobs if job.job_id or job.state is not JobState.UNKNOWN]
        return bool(tried) and all(job.state is JobState.LAUNCH_FAILED for job in tried)

    def _widen(self) -> None:
        """Send the next wave, unless the first job starts: its node may take minutes to boot."""
        snapshot = self._ask(self.clock())
        if snapshot.status.claim or any(job.state in _STARTING for job in snapshot.status.jobs):
            self._widening = min(2 * self._widening, _LAST_WIDENING_S)
            return
        self._widening = _WIDENING_S
        left = unsent(self.race, snapshot.files)
        if wave := [number for number in self.waves.pop(0) if number in left]:
            self.sink.submitted(send(self.race, wave, self.queue.transport))


def _awaits_word(snapshot: RaceSnapshot) -> bool:
    """Whether Slurm's last word is on its way: why it sent a signal, or how a killed job ended."""
    claim, ended = snapshot.files.claim, snapshot.files.ended
    if snapshot.reachable and awaits_code(snapshot.status, snapshot.records):
        return True
    if not (snapshot.reachable and claim and ended and ended.signal):
        return False
    return any(is_live(r.state) for r in snapshot.records if r.job_id == claim.job_id)


_STARTING: Final = frozenset({JobState.RUNNING, JobState.CONFIGURING})
