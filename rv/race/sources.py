"""What Slurm said of a race's jobs: which record counts, and what is unconfirmed or forgotten.

A submission is unconfirmed that was sent but not acknowledged. The state file `jobs/N.sent` is
written before sbatch is called, so that a client that dies inside sbatch leaves a trace. Any rv
command resolves it: it adopts a job of that name, and where there is none it sends the submission
again, once Slurm must have dealt with the first.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rv.dataclass import dataclass
from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import NEXT, Claim, Ended, Race, RaceState, StateFiles

ACCOUNTING: Final = "sacct"
MAY_GO_ON: Final = frozenset({JobState.COMPLETED, JobState.FAILED})
"""Ends of a chain's job that another segment may follow, by what the job wrote."""

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
KEPT_S: Final = 86400.0
"""How long an unconfirmed submission is worth sending again: after a day nobody waits for it."""

_MOST_TIMES: Final = 5


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


def without_replaced(
    race: Race, files: StateFiles, records: Iterable[JobRecord]
) -> tuple[JobRecord, ...]:
    """Return the records, but no end of a job in whose place another of its name was sent since.

    It left its node, or ran an earlier segment of a chain, and says nothing of the job after it.
    The workers of a sweep, each with an id of its own, stand for one another.
    """
    replaced = {
        (race.name_of(number), job_id)
        for number, ids in (() if race.sweep else files.job_ids)
        for job_id in {*ids} - {*ids[-1:]}
    }
    return tuple(
        record
        for record in records
        if not (record.state.is_terminal and (record.name, record.job_id) in replaced)
    )


def without_earlier(
    race: Race, files: StateFiles, records: Iterable[JobRecord]
) -> tuple[JobRecord, ...]:
    """Return the records, but no end of a job that was sent for an earlier segment of a chain.

    One of them that did not end may yet run the next one, unless it lost its segment to a job with
    another layout.
    """
    earlier = _earlier(files)
    lost = without_segment(race, files)
    counted = without_replaced(race, files, records)
    return tuple(
        r
        for r in counted
        if not (r.state.is_terminal and r.job_id in earlier) and r.job_id not in lost
    )


def _earlier(files: StateFiles) -> set[int]:
    """Return the jobs that were sent for a segment that has begun."""
    now = files.claim.segment if files.claim else 0
    return {job for one in files.segments if one.number < now for job in one.next_job_ids}


def without_segment(race: Race, files: StateFiles) -> set[int]:
    """Return the jobs of a chain with several layouts that lost their segment and run no other."""
    if race.request is None or not race.request.switch:
        return set()
    ran = {one.claim.job_id for one in files.segments}
    now = files.claim.job_id if files.claim else 0
    sent = {job for one in files.segments if one.claim.job_id == now for job in one.next_job_ids}
    return _earlier(files) - ran - sent


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


def records_of(job_ids: Sequence[int], records: Iterable[JobRecord]) -> list[JobRecord]:
    """Return the records of these jobs, in this order."""
    by_id = {record.job_id: record for record in records}
    return [by_id[job_id] for job_id in job_ids if job_id in by_id]


def next_record(race: Race, records: Sequence[JobRecord]) -> JobRecord | None:
    """Return the record of the job of a chain's next segment.

    Where there are several, one that has begun comes before one that waits, and that before one
    that ended; else the first of the records.
    """
    named = [record for record in records if record.name == race.next_name]
    return min(named, key=lambda r: (not is_live(r.state), r.state.is_pending), default=None)


def unconfirmed(
    race: Race, files: StateFiles, records: Sequence[JobRecord] = ()
) -> tuple[int, ...]:
    """Return submissions that were sent but not acknowledged, and that no record is of.

    The next segment of a chain never counts: the chain itself knows whether one comes.
    """
    acknowledged = {number for number, _ in (*files.job_ids, *files.refused, *files.exhausted)}
    acknowledged |= {*files.again, NEXT}
    if files.claim:
        acknowledged.add(files.claim.submission)
    recorded = {record.name for record in records} | {""}
    sent = (number for number, _ in files.sent if number not in acknowledged)
    return tuple(number for number in sent if race.name_of(number) not in recorded)


def confirmation_limit_s(race: Race) -> float:
    """Return the seconds by which Slurm has dealt with a message: twice its MessageTimeout."""
    return 2 * race.message_timeout.total_seconds()


def unconfirmed_for_s(files: StateFiles, number: int, now_s: float) -> float:
    """Return the seconds since a submission was sent, or since it was first looked for in vain.

    The submitting machine's clock may be ahead of this one: then only the second is known.
    """
    moments = (dict(files.sent).get(number), dict(files.absent_since).get(number))
    return next((now_s - at for at in moments if at is not None and at <= now_s), 0.0)


def to_resend(
    race: Race, files: StateFiles, records: Sequence[JobRecord], now_s: float
) -> tuple[int, ...]:
    """Return the unconfirmed submissions that Slurm does not have and that are to be sent again."""
    return tuple(
        number
        for number in unconfirmed(race, files, records)
        if confirmation_limit_s(race) < unconfirmed_for_s(files, number, now_s) < KEPT_S
    )


def forgotten(
    race: Race,
    files: StateFiles,
    records: Sequence[JobRecord],
    now_s: float,
    *,
    accounting_answered: bool,
    recycled: frozenset[int] = frozenset(),
) -> tuple[int, ...]:
    """Return submissions that Slurm took, never ended, and does not know any more.

    A controller that dies soon after taking a job has not saved it, and gives its id to another.
    Proof is an id that another job bears now (`recycled`), or accounting that answers and knows of
    no end. Of a job that was cancelled while Slurm requeued it, accounting says REQUEUED for ever.
    """
    if files.claim or files.stopped:
        return ()
    rejected = {number for number, _ in files.exhausted} | {*files.again, NEXT}
    lost = _lost_if_missing(files, records, recycled, accounting_answered=accounting_answered)
    return tuple(
        number
        for number, ids in files.job_ids
        if number in lost - rejected
        and len(ids) < _MOST_TIMES
        and _is_missing(race, files, records, number, now_s)
    )


def _lost_if_missing(
    files: StateFiles,
    records: Sequence[JobRecord],
    recycled: frozenset[int],
    *,
    accounting_answered: bool,
) -> set[int]:
    """Return the submissions of which Slurm's silence is proof."""
    requeued = {record.job_id for record in records if record.state is JobState.REQUEUED}
    return {
        number
        for number, ids in files.job_ids
        if not recycled.isdisjoint(ids) or (accounting_answered and requeued.isdisjoint(ids))
    }


def _is_missing(
    race: Race, files: StateFiles, records: Sequence[JobRecord], number: int, now_s: float
) -> bool:
    """Return whether a job has been absent for long, with neither an end nor a place in Slurm."""
    name = race.name_of(number)
    absent_s = now_s - dict(files.absent_since).get(number, now_s)
    if not name or absent_s <= confirmation_limit_s(race):
        return False
    counted = without_replaced(race, files, records)
    return not any(_proves_existence(record) for record in counted if record.name == name)


def _proves_existence(record: JobRecord) -> bool:
    """Return whether a job ended, or is alive by another source than accounting, which lags."""
    return record.state.is_terminal or (is_live(record.state) and record.source != ACCOUNTING)


def unconfirmed_text(files: StateFiles, numbers: Sequence[int], now_s: float) -> str:
    """Say which submissions are unconfirmed and since when, "" for none."""
    return "; ".join(
        f"job {number} is unconfirmed: it was sent {round(unconfirmed_for_s(files, number, now_s))}"
        " s ago and no answer was heard"
        for number in numbers
    )
