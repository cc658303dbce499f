"""A chain between two of its segments: whether it goes on, and on which jobs that hangs. Pure."""

from collections.abc import Sequence
from typing import Final

from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import NEXT, Claim, Ended, JobStatus, Race, StateFiles

PREEMPTED: Final = "it was preempted, and its next segment is to be sent"


def deciding(race: Race, claim: Claim, files: StateFiles) -> list[int]:
    """Number the jobs that a claimed race hangs on: the winner's, and of a chain the next one's."""
    if race.chain is None:
        return [claim.submission]
    own = NEXT if claim.job_name == race.next_name else claim.submission
    return sorted({own, NEXT} if NEXT in dict(files.job_ids) else {own})


def next_job(race: Race, files: StateFiles, records: Sequence[JobRecord]) -> JobStatus | None:
    """The job of the next segment, or the one that runs it, where there is any."""
    ids = dict(files.job_ids).get(NEXT, ())
    record = next_record(race, records)
    if record is None and not ids:
        return None
    claim = files.claim
    return JobStatus(
        number=NEXT,
        name=race.next_name,
        strategy=race.strategy_of(claim.submission, claim) if claim else "",
        job_id=record.job_id if record else ids[-1],
        state=record.state if record else JobState.UNKNOWN,
        reason=record.reason if record else "",
        nodes=record.nodes if record else "",
    )


def next_record(race: Race, records: Sequence[JobRecord]) -> JobRecord | None:
    """What Slurm says of the job of the next segment: a live one before any that has ended."""
    named = [record for record in records if record.name == race.next_name]
    return next(iter([r for r in named if is_live(r.state)] or named), None)


def segment_end(files: StateFiles, claim: Claim) -> Ended | None:
    """The word of the segment that the claim names, where it is that instance's own."""
    ends = (one.ended for one in files.segments if one.number == claim.segment)
    return next((end for end in ends if end and end.owner == claim.owner), None)


def between(
    race: Race, files: StateFiles, claim: Claim, own: JobRecord | None, records: Sequence[JobRecord]
) -> str:
    """Say what a chain waits for, where its command does not run and will; "" where that is not so.

    `own` is Slurm's record of the job that holds the claim.
    """
    ended = segment_end(files, claim)
    coming = next_record(race, [r for r in records if r.job_id != claim.job_id])
    is_over = ended is not None or own is None or not is_live(own.state)
    if own is not None and is_live(own.state) and own.restarts > claim.restart:
        return _comes(claim.segment + bool(ended), own)
    if is_over and coming is not None and is_live(coming.state):
        return _comes(claim.segment + 1, coming)
    if ended is None:
        return ""
    if NEXT in files.again or (own and is_live(own.state)):
        return f"segment {claim.segment + 1} is starting"
    return PREEMPTED if own and own.state is JobState.PREEMPTED else ""


def _comes(segment: int, job: JobRecord) -> str:
    """A job that has not claimed its segment yet: it may run already, and check its node."""
    if not job.state.is_pending:
        return f"segment {segment} is starting"
    reason = f": {job.reason}" if job.reason not in ("", "None") else ""
    return f"segment {segment} waits{reason}"
