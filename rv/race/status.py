"""What is true of a race, from its files and from what Slurm says. Pure.

The order of belief is that of the design: the race directory, the queue, `scontrol show job`,
accounting. Absence is never failure and never success: FAILED needs a terminal record or the
winner's own word.
"""

from collections.abc import Sequence
from typing import Final

from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import (
    NEXT,
    Claim,
    Ended,
    Entry,
    JobStatus,
    Race,
    RaceState,
    RaceStatus,
    StateFiles,
)
from rv.race.chain import between, deciding, next_job, next_record, segment_end
from rv.race.gone import outcome
from rv.race.sources import (
    ACCOUNTING,
    BY_SLURM,
    RACE_STATE,
    Sources,
    is_active,
    record_of,
    slurm_says,
)
from rv.race.unconfirmed import unconfirmed
from rv.race.waiting import unclaimed

_CLAIMING_S: Final = 30.0
"""How long after its start a job may claim: the node check takes up to 20 s."""

_OUT_OF_TIME: Final = "TIME"

_LATE_S: Final = 60.0
"""How long a job may be alive in accounting alone: its end comes seconds late, or never."""


def resolve(race: Race, files: StateFiles, sources: Sources) -> RaceStatus:
    """Decide the state of a race."""
    jobs = tuple(_job(race, entry, files, sources) for entry in race.entries)
    if race.chain and (after := next_job(race, files, sources.records)):
        jobs = (*jobs, after)
    warnings = tuple(f"{node}: {text}" for node, text in (*files.declined, *files.warnings))
    if files.claim is None:
        state, why = (
            outcome(sources.records, queue_answered=sources.queue_answered)
            if files.deleted
            else unclaimed(race, files, jobs, sources)
        )
        return RaceStatus(race=race, state=state, jobs=jobs, why=why, warnings=warnings)
    state, code, why = _claimed(race, files, files.claim, sources)
    ended = _ending(files.claim, files.ended)
    return RaceStatus(
        race=race,
        state=state,
        jobs=jobs,
        claim=files.claim,
        exit_code=code,
        started_at=_began(files.claim, files) or None,
        ended_at=ended.ended_at if ended else None,
        why=why,
        warnings=warnings,
        segments=files.segments,
    )


def _began(claim: Claim, files: StateFiles) -> float:
    """When the command first started: of a chain, its first segment."""
    first = next((one.claim for one in files.segments if one.number == 1), claim)
    return first.started_at


def unaccounted(race: Race, files: StateFiles, queue: Sequence[JobRecord]) -> tuple[int, ...]:
    """Number the submissions whose job should exist and matters, and of which the queue does not
    say enough."""
    ended = _ending(files.claim, files.ended) if files.claim else None
    if ended and not ended.signal:  # only Slurm knows why it sent a signal
        return ()
    if files.claim:
        wanted: Sequence[int] = deciding(race, files.claim, files)
    else:
        refused = {number for number, _ in files.refused}
        sent = {number for number, _ in files.sent} - refused
        wanted = sorted(sent | {number for number, _ in files.job_ids})
    return tuple(
        number
        for number in wanted
        if race.name_of(number) and not _is_told(race, files, number, queue, needs_code=not ended)
    )


def is_known(race: Race, files: StateFiles, number: int, records: Sequence[JobRecord]) -> bool:
    """Whether Slurm has a submission's job, or knows how it ended.

    Accounting that calls a job alive proves nothing: it may never have heard of the end.
    """
    record = record_of(records, race.name_of(number), _winning_id(race, files, number))
    return record is not None and (record.source != ACCOUNTING or not is_live(record.state))


def _is_told(
    race: Race, files: StateFiles, number: int, queue: Sequence[JobRecord], *, needs_code: bool
) -> bool:
    """Whether the queue says how it stands with a job; how a winner ended, it does not say."""
    record = record_of(queue, race.name_of(number), _winning_id(race, files, number))
    if record is None or record.state is JobState.UNKNOWN:
        return False
    is_code_missing = record.state is JobState.FAILED and record.exit_code is None
    return not (files.claim and needs_code and is_code_missing)


def _winning_id(race: Race, files: StateFiles, number: int) -> int:
    """The id that the job of a submission must have to count: the winner's, else any."""
    claim = files.claim
    if claim is None or number != claim.submission:
        return 0
    return claim.job_id if claim.job_name in ("", race.name_of(number)) else 0


def _ending(claim: Claim, ended: Ended | None) -> Ended | None:
    """The winner's own last word; another instance's does not count."""
    return ended if ended and ended.owner == claim.owner else None


def _job(race: Race, entry: Entry, files: StateFiles, sources: Sources) -> JobStatus:
    claim = files.claim
    is_winner = claim and claim.submission == entry.number and claim.job_name in ("", entry.name)
    winner_id = claim.job_id if claim and is_winner else 0
    record = record_of(sources.records, entry.name, winner_id)
    ids = dict(files.job_ids).get(entry.number, ())
    if record and not winner_id and is_live(record.state) and not is_active(record):
        record = None  # accounting alone: it has not heard of the end
    state = record.state if record else JobState.UNKNOWN
    reason = record.reason if record else ""
    if record is None and claim and ids and sources.queue_answered:
        state = _left_behind(claim, files.ended, is_winner=bool(winner_id))
    elif record is None and not ids and entry.number in dict(files.refused):
        state, reason = JobState.LAUNCH_FAILED, dict(files.refused)[entry.number]
    elif record is None and entry.number in unconfirmed(race, files):
        reason = "in doubt"
    elif entry.number in dict(files.exhausted):
        # Its own last word, before the queue has noticed.
        state, reason = JobState.COMPLETED, dict(files.exhausted)[entry.number]
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
    race: Race, files: StateFiles, claim: Claim, sources: Sources
) -> tuple[RaceState, int | None, str]:
    entry = race.entry(claim.submission)
    name = claim.job_name or race.name_of(claim.submission)
    record = record_of(sources.records, name, claim.job_id)
    ended = _ending(claim, files.ended)
    if ended is not None:
        if ended.signal and record and not race.chain and record.restarts > claim.restart:
            return _requeued(claim)  # what came with the signal is not the command's end
        limit = entry.walltime.total_seconds() if entry else 0.0
        return _by_own_word(files, claim, ended, record, limit)
    if race.chain and (waits := between(race, files, claim, record, sources.records)):
        return RaceState.PENDING, None, waits
    if race.chain and segment_end(files, claim):
        return _broken_off(race, files, claim, record, sources)
    if files.lost:
        return RaceState.LOST, None, files.lost
    if record is None or record.state is JobState.UNKNOWN:
        return _vanished(race, files, claim, sources.now, record)
    if not is_active(record) and is_live(record.state):
        return _late_accounting(race, files, claim, record, sources.now)
    if record.state.is_terminal:
        return _by_record(claim, record)
    # A queue row may be older than the claim, so that "pending" alone proves nothing.
    if record.restarts > claim.restart:
        return _requeued(claim)
    return RaceState.RUNNING, None, ""


def _requeued(claim: Claim) -> tuple[RaceState, int | None, str]:
    """An ordinary command is not started again: its race is over with its first instance."""
    why = f"Slurm requeued job {claim.job_id} after its claim on {claim.nodes}"
    return RaceState.LOST, None, why


def _broken_off(
    race: Race, files: StateFiles, claim: Claim, own: JobRecord | None, sources: Sources
) -> tuple[RaceState, int | None, str]:
    """A chain whose segment ended well and whose next one does not come."""
    after = next_record(race, [r for r in sources.records if r.job_id != claim.job_id])
    if after is not None and after.state.is_terminal:
        state = RACE_STATE.get(after.state, RaceState.FAILED)
        why = f"job {after.job_id} of segment {claim.segment + 1} ended before it began"
        return (RaceState.LOST if state is RaceState.COMPLETED else state), None, why
    if own is not None and own.state in RACE_STATE and own.state is not JobState.COMPLETED:
        return _by_record(claim, own)
    return _vanished(race, files, claim, sources.now)


def _by_own_word(
    files: StateFiles, claim: Claim, ended: Ended, record: JobRecord | None, limit: float
) -> tuple[RaceState, int, str]:
    """The exit file, and Slurm's word for why where a signal ended the command.

    While the job is still COMPLETING Slurm has no such word: `limit`, its walltime in seconds,
    then tells a time-out.
    """
    by_slurm = RACE_STATE.get(record.state) if record else None
    away = files.lost
    if record and by_slurm is RaceState.LOST:
        away = away or f"Slurm says {record.state}"
    note = f"the node was out of touch meanwhile: {away}" if away else ""
    if ended.code == 0 and not ended.signal:
        return RaceState.COMPLETED, 0, note
    if ended.signal == _OUT_OF_TIME:
        return RaceState.TIMEOUT, ended.code, ended.why
    if by_slurm in BY_SLURM:
        return by_slurm, ended.code, f"Slurm says {by_slurm}"
    if ended.signal and 0 < limit <= ended.ended_at - claim.started_at + _CLAIMING_S:
        return RaceState.TIMEOUT, ended.code, "Slurm's SIGTERM came at the time limit"
    if ended.signal:
        return RaceState.CANCELLED, ended.code, "the job was ended by Slurm (SIGTERM)"
    return RaceState.FAILED, ended.code, note or f"the command ended with code {ended.code}"


def _by_record(claim: Claim, record: JobRecord) -> tuple[RaceState, int | None, str]:
    """Slurm's terminal record where the winner left no word of its own."""
    state = RACE_STATE.get(record.state, RaceState.FAILED)
    code = 128 + record.signal if record.signal else record.exit_code
    if state is RaceState.COMPLETED:
        return state, 0, "no exit file; Slurm says COMPLETED"
    if state is RaceState.LOST:
        return state, None, f"Slurm says {record.state} for job {claim.job_id} on {claim.nodes}"
    return state, code if code else None, slurm_says(record)


def _vanished(
    race: Race, files: StateFiles, claim: Claim, now: float, record: JobRecord | None = None
) -> tuple[RaceState, int | None, str]:
    since = _absent_for(files, claim, now)
    if since > race.min_job_age.total_seconds():
        return (
            RaceState.ENDED,
            None,
            (
                f"job {claim.job_id} started on {claim.nodes}, left no exit file, and Slurm has"
                f" not known it for {round(since)} s: cause unknown"
            ),
        )
    if record is not None:
        return RaceState.UNKNOWN, None, f"Slurm calls job {claim.job_id} {record.reason or '?'}"
    return RaceState.UNKNOWN, None, f"Slurm does not know job {claim.job_id} now"


def _late_accounting(
    race: Race, files: StateFiles, claim: Claim, record: JobRecord, now: float
) -> tuple[RaceState, int | None, str]:
    """The controller has forgotten the job, and the database has not heard of its end yet."""
    if _absent_for(files, claim, now) > max(_LATE_S, race.min_job_age.total_seconds()):
        return _vanished(race, files, claim, now)
    return RaceState.RUNNING, None, f"accounting calls job {claim.job_id} {record.state}"


def _absent_for(files: StateFiles, claim: Claim, now: float) -> float:
    """Seconds for which a healthy controller has not known the winner."""
    absent = dict(files.absent_since)
    moments = [at for n, at in absent.items() if n in (claim.submission, NEXT)]
    return now - min(moments, default=now)


def awaits_code(status: RaceStatus, records: Sequence[JobRecord]) -> bool:
    """Whether a controller calls the winner FAILED, and the code is still to come."""
    claim = status.claim
    if claim is None or status.state is not RaceState.FAILED or status.exit_code is not None:
        return False
    mine = [r for r in records if r.job_id == claim.job_id]
    return all(r.source != ACCOUNTING for r in mine)
