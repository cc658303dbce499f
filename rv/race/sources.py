"""What Slurm said of a race's jobs, and which of its words counts. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import RaceState

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
BY_SLURM: Final = frozenset(
    {
        RaceState.CANCELLED,
        RaceState.TIMEOUT,
        RaceState.OUT_OF_MEMORY,
        RaceState.PREEMPTED,
        RaceState.DEADLINE,
    }
)
ACCOUNTING: Final = "sacct"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """What Slurm said: every record of the race's jobs, live ones first, at `now` (epoch).

    `queue_answered`: the queue answered just now, so that what is not in it has left it.
    `forgotten` are the submissions that Slurm took and has lost.
    """

    records: Sequence[JobRecord]
    now: float
    queue_answered: bool = False
    forgotten: Sequence[int] = ()


def record_of(records: Sequence[JobRecord], name: str, job_id: int = 0) -> JobRecord | None:
    """The record of a job: by name always, by id where known, for ids are given out again.

    What the controller calls alive comes first; then an end, with its code before without (squeue
    has no codes); then what accounting alone calls alive, and words that nobody knows.
    """
    mine = [r for r in records if r.name == name and (job_id == 0 or r.job_id == job_id)]
    return min(mine, key=_doubtfulness, default=None)


def _doubtfulness(record: JobRecord) -> int:
    if record.state.is_terminal:
        return 1 if record.exit_code is not None else 2
    if record.state is JobState.UNKNOWN:
        return 4
    return 0 if is_active(record) else 3


def is_active(record: JobRecord) -> bool:
    """Whether the controller itself has the job: accounting may never hear of an end."""
    return record.source != ACCOUNTING and is_live(record.state)


def slurm_says(record: JobRecord) -> str:
    """Slurm's word for a job's end, with its author where there is one."""
    return f"Slurm says {record.state}{f' {record.reason}' if record.reason[:3] == 'by ' else ''}"
