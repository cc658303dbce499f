"""Wait for the ends of several races: one look at all of them, and one query of the queue."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from rv.models.job import JobRecord
from rv.models.race import Race, RaceStatus
from rv.race.directory import load_all_state_files
from rv.race.observe import RaceSnapshot, observe
from rv.race.pace import Pace, start_pace
from rv.race.recover import recover
from rv.race.sources import Sources
from rv.race.status import resolve
from rv.race.submit import SubmitOutcome
from rv.race.watch import LAST_STATE_TRIES, WaitTimedOut, awaits_slurm
from rv.slurm.squeue import OwnJobs
from rv.transport.query_retry import silent_since

_AGAIN_S: Final = 0.5


class WaitSink(Protocol):
    """Where a wait tells what happens."""

    def ended(self, status: RaceStatus) -> None:
        """A race is over."""

    def say(self, text: str) -> None:
        """Say a sentence."""


@dataclass(kw_only=True, slots=True)
class Wait:
    """One client's wait for races. Times in seconds; `clock` is the epoch's.

    Like every client it does for each race what its jobs cannot do, such as a next segment.
    `timeout` None waits for ever.
    """

    races: Sequence[Race]
    queue: OwnJobs
    sink: WaitSink
    timeout: timedelta | None = None
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    open: dict[str, Race] = field(init=False)
    """The races that are not over, by id."""
    _pace: Pace = field(init=False)
    _records: tuple[JobRecord, ...] = ()
    _tries: dict[str, int] = field(default_factory=dict)
    _is_silent: bool = False

    def run(self) -> tuple[RaceStatus, ...]:
        """Wait until all are over; return how each ended, in the order in which they did.

        Raises `WaitTimedOut` when some are not by then; `open` has those.
        """
        self.open = {race.race_id: race for race in self.races}
        self._pace = start_pace(self.clock(), first_ask_s=0.0)
        self._pace.asked_s -= 1.0  # what another client heard within the last second is news
        ends: list[RaceStatus] = []
        while True:
            for status in self._look():
                del self.open[status.race.race_id]
                self.sink.ended(status)
                ends.append(status)
            if not self.open:
                return tuple(ends)
            self.sleep(self._nap_s())

    def _nap_s(self) -> float:
        """How long to wait before the next look. Raises `WaitTimedOut` where no time is left."""
        now_s = self.clock()
        tick_s = self._pace.tick_s(now_s, self._pace.began_s)
        if self.timeout is None:
            return tick_s
        left_s = self._pace.began_s + self.timeout.total_seconds() - now_s
        if left_s <= 0:
            raise WaitTimedOut
        return min(tick_s, left_s)

    def _look(self) -> list[RaceStatus]:
        """Return how those ended that have ended since; ask Slurm only where it may matter."""
        now_s = self.clock()
        if now_s >= self._pace.next_ask_s:
            return self._settle(self._ask(now_s, self._pace.max_age(now_s)))
        if now_s - self._pace.asked_s >= _AGAIN_S and self._seems_over(now_s):
            return self._settle(self._ask(now_s, timedelta(0)))
        return []

    def _ask(self, now_s: float, max_age: timedelta) -> tuple[RaceSnapshot, ...]:
        """Look at all sources, with an answer of the queue that is no older."""
        records = self.queue.records(max_age)
        self._pace.asked_s = self.clock()
        self._tell_silence(now_s, answered=records is not None)
        transport = self.queue.transport
        snapshots = observe(tuple(self.open.values()), transport, records, now_s)
        self._records = tuple(record for each in snapshots for record in each.records)
        open_states = [each.status for each in snapshots if not each.status.state.is_over]
        is_settled = all(status.has_started and not status.why for status in open_states)
        self._pace.plan_next(now_s, is_settled=is_settled)
        return snapshots

    def _seems_over(self, now_s: float) -> bool:
        """Whether the state files, with what Slurm said last, tell of an end."""
        files = load_all_state_files(tuple(self.open.values()), self.queue.transport)
        if any(each.deleted for each in files.values()):  # now only Slurm knows more
            self._pace.ask_soon(now_s)
        sources = Sources(records=self._records, now_s=now_s)
        return any(
            resolve(race, files[race_id], sources).state.is_over
            for race_id, race in self.open.items()
        )

    def _settle(self, snapshots: Sequence[RaceSnapshot]) -> list[RaceStatus]:
        """Do what each race needs, and return those that are over for good."""
        ends = []
        for snapshot in snapshots:
            sent = recover(snapshot, self.queue.transport)
            if any(result.outcome is not SubmitOutcome.REFUSED for result in sent):
                self._pace.ask_soon(self.clock())
            elif snapshot.status.state.is_over and self._is_final(snapshot):
                ends.append(snapshot.status)
            if any(result.outcome is SubmitOutcome.UNKNOWN for result in sent):
                break  # Slurm takes nothing now, and each try is a long wait
        return ends

    def _is_final(self, snapshot: RaceSnapshot) -> bool:
        """Whether Slurm has said how it ended, or has had its time for that."""
        race_id = snapshot.status.race.race_id
        self._tries[race_id] = self._tries.get(race_id, 0) + 1
        return not awaits_slurm(snapshot) or self._tries[race_id] > LAST_STATE_TRIES

    def _tell_silence(self, now_s: float, *, answered: bool) -> None:
        """Say when Slurm falls silent, and when it answers again."""
        if answered and self._is_silent:
            self.sink.say("Slurm answers again")
        elif not answered and not self._is_silent:
            self.sink.say(f"{silent_since(now_s)}: races go on, and Slurm is asked again")
        self._is_silent = not answered
