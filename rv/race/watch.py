"""Watch one race until it is over: its directory every second, the queue seldom."""

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
from rv.race.pace import Pace, start_pace
from rv.race.recover import recover, unsent
from rv.race.sources import Sources
from rv.race.status import awaits_code, resolve
from rv.race.submit import SubmitOutcome, SubmitResult, submit_once
from rv.slurm.squeue import OwnJobs
from rv.transport.query_retry import outlast_loss, silent_since

_NEXT_WAVE_S: Final = 2.0
LAST_STATE_TRIES: Final = 20
_LAST_STATE_S: Final = 0.5


class Sink(Protocol):
    """Where what happens goes: the terminal, or a test."""

    def status(self, status: RaceStatus) -> None:
        """The state may have changed. Raises `DetachRequested` where the user wants to leave."""

    def submitted(self, results: Sequence[SubmitResult]) -> None:
        """Submissions were sent, and this became of them."""

    def output(self, chunk: Chunk) -> None:
        """The command wrote something. Raises `DetachRequested` where nobody reads it any more."""

    def say(self, text: str) -> None:
        """Say a sentence."""


class WaitTimedOut(Exception):  # noqa: N818 - the user's own limit was reached: nothing is in error
    """The user's `--wait-timeout` passed before the command started."""


class DetachRequested(Exception):  # noqa: N818 - the user's wish, not an error
    """The user asked to leave the race to Slurm."""


@dataclass(kw_only=True, slots=True)
class Watch:
    """One client's watch over one race. Times in seconds; `clock` is the epoch's.

    `waves` are those still to be sent; `until_claim` ends the watch as soon as there is a winner.
    `reader` is what reads the output, all of it unless it is given. A lost connection ends the
    watch `patience_s` seconds after its transport gave up.
    """

    race: Race
    queue: OwnJobs
    sink: Sink
    waves: list[tuple[int, ...]] = field(default_factory=list)
    widen_after: timedelta = timedelta(seconds=5)
    wait_timeout: timedelta | None = None
    until_claim: bool = False
    reader: OutputReader | None = None
    patience_s: float = 0.0
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    _pace: Pace = field(init=False)
    _heard_s: float = 0.0
    _records: tuple[JobRecord, ...] = ()
    _warnings: int = 0
    _is_silent: bool = False
    _next_wave_s: float = 0.0

    def run(self) -> RaceStatus:
        """Watch until the race is over (or claimed) and return what it came to.

        Raises `WaitTimedOut` when nothing has started by `wait_timeout`.
        """
        self._heard_s = self.clock()
        self._pace = start_pace(self._heard_s)
        reader = self.reader or OutputReader(self.race, self.queue.transport)
        while True:
            end = outlast_loss(
                lambda: self._turn(reader),
                limit_s=self.patience_s,
                say=self.sink.say,
                wait=self.sleep,
            )
            if end:
                return end

    def _turn(self, reader: OutputReader) -> RaceStatus | None:
        """Look once, do what is to be done and wait; return what it came to, None to go on."""
        status = self._look()
        self.sink.status(status)
        if status.has_started:  # output since the look would come before its winner
            self._stream(reader)
        if status.state.is_over and (final := self._settle(status)):
            self._stream(reader)
            return final
        if status.claim and self.until_claim:
            return status
        if not status.has_started:
            self._while_unclaimed(status)
        self.sleep(self._tick(status))
        return None

    def _tick(self, status: RaceStatus) -> float:
        """How long to wait before the next look: longer where a command says nothing for long."""
        now_s = self.clock()
        return self._pace.tick_s(now_s, self._heard_s if status.claim else now_s)

    def _stream(self, reader: OutputReader) -> None:
        while chunks := reader.read():
            self._heard_s = self.clock()
            for chunk in chunks:
                self.sink.output(chunk)
            if not reader.has_more:
                break

    def _look(self) -> RaceStatus:
        """Look at the directory only, or at all sources when the queue is due."""
        now_s = self.clock()
        if now_s < self._pace.next_ask_s:
            files = load_state_files(self.race, self.queue.transport)
            if files.deleted:  # now only Slurm knows more
                self._pace.ask_soon(self.clock())
            return resolve(self.race, files, Sources(records=self._records, now_s=now_s))
        return self._recover(self._ask(now_s))

    def _recover(self, snapshot: RaceSnapshot) -> RaceStatus:
        """Do what the race needs; one whose jobs were just submitted again is not over."""
        refused = {number for number, _ in snapshot.files.refused}
        sent = recover(snapshot, self.queue.transport)
        # What is refused time and again is no news, and no reason to ask again soon.
        results = [
            result
            for result in sent
            if result.outcome is not SubmitOutcome.REFUSED or result.number not in refused
        ]
        if not results:
            return snapshot.status
        self.sink.submitted(results)
        self._pace.ask_soon(self.clock())
        return replace(snapshot.status, state=RaceState.PENDING, why="other jobs were sent")

    def _ask(self, now_s: float) -> RaceSnapshot:
        """Ask again; an answer that another client got just now serves too."""
        return self._observe(now_s, self._pace.max_age(now_s))

    def _ask_now(self) -> RaceSnapshot:
        return self._observe(self.clock(), timedelta(0))

    def _observe(self, now_s: float, max_age: timedelta) -> RaceSnapshot:
        records = self.queue.records(max_age)
        self._pace.asked_s = self.clock()
        (snapshot,) = observe([self.race], self.queue.transport, records, now_s)
        self._records = snapshot.records
        self._tell_silence(now_s, reachable=snapshot.reachable)
        status = snapshot.status
        self._pace.plan_next(now_s, is_settled=status.has_started and not status.why)
        return snapshot

    def _tell_silence(self, now_s: float, *, reachable: bool) -> None:
        """Say when Slurm falls silent, and when it answers again; the race goes on meanwhile."""
        if reachable and self._is_silent:
            self.sink.say("Slurm answers again")
        elif not reachable and not self._is_silent:
            self.sink.say(f"{silent_since(now_s)}: the race goes on, and Slurm is asked again")
        self._is_silent = not reachable

    def _settle(self, status: RaceStatus) -> RaceStatus | None:
        """Ask once more how it ended, and whether a late job is left to cancel.

        None where the race goes on after all, such as with strategies that were not sent yet.
        """
        snapshot = self._ask_now()
        for _ in range(LAST_STATE_TRIES):
            if not awaits_slurm(snapshot):
                break
            self.sleep(_LAST_STATE_S)
            snapshot = self._ask_now()
        if not snapshot.reachable:
            return status
        settled = self._recover(snapshot)
        if settled.state.is_over:
            return settled
        self._pace.ask_soon(self.clock())
        return None

    def _while_unclaimed(self, status: RaceStatus) -> None:
        waited = self.clock() - self._pace.began_s
        if self.wait_timeout and waited > self.wait_timeout.total_seconds():
            raise WaitTimedOut
        is_stuck = bool(status.warnings) or self._all_refused(status)
        is_time = waited > self.widen_after.total_seconds() or is_stuck
        if self.waves and is_time and self.clock() >= self._next_wave_s:
            self._submit_next_wave()
            self._next_wave_s = self.clock() + _NEXT_WAVE_S
        if len(status.warnings) != self._warnings:
            # A job has just left a rejected node and may need its hold lifted.
            self._warnings = len(status.warnings)
            self._pace.ask_soon(self.clock())

    def _all_refused(self, status: RaceStatus) -> bool:
        sent = [job for job in status.jobs if job.job_id or job.state is not JobState.UNKNOWN]
        return bool(sent) and all(job.state is JobState.LAUNCH_FAILED for job in sent)

    def _submit_next_wave(self) -> None:
        """Send the next wave: a job that starts, but hangs in its node check, keeps nobody back."""
        snapshot = self._ask(self.clock())
        if snapshot.status.claim:
            return
        left = unsent(self.race, snapshot.files)
        if wave := [number for number in self.waves.pop(0) if number in left]:
            self.sink.submitted(submit_once(self.race, wave, self.queue.transport))


def awaits_slurm(snapshot: RaceSnapshot) -> bool:
    """Return whether Slurm is yet to say why it sent a signal, or how a killed job ended."""
    claim, ended = snapshot.files.claim, snapshot.files.ended
    if snapshot.reachable and awaits_code(snapshot.status, snapshot.records):
        return True
    if not (snapshot.reachable and claim and ended and ended.signal):
        return False
    return any(is_live(r.state) for r in snapshot.records if r.job_id == claim.job_id)
