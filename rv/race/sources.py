"""What Slurm said of a race's jobs, and which of several records of a job counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import Claim, Ended, Race, RaceState

ACCOUNTING: Final = "sacct"
NODE_FAILURES: Final = frozenset({JobState.NODE_FAIL, JobState.BOOT_FAIL})
RACE_STATE: Final[Mapping[JobState, RaceState]] = {
    JobState.COMPLETED: RaceState.COMPLETED,
    JobState.CANCELLED: RaceState.CANCELLED,
    JobState.REVOKED: RaceState.CANCELLED,
    JobState.TIMEOUT: RaceState.TIMEOUT,
    JobState.OUT_OF_MEMORY: RaceState.OUT_OF_MEMORY,
    JobState.PREEMPTED: RaceState.PREEMPTED,
    JobState.DEADLINE: RaceState.DEADLINE,
    JobState.NODE_FAIL: RaceState.LOST,
    JobState.BOOT_FAIL: RaceState.LOST,
}
ENDED_BY_SLURM: Final = frozenset(
    {
        RaceState.CANCELLED,
        RaceState.TIMEOUT,
        RaceState.OUT_OF_MEMORY,
        RaceState.PREEMPTED,
        RaceState.DEADLINE,
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """What Slurm said: every record of the race's jobs, live ones first, at `now_s` (epoch).

    `queue_answered`: the queue answered just now, so that what is not in it has left it.
    `forgotten` are the submissions that Slurm took and has lost.
    """

    records: Sequence[JobRecord]
    now_s: float
    queue_answered: bool = False
    forgotten: Sequence[int] = ()


def record_of(records: Sequence[JobRecord], name: str, job_id: int = 0) -> JobRecord | None:
    """Return the best record of a job: active, then ended, then accounting only, then unknown.

    The name must match, and the id where it is given: Slurm gives ids out again. Of two ends the
    one with an exit code is better; squeue has no codes.
    """
    named = [r for r in records if r.name == name and (job_id == 0 or r.job_id == job_id)]
    return min(named, key=_rank, default=None)


def _rank(record: JobRecord) -> int:
    if record.state.is_terminal:
        return 1 if record.exit_code is not None else 2
    if record.state is JobState.UNKNOWN:
        return 4
    return 0 if is_active(record) else 3


def is_active(record: JobRecord) -> bool:
    """Return whether the controller itself has the job: accounting may never hear of an end."""
    return record.source != ACCOUNTING and is_live(record.state)


def own_end(claim: Claim, ended: Ended | None) -> Ended | None:
    """Return an end only where the claim's own instance wrote it."""
    return ended if ended and ended.owner == claim.owner else None


def next_record(race: Race, records: Sequence[JobRecord], but_job_id: int = 0) -> JobRecord | None:
    """Return the record of the job of a chain's next segment: a live one before one that ended."""
    named = [r for r in records if r.name == race.next_name and r.job_id != but_job_id]
    return next(iter([r for r in named if is_live(r.state)] or named), None)
