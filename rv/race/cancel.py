"""Cancel a race's jobs, by name and by id: the whole race, or what is left beside its winner."""

import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final

from rv.dataclass import dataclass
from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import Race, RaceState
from rv.race.directory import read_state_files, write_state_file
from rv.race.file_names import STATE_FILES
from rv.race.observe import RaceSnapshot
from rv.race.sources import (
    confirmation_limit_s,
    is_active,
    unconfirmed,
    unconfirmed_for_s,
    without_segment,
)
from rv.slurm.script import new_sentinel
from rv.slurm.squeue import parse_squeue_own
from rv.slurm.squeue_scripts import squeue_own_script
from rv.transport import Transport

_PATIENCE_S: Final = 30.0
_SCANCEL_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelResult:
    """What cancelling a race came to: the jobs cancelled, and what could not be confirmed."""

    race: Race
    cancelled: tuple[int, ...]
    unconfirmed: str = ""


def cancel_races(
    races: Sequence[Race],
    transport: Transport,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[CancelResult, ...]:
    """Cancel every job of races, and wait until all have ended or are ending.

    Jobs whose ids were never learned are cancelled too, by name; Slurm is asked about all races at
    once. The `stop` files come first: from then on no client submits and no job of them starts. A
    submission that was just sent and not acknowledged is waited for as well.
    """
    writable = [write_state_file(race, "stop", "stopped by rv\n", transport) for race in races]
    round_ = _Cancelling(races=races, transport=transport)
    begun_s = clock()
    while True:
        left = round_.once()
        waited_s = clock() - begun_s
        if not any(left) or waited_s >= _PATIENCE_S:
            break
        sleep(0.2 if waited_s < 2 else 1.0)
    return tuple(
        CancelResult(
            race=race,
            cancelled=round_.ids_of(race),
            unconfirmed=what
            or ("" if has_file else f"no stop file can be written in {race.directory}"),
        )
        for race, what, has_file in zip(races, left, writable, strict=True)
    )


@dataclass(kw_only=True, slots=True)
class _Cancelling:
    """Rounds of asking for the live jobs of races and cancelling them."""

    races: Sequence[Race]
    transport: Transport
    cancelled: set[int] = field(default_factory=set)
    appeared: dict[str, set[int]] = field(default_factory=dict)
    """The ids of the jobs that were ever live, by name."""

    def once(self) -> list[str]:
        """Cancel what is live now; say for each race what is left of it, "" where nothing is."""
        live = _live_jobs(self.races, self.transport)
        if live is None:
            return ["Slurm does not answer"] * len(self.races)
        fresh = sorted({record.cancel_id for record in live} - self.cancelled)
        if cancel_ids(fresh, self.transport):
            self.cancelled.update(fresh)
        for record in live:
            self.appeared.setdefault(record.name, set()).add(record.job_id)
        return [self._left_of(race, live) for race in self.races]

    def ids_of(self, race: Race) -> tuple[int, ...]:
        """Return the ids of a race's jobs that were ever live."""
        ids = (self.appeared.get(name, set()) for name in race.job_names)
        return tuple(sorted(set().union(*ids)))

    def _left_of(self, race: Race, live: Sequence[JobRecord]) -> str:
        jobs = [r for r in live if r.name in race.job_names and not self._is_ending(r)]
        if jobs:
            return f"{len(jobs)} jobs are still there"
        return "; ".join(self._still_to_come(race))

    def _is_ending(self, record: JobRecord) -> bool:
        """Return whether a job completes for good: once cancelled, Slurm does not requeue it."""
        return record.state is JobState.COMPLETING and record.cancel_id in self.cancelled

    def _still_to_come(self, race: Race) -> list[str]:
        """Say which unconfirmed submissions are so young that Slurm may yet take them."""
        files = read_state_files(self.transport.read_tree(race.directory, STATE_FILES))
        now_s = time.time()
        ages_s = {n: unconfirmed_for_s(files, n, now_s) for n in unconfirmed(race, files)}
        return [
            f"job {number} was sent {round(age_s)} s ago, no answer was heard, and it may still"
            " appear"
            for number, age_s in ages_s.items()
            if race.name_of(number) not in self.appeared and age_s < confirmation_limit_s(race)
        ]


def cancel_leftovers(snapshot: RaceSnapshot, transport: Transport) -> None:
    """Cancel what a decided or stopped race still has in the queue, duplicates of any name too."""
    cancel_ids(leftover_jobs(snapshot), transport)


def leftover_jobs(snapshot: RaceSnapshot) -> tuple[int, ...]:
    """Return the ids of queued jobs that a decided or stopped race has no use for."""
    status = snapshot.status
    if not (status.claim or status.state.is_over or snapshot.files.stopped):
        return ()
    live = live_records(snapshot)
    if status.tasks and not snapshot.files.stopped and any(not r.state.is_pending for r in live):
        return ()  # these workers are about to end, and cancel what waits
    return tuple(sorted({record.cancel_id for record in live} - _in_use(snapshot)))


def _in_use(snapshot: RaceSnapshot) -> set[int]:
    """Return the ids of the winner and, while a chain goes on, of its next segment's jobs."""
    status = snapshot.status
    if snapshot.files.stopped:
        return set()
    ids = set()
    if not status.state.is_over:
        ids = {record.job_id for record in snapshot.records if record.name == status.race.next_name}
        # Any other was sent for an earlier segment.
        ids = ids & {*snapshot.files.next_job_ids} or ids
        ids -= without_segment(status.race, snapshot.files)
    # A lost winner that Slurm put back into the queue would start for nothing.
    if status.claim and status.state is not RaceState.LOST:
        ids.add(status.claim.job_id)
    return ids


def live_records(snapshot: RaceSnapshot) -> tuple[JobRecord, ...]:
    """Return the records of the race's jobs that the controller has not ended."""
    return tuple(record for record in snapshot.records if is_active(record))


def cancel_ids(ids: Sequence[int], transport: Transport) -> bool:
    """Cancel jobs by id, and return whether Slurm took it; ended or unknown ones do no harm."""
    if not ids:
        return True
    arguments = " ".join(map(str, ids))
    return transport.run(f"scancel -Q {arguments}", timeout_s=_SCANCEL_TIMEOUT_S).returncode == 0


def cancel_waiting_ids(ids: Sequence[int], transport: Transport) -> None:
    """Cancel those of these jobs that still wait; of an array, none that runs."""
    if ids:
        arguments = " ".join(map(str, ids))
        transport.run(f"scancel -Q -t PENDING {arguments}", timeout_s=_SCANCEL_TIMEOUT_S)


def cancel_late_jobs(
    decided: Sequence[Race], queue: Sequence[JobRecord] | None, transport: Transport
) -> tuple[int, ...]:
    """Cancel jobs of decided races that appeared since: submissions that were late."""
    names = {name for race in decided for name in race.job_names}
    late = sorted({r.cancel_id for r in queue or () if r.name in names and is_active(r)})
    cancel_ids(late, transport)
    return tuple(late)


def _live_jobs(races: Sequence[Race], transport: Transport) -> tuple[JobRecord, ...] | None:
    """Return the jobs of races that have not ended; None for no answer.

    One that is COMPLETING is among them: Slurm may be requeueing it. All jobs of the user are asked
    for, since a job that its user renamed is not found by its name.
    """
    sentinel = new_sentinel()
    completed = transport.run(squeue_own_script(sentinel), timeout_s=30)
    records = parse_squeue_own(completed.stdout, sentinel)
    if records is None:
        return None
    names = frozenset(name for race in races for name in race.job_names)
    return tuple(r for r in records if is_live(r.state) and r.name in names)
