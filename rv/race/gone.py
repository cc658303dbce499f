"""What is true of a race whose directory was deleted under it: Slurm's word. Pure.

Nothing can be submitted from it any more, and a job that starts without it fails. What runs goes
on: its files may be elsewhere.
"""

from collections.abc import Sequence
from typing import Final

from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import RaceState, StateFiles

WHY: Final = "its race directory was deleted"


def waiting(records: Sequence[JobRecord], files: StateFiles) -> tuple[int, ...]:
    """The ids of its jobs that could only fail."""
    winner = files.claim.job_id if files.claim else 0
    return tuple(r.job_id for r in records if r.state.is_pending and r.job_id != winner)


def outcome(records: Sequence[JobRecord], *, queue_answered: bool) -> tuple[RaceState, str]:
    """Decide the state of a race of which no claim was ever read."""
    if any(is_live(record.state) for record in records):
        return RaceState.PENDING, WHY
    ends = {record.state for record in records if record.state.is_terminal}
    if not ends:
        return (RaceState.ENDED if queue_answered else RaceState.UNKNOWN), WHY
    if ends == {JobState.CANCELLED}:
        return RaceState.CANCELLED, WHY
    if JobState.COMPLETED in ends:  # a job that lost the race ends so too
        return RaceState.ENDED, f"{WHY}; Slurm says COMPLETED"
    return RaceState.FAILED, f"{WHY}; Slurm says {', '.join(sorted(ends))}"
