"""What is true of a race, from its marks and from what Slurm says. Pure.

The order of belief is that of the design: the race directory, the queue, `scontrol show job`,
accounting. Absence is never failure and never success: FAILED needs a terminal record or the
winner's own word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import (
    NEXT,
    Claim,
    Ended,
    Entry,
    JobStatus,
    Marks,
    Race,
    RaceState,
    RaceStatus,
)
from rv.race.chain import between, deciding, next_job, next_record, segment_end

_CLAIMING_S: Final = 30.0
"""How long after its start a job may claim: the node check takes up to 20 s."""

_OUT_OF_TIME: Final = "TIME"

STAGED_GRACE_S: Final = 300.0
"""How long a race may sit without any known job before it counts as never submitted."""

_RACE_STATE: Final[Mapping[JobState, RaceState]] = {
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
_BY_SLURM: Final = frozenset(
    {
        RaceState.CANCELLED,
        RaceState.TIMEOUT,
        RaceState.OUT_OF_MEMORY,
        RaceState.PREEMPTED,
        RaceState.DEADLINE,
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What Slurm said: every record of the race's jobs, live ones first, at `now` (epoch).

    `is_whole`: the queue answered just now, so that what is not in it has left it.
    """

    records: Sequence[JobRecord]
    now: float
    is_whole: bool = False


def resolve(race: Race, marks: Marks, evidence: Evidence) -> RaceStatus:
    """Decide the state of a race."""
    jobs = tuple(_job(race, entry, marks, evidence) for entry in race.entries)
    if race.chain and (after := next_job(race, marks, evidence.records)):
        jobs = (*jobs, after)
    warnings = tuple(f"{node}: {text}" for node, text in (*marks.declined, *marks.warnings))
    if marks.claim is None:
        state, why = _unclaimed(race, marks, jobs, evidence)
        return RaceStatus(race=race, state=state, jobs=jobs, why=why, warnings=warnings)
    state, code, why = _claimed(race, marks, marks.claim, evidence)
    ended = _ending(marks.claim, marks.ended)
    return RaceStatus(
        race=race,
        state=state,
        jobs=jobs,
        claim=marks.claim,
        exit_code=code,
        started_at=_began(marks.claim, marks) or None,
        ended_at=ended.ended_at if ended else None,
        why=why,
        warnings=warnings,
        segments=marks.segments,
    )


def _began(claim: Claim, marks: Marks) -> float:
    """When the command first started: of a chain, its first segment."""
    first = next((one.claim for one in marks.segments if one.number == 1), claim)
    return first.started_at


def unaccounted(race: Race, marks: Marks, queue: Sequence[JobRecord]) -> tuple[int, ...]:
    """Number the submissions whose job should exist, is not in the queue, and still matters."""
    ended = _ending(marks.claim, marks.ended) if marks.claim else None
    if ended and not ended.signal:  # only Slurm knows why it sent a signal
        return ()
    seen = {record.name for record in queue}
    # Without any id the submitter may have died inside sbatch: every name is asked for.
    known = [number for number, _ in marks.job_ids] or [entry.number for entry in race.entries]
    wanted = deciding(race, marks.claim, marks) if marks.claim else known
    return tuple(number for number in wanted if (name := race.name_of(number)) and name not in seen)


def _ending(claim: Claim, ended: Ended | None) -> Ended | None:
    """The winner's own last word; another instance's does not count."""
    return ended if ended and ended.owner == claim.owner else None


def _of(records: Sequence[JobRecord], name: str, job_id: int = 0) -> JobRecord | None:
    """The record of a job: by name always, by id where known, a live one before others."""
    mine = [r for r in records if r.name == name and (job_id == 0 or r.job_id == job_id)]
    living = [r for r in mine if is_live(r.state)]
    return next(iter(living or mine), None)


def _job(race: Race, entry: Entry, marks: Marks, evidence: Evidence) -> JobStatus:
    claim = marks.claim
    is_winner = claim and claim.submission == entry.number and claim.job_name in ("", entry.name)
    winner_id = claim.job_id if claim and is_winner else 0
    record = _of(evidence.records, entry.name, winner_id)
    ids = dict(marks.job_ids).get(entry.number, ())
    state = record.state if record else JobState.UNKNOWN
    reason = record.reason if record else ""
    if record is None and claim and ids and evidence.is_whole:
        state = _left_behind(claim, marks.ended, is_winner=bool(winner_id))
    elif record is None and entry.number in dict(marks.refused):
        state, reason = JobState.LAUNCH_FAILED, dict(marks.refused)[entry.number]
    elif entry.number in dict(marks.exhausted):
        # Its own last word, before the queue has noticed.
        state, reason = JobState.COMPLETED, dict(marks.exhausted)[entry.number]
    return JobStatus(
        number=entry.number,
        name=entry.name,
        strategy=race.strategy_of(entry.number, claim),
        job_id=record.job_id if record else (ids[-1] if ids else 0),
        state=state,
        reason=reason,
        nodes=record.nodes if record else "",
    )


def _left_behind(claim: Claim, ended: Ended | None, *, is_winner: bool) -> JobState:
    """A decided race's job that is in the queue no more: what its own last word makes of it."""
    if not is_winner:
        return JobState.ENDED
    if (own := _ending(claim, ended)) is None:
        return JobState.UNKNOWN
    return JobState.FAILED if own.code else JobState.COMPLETED


def _claimed(
    race: Race, marks: Marks, claim: Claim, evidence: Evidence
) -> tuple[RaceState, int | None, str]:
    entry = race.entry(claim.submission)
    name = claim.job_name or race.name_of(claim.submission)
    record = _of(evidence.records, name, claim.job_id)
    ended = _ending(claim, marks.ended)
    if ended is not None:
        limit = entry.walltime.total_seconds() if entry else 0.0
        return _by_own_word(marks, claim, ended, record, limit)
    if race.chain and (waits := between(race, marks, claim, record, evidence.records)):
        return RaceState.PENDING, None, waits
    if race.chain and segment_end(marks, claim):
        return _broken_off(race, marks, claim, record, evidence)
    if marks.lost:
        return RaceState.LOST, None, marks.lost
    if record is None or record.state is JobState.UNKNOWN:
        return _vanished(race, marks, claim, evidence.now)
    if record.state.is_terminal:
        return _by_record(claim, record)
    # A queue row may be older than the claim, so that "pending" alone proves nothing.
    if record.restarts > claim.restart:
        where = f"Slurm requeued job {claim.job_id} after its claim on {claim.nodes}"
        return RaceState.LOST, None, where
    return RaceState.RUNNING, None, ""


def _broken_off(
    race: Race, marks: Marks, claim: Claim, own: JobRecord | None, evidence: Evidence
) -> tuple[RaceState, int | None, str]:
    """A chain whose segment ended well and whose next one does not come."""
    after = next_record(race, [r for r in evidence.records if r.job_id != claim.job_id])
    if after is not None and after.state.is_terminal:
        state = _RACE_STATE.get(after.state, RaceState.FAILED)
        why = f"job {after.job_id} of segment {claim.segment + 1} ended before it began"
        return (RaceState.LOST if state is RaceState.COMPLETED else state), None, why
    if own is not None and own.state in _RACE_STATE and own.state is not JobState.COMPLETED:
        return _by_record(claim, own)
    return _vanished(race, marks, claim, evidence.now)


def _by_own_word(
    marks: Marks, claim: Claim, ended: Ended, record: JobRecord | None, limit: float
) -> tuple[RaceState, int, str]:
    """The exit file, and Slurm's word for why where a signal ended the command.

    While the job is still COMPLETING Slurm has no such word: `limit`, its walltime in seconds,
    then tells a time-out.
    """
    by_slurm = _RACE_STATE.get(record.state) if record else None
    away = marks.lost
    if record and by_slurm is RaceState.LOST:
        away = away or f"Slurm says {record.state}"
    note = f"the node was out of touch meanwhile: {away}" if away else ""
    if ended.code == 0 and not ended.signal:
        return RaceState.COMPLETED, 0, note
    if ended.signal == _OUT_OF_TIME:
        return RaceState.TIMEOUT, ended.code, ended.why
    if by_slurm in _BY_SLURM:
        return by_slurm, ended.code, f"Slurm says {by_slurm}"
    if ended.signal and 0 < limit <= ended.ended_at - claim.started_at + _CLAIMING_S:
        return RaceState.TIMEOUT, ended.code, "Slurm's SIGTERM came at the time limit"
    if ended.signal:
        return RaceState.CANCELLED, ended.code, "the job was ended by Slurm (SIGTERM)"
    return RaceState.FAILED, ended.code, note or f"the command ended with code {ended.code}"


def _by_record(claim: Claim, record: JobRecord) -> tuple[RaceState, int | None, str]:
    """Slurm's terminal record where the winner left no word of its own."""
    state = _RACE_STATE.get(record.state, RaceState.FAILED)
    code = 128 + record.signal if record.signal else record.exit_code
    if state is RaceState.COMPLETED:
        return state, 0, "no exit file; Slurm says COMPLETED"
    if state is RaceState.LOST:
        return state, None, f"Slurm says {record.state} for job {claim.job_id} on {claim.nodes}"
    return state, code if code else None, f"Slurm says {record.state}"


def _vanished(
    race: Race, marks: Marks, claim: Claim, now: float
) -> tuple[RaceState, int | None, str]:
    absent = dict(marks.absent_since)
    since = min((at for n, at in absent.items() if n in (claim.submission, NEXT)), default=None)
    if since is not None and now - since > race.min_job_age.total_seconds():
        return (
            RaceState.ENDED,
            None,
            (
                f"job {claim.job_id} started on {claim.nodes}, left no exit file, and Slurm has"
                f" not known it for {round(now - since)} s: cause unknown"
            ),
        )
    return RaceState.UNKNOWN, None, f"Slurm does not know job {claim.job_id} now"


def _unclaimed(
    race: Race, marks: Marks, jobs: Sequence[JobStatus], evidence: Evidence
) -> tuple[RaceState, str]:
    if any(is_live(job.state) for job in jobs):
        stopping = "stopped; its jobs are being cancelled"
        return RaceState.PENDING, stopping if marks.stopped else _pending_reason(jobs)
    if marks.stopped:
        return RaceState.CANCELLED, "stopped by rv"
    if not marks.job_ids and not any(job.job_id for job in jobs):
        return _never_submitted(race, marks, evidence)
    if marks.again:
        return RaceState.PENDING, "a declined job waits to be submitted again"
    if all(_is_settled(race, job, marks, evidence.now) for job in jobs if _was_tried(job, marks)):
        return _ended_unclaimed(marks, jobs)
    return RaceState.UNKNOWN, "Slurm does not know its jobs now"


def _was_tried(job: JobStatus, marks: Marks) -> bool:
    return bool(job.job_id) or job.number in dict(marks.refused)


def _is_settled(race: Race, job: JobStatus, marks: Marks, now: float) -> bool:
    if job.state.is_terminal or job.number in dict(marks.exhausted):
        return True
    since = dict(marks.absent_since).get(job.number)
    return since is not None and now - since > race.min_job_age.total_seconds()


def _pending_reason(jobs: Sequence[JobStatus]) -> str:
    reasons = {job.reason for job in jobs if job.state.is_pending} - {"", "None"}
    # What rv itself holds back says nothing of the queue.
    return ", ".join(sorted(reasons - {"BeginTime"} or reasons))


def _never_submitted(race: Race, marks: Marks, evidence: Evidence) -> tuple[RaceState, str]:
    if marks.refused and len(marks.refused) == len(race.entries):
        return RaceState.REFUSED, marks.refused[0][1]
    # A submission in doubt is tried again for a while, and only an answer proves absence.
    grace = max(STAGED_GRACE_S, 15 * race.message_timeout.total_seconds())
    if evidence.is_whole and evidence.now - race.submitted_at > grace:
        return RaceState.CANCELLED, "it was never submitted"
    return RaceState.STAGED, "nothing is known to be submitted yet"


def _ended_unclaimed(marks: Marks, jobs: Sequence[JobStatus]) -> tuple[RaceState, str]:
    if marks.exhausted:
        nodes = "; ".join(f"{node}: {why}" for node, why in marks.declined)
        return RaceState.DECLINED, f"every node was found unfit: {nodes}"
    tried = [job for job in jobs if job.state is not JobState.LAUNCH_FAILED]
    states = {
        _RACE_STATE.get(job.state, RaceState.FAILED) for job in tried if job.state.is_terminal
    }
    if len(states) == 1 and (only := states.pop()) in _BY_SLURM:
        return only, "no job started the command"
    if any(job.state.is_terminal for job in tried):
        return RaceState.FAILED, "every job ended without starting the command"
    return RaceState.ENDED, "its jobs are gone and none started the command: cause unknown"
