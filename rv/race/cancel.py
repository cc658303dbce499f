"""Cancel a race's jobs, by name and by id: the whole race, or what is left beside its winner."""

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import Race, RaceState
from rv.race.directory import STATE_FILES, read_state_files, write_state_file
from rv.race.observe import RaceSnapshot
from rv.race.sources import is_active
from rv.race.unconfirmed import age, patience, unconfirmed
from rv.slurm.jobs import find_by_name_script, parse_queue
from rv.slurm.probe import new_sentinel
from rv.transport import Transport

_PATIENCE_S: Final = 30.0
_SCANCEL_TIMEOUT_S: Final = 60.0
_ENDING: Final = frozenset({JobState.COMPLETING})


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelResult:
    """What stopping a race came to: jobs cancelled, and what could not be confirmed."""

    race: Race
    cancelled: tuple[int, ...]
    unconfirmed: str = ""


def stop(
    races: Sequence[Race],
    transport: Transport,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[CancelResult, ...]:
    """Cancel every job of races, those whose ids were never learned too, and see them ended or
    ending. Slurm is asked about all of them at once.

    The stop files come first: from then on no submitter submits and no job of them starts. A
    submission that was just sent, and of which nobody heard, is waited for as well.
    """
    unmarked = {
        race.race_id
        for race in races
        if not write_state_file(race, "stop", "stopped by rv\n", transport)
    }
    cancelled: set[int] = set()
    seen: set[str] = set()
    owner = {name: race.race_id for race in races for name in race.job_names}
    ids: dict[str, set[int]] = {race.race_id: set() for race in races}
    begun = clock()
    while True:
        live = _live(races, transport)
        fresh = sorted({record.job_id for record in live or ()} - cancelled)
        if cancel_ids(fresh, transport):
            cancelled.update(fresh)
        for record in live or ():
            ids[owner[record.name]].add(record.job_id)
            seen.add(record.name)
        left = _left(races, live, seen, transport)
        waited = clock() - begun
        if not any(left.values()) or waited >= _PATIENCE_S:
            break
        sleep(0.2 if waited < 2 else 1.0)
    return tuple(_stopped(race, ids, left, unmarked) for race in races)


def _stopped(
    race: Race, ids: Mapping[str, set[int]], left: Mapping[str, str], unmarked: Container[str]
) -> CancelResult:
    no_mark = f"no stop mark can be written in {race.directory}" if race.race_id in unmarked else ""
    return CancelResult(
        race=race,
        cancelled=tuple(sorted(ids[race.race_id])),
        unconfirmed=left[race.race_id] or no_mark,
    )


def _left(
    races: Sequence[Race],
    live: Sequence[JobRecord] | None,
    seen: Container[str],
    transport: Transport,
) -> dict[str, str]:
    """Say for each race what is not known to be gone, "" where nothing is left."""
    if live is None:
        return {race.race_id: "Slurm does not answer" for race in races}
    left = {}
    for race in races:
        jobs = [record for record in live if record.name in race.job_names]
        unsure = _still_to_come(race, seen, transport) if not jobs else []
        if jobs:
            left[race.race_id] = f"{len(jobs)} jobs are still there"
        else:
            left[race.race_id] = "; ".join(unsure)
    return left


def _still_to_come(race: Race, seen: Container[str], transport: Transport) -> list[str]:
    """Say which submissions without an answer are so young that Slurm may yet take them.

    Not those that have come: their names were `seen`.
    """
    files = read_state_files(transport.read_tree(race.directory, STATE_FILES))
    now = time.time()
    return [
        f"job {number} was sent {round(age(files, number, now))} s ago, no answer was heard, and it"
        " may still appear"
        for number in unconfirmed(race, files)
        if race.name_of(number) not in seen and age(files, number, now) < patience(race)
    ]


def cancel_leftovers(snapshot: RaceSnapshot, transport: Transport) -> None:
    """Cancel what a decided or stopped race still has in the queue, duplicates of any name too."""
    cancel_ids(leftover_jobs(snapshot), transport)


def leftover_jobs(snapshot: RaceSnapshot) -> tuple[int, ...]:
    """The ids of the jobs in the queue that a decided or stopped race has no use for."""
    status = snapshot.status
    if not (status.claim or status.state.is_over or snapshot.files.stopped):
        return ()
    # A lost winner that Slurm put back into the queue would start for nothing.
    is_kept = status.claim and status.state is not RaceState.LOST and not snapshot.files.stopped
    kept = {status.claim.job_id} if status.claim and is_kept else set()
    if not status.state.is_over and not snapshot.files.stopped:
        kept |= {r.job_id for r in snapshot.records if r.name == status.race.next_name}
    return tuple(sorted({record.job_id for record in live_records(snapshot)} - kept))


def live_records(snapshot: RaceSnapshot) -> tuple[JobRecord, ...]:
    """The race's jobs that the controller has not ended, each record of them."""
    return tuple(r for r in snapshot.records if is_active(r))


def cancel_ids(ids: Sequence[int], transport: Transport) -> bool:
    """Cancel jobs by id, and say whether Slurm took it; finished or unknown ones do no harm."""
    if not ids:
        return True
    words = " ".join(map(str, ids))
    return transport.run(f"scancel -Q {words}", timeout=_SCANCEL_TIMEOUT_S).returncode == 0


def cancel_late_jobs(
    settled: Sequence[Race], queue: Sequence[JobRecord] | None, transport: Transport
) -> tuple[int, ...]:
    """Cancel jobs of settled races that have come up since: a submission that was late."""
    names = {name for race in settled for name in race.job_names}
    late = sorted({r.job_id for r in queue or () if r.name in names and is_active(r)})
    cancel_ids(late, transport)
    return tuple(late)


def _live(races: Sequence[Race], transport: Transport) -> tuple[JobRecord, ...] | None:
    names = [name for race in races for name in race.job_names]
    sentinel = new_sentinel()
    completed = transport.run(find_by_name_script(names, sentinel), timeout=30)
    records = parse_queue(completed.stdout, sentinel)
    if records is None:
        return None
    known = frozenset(names)
    return tuple(
        r for r in records if r.name in known and is_live(r.state) and r.state not in _ENDING
    )
