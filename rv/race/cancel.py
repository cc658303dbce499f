"""Cancel a race's jobs, by name and by id: the whole race, or what is left beside its winner."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rv.cluster.jobs import find_by_name_script, parse_queue
from rv.cluster.probe import new_sentinel
from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import Race, RaceState
from rv.race.marks import leave_mark
from rv.race.observe import Observation
from rv.transport import Transport

_PATIENCE_S: Final = 30.0
_SCANCEL_TIMEOUT_S: Final = 60.0
_ENDING: Final = frozenset({JobState.COMPLETING})


@dataclass(frozen=True, kw_only=True, slots=True)
class Stopped:
    """What stopping a race came to: jobs cancelled, and what could not be confirmed."""

    cancelled: tuple[int, ...]
    unconfirmed: str = ""


def stop(
    race: Race, transport: Transport, *, sleep: Callable[[float], None] = time.sleep
) -> Stopped:
    """Cancel every job of a race, those whose ids were never learned too, and see them ended or
    ending.

    The stop mark comes first: from then on no submitter submits and no job of it starts.
    """
    marked = leave_mark(race, "stop", "stopped by rv\n", transport)
    cancelled: set[int] = set()
    waited = 0.0
    while True:
        live = _live(race, transport)
        if live is not None:
            fresh = sorted({record.job_id for record in live} - cancelled)
            cancel_ids(fresh, transport)
            cancelled.update(fresh)
            if not live:
                return Stopped(
                    cancelled=tuple(sorted(cancelled)),
                    unconfirmed=""
                    if marked
                    else f"no stop mark can be written in {race.directory}",
                )
        if waited >= _PATIENCE_S:
            why = "Slurm does not answer" if live is None else f"{len(live)} jobs are still there"
            return Stopped(cancelled=tuple(sorted(cancelled)), unconfirmed=why)
        pause = 0.2 if waited < 2 else 1.0
        sleep(pause)
        waited += pause


def reap(seen: Observation, transport: Transport) -> tuple[int, ...]:
    """Cancel what a decided or stopped race still has in the queue, duplicates of any name too."""
    status = seen.status
    if not (status.claim or status.state.is_over or seen.marks.stopped):
        return ()
    # A lost winner that Slurm put back into the queue would start for nothing.
    is_kept = status.claim and status.state is not RaceState.LOST and not seen.marks.stopped
    kept = {status.claim.job_id} if status.claim and is_kept else set()
    if not status.state.is_over and not seen.marks.stopped:
        kept |= {r.job_id for r in seen.records if r.name == status.race.next_name}
    left = sorted({record.job_id for record in live_records(seen)} - kept)
    cancel_ids(left, transport)
    return tuple(left)


def live_records(seen: Observation) -> tuple[JobRecord, ...]:
    """The race's jobs that Slurm has not ended, each record of them."""
    return tuple(r for r in seen.records if is_live(r.state))


def cancel_ids(ids: Sequence[int], transport: Transport) -> None:
    """Cancel jobs by id; finished or unknown ones do no harm."""
    if ids:
        transport.run(f"scancel -Q {' '.join(map(str, ids))}", timeout=_SCANCEL_TIMEOUT_S)


def _live(race: Race, transport: Transport) -> tuple[JobRecord, ...] | None:
    sentinel = new_sentinel()
    completed = transport.run(find_by_name_script(race.job_names, sentinel), timeout=30)
    records = parse_queue(completed.stdout, sentinel)
    if records is None:
        return None
    return tuple(r for r in records if is_live(r.state) and r.state not in _ENDING)
