"""The status of a race: its state by the rules of `rv.race.rules`, and that of each of its jobs."""

from collections.abc import Sequence

from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import NEXT, Claim, Entry, JobStatus, Race, RaceState, RaceStatus, StateFiles
from rv.models.sweep import count
from rv.race.facts import Facts
from rv.race.rules import decide
from rv.race.sources import (
    ACCOUNTING,
    Sources,
    is_active,
    next_record,
    own_end,
    record_of,
    unconfirmed,
    without_replaced,
    without_segment,
)
from rv.race.sweep import with_tasks


def resolve(race: Race, files: StateFiles, sources: Sources) -> RaceStatus:
    """Decide the state of a race, and list its jobs; of a sweep its tasks decide first."""
    status = _by_jobs(race, files, sources)
    return with_tasks(status, race.sweep, files) if race.sweep else status


def _by_jobs(race: Race, files: StateFiles, sources: Sources) -> RaceStatus:
    jobs = [_job(race, entry, files, sources) for entry in race.entries]
    if race.chain and (following := _next_job(race, files, sources.records)):
        jobs.append(following)
    decision = decide(Facts(race=race, files=files, sources=sources, jobs=jobs))
    claim = files.claim
    ended = own_end(claim, files.ended) if claim else None
    return RaceStatus(
        race=race,
        state=decision.state,
        jobs=tuple(jobs),
        claim=claim,
        exit_code=decision.exit_code,
        started_at=(_first_start(claim, files) or None) if claim else None,
        ended_at=ended.ended_at if ended else None,
        why=decision.why,
        warnings=tuple(f"{node}: {text}" for node, text in (*files.declined, *files.warnings)),
        segments=files.segments if claim else (),
    )


def _first_start(claim: Claim, files: StateFiles) -> float:
    """Return when the command first started: of a chain, its first segment."""
    first = next((one.claim for one in files.segments if one.number == 1), claim)
    return first.started_at


def _job(race: Race, entry: Entry, files: StateFiles, sources: Sources) -> JobStatus:
    """Return the status of one submission's job."""
    record = _usable_record(race, entry, files, sources)
    ids = dict(files.job_ids).get(entry.number, ())
    state, reason = _job_state(race, entry, files, sources, record)
    return JobStatus(
        number=entry.number,
        name=entry.name,
        strategy=race.strategy_of(entry.number, files.claim),
        job_id=record.job_id if record else next(reversed(ids), 0),
        state=state,
        reason=reason,
        nodes=record.nodes if record else "",
        planned_wait=record.planned_wait if record else None,
    )


def _usable_record(
    race: Race, entry: Entry, files: StateFiles, sources: Sources
) -> JobRecord | None:
    """Return Slurm's record of a job; of no loser that accounting alone calls alive.

    Accounting may not have heard of its end.
    """
    record = _record(race, files, entry.number, sources.records)
    is_winner = _winner_id(race, files, entry.number) != 0
    if record is None or is_winner or is_active(record) or not is_live(record.state):
        return record
    return None


def _job_state(
    race: Race, entry: Entry, files: StateFiles, sources: Sources, record: JobRecord | None
) -> tuple[JobState, str]:
    """Return the state and the reason of a job: by what its race says first, then by its record."""
    exhausted = dict(files.exhausted)
    if record is None:
        told = _state_without_record(race, entry.number, files, sources)
        if told is not None:
            return told
    elif record.state.is_terminal or (race.sweep and is_active(record)):
        return record.state, record.reason  # of a sweep one worker has no node left; others work
    if entry.number in exhausted:  # before Slurm has noticed
        return JobState.COMPLETED, exhausted[entry.number]
    return (record.state, record.reason) if record else (JobState.UNKNOWN, "")


def _state_without_record(
    race: Race, number: int, files: StateFiles, sources: Sources
) -> tuple[JobState, str] | None:
    """Return what the race directory says of a job without a record; None where it says nothing."""
    ids, refused = dict(files.job_ids).get(number, ()), dict(files.refused)
    if files.claim and ids and sources.queue_answered:
        return _state_after_claim(race, files.claim, files, number), ""
    if number in refused and not ids:
        return JobState.LAUNCH_FAILED, refused[number]
    if number in unconfirmed(race, files):
        return JobState.UNKNOWN, "unconfirmed"
    return None


def _state_after_claim(race: Race, claim: Claim, files: StateFiles, number: int) -> JobState:
    """Return the state of a claimed race's job that has left the queue."""
    if not _winner_id(race, files, number):
        return JobState.ENDED
    ended = own_end(claim, files.ended)
    if ended is None:
        return JobState.UNKNOWN
    return JobState.FAILED if ended.code else JobState.COMPLETED


def _winner_id(race: Race, files: StateFiles, number: int) -> int:
    """Return the id that the winner's job must have to count; 0 where it is not of that number."""
    claim = files.claim
    return claim.job_id if claim and number == race.number_of(claim) else 0


def _next_job(race: Race, files: StateFiles, records: Sequence[JobRecord]) -> JobStatus | None:
    """Return the status of the job of a chain's next segment, or of the one that runs it."""
    ids = dict(files.job_ids).get(NEXT, ())
    lost = without_segment(race, files)
    known = [each for each in records if each.job_id not in lost]
    known.sort(key=lambda each: each.job_id != files.next_job_id)  # the one that goes on as before
    record = next_record(race, known)
    if record is None and not ids:
        return None
    job_id = record.job_id if record else ids[-1]
    return JobStatus(
        number=NEXT,
        name=race.next_name,
        strategy=_strategy_of_next(race, files, job_id),
        job_id=job_id,
        state=record.state if record else JobState.UNKNOWN,
        reason=record.reason if record else "",
        nodes=record.nodes if record else "",
    )


def _strategy_of_next(race: Race, files: StateFiles, job_id: int) -> str:
    """Return the strategy of a next segment's job; "" of a faster one, whose claim will say it."""
    claim = files.claim
    if claim is None or job_id in files.next_job_ids[1:]:
        return ""
    return race.strategy_of(files.next_submission, claim)


def unaccounted(race: Race, files: StateFiles, queue: Sequence[JobRecord]) -> tuple[int, ...]:
    """Return the submissions about whose jobs the queue does not say enough to decide the race."""
    ended = own_end(files.claim, files.ended) if files.claim else None
    if ended and not ended.signal:  # only Slurm knows why it sent a signal
        return ()
    if race.sweep and count(race.sweep, files.tasks).is_settled:
        return ()
    needs_code = files.claim is not None and ended is None
    return tuple(
        number
        for number in _deciding(race, files)
        if race.name_of(number)
        and not _are_enough(race, files, number, queue, needs_code=needs_code)
    )


def _are_enough(
    race: Race, files: StateFiles, number: int, queue: Sequence[JobRecord], *, needs_code: bool
) -> bool:
    """Return whether the records of all jobs that a number stands for decide.

    The winner of a later segment and the job that was sent to come after it share theirs.
    """
    found = [_record(race, files, number, queue)]
    if number == NEXT and files.next_job_id:
        found.append(record_of(queue, race.next_name, files.next_job_id))
    return all(_is_enough(record, needs_code=needs_code) for record in found)


def _deciding(race: Race, files: StateFiles) -> list[int]:
    """Return the submissions that decide the race: all that were sent, or the winner's.

    Of a chain it is the job that holds the claim, and the next segment's where it was sent.
    """
    claim, sent = files.claim, {number for number, _ in files.sent}
    ids = {number for number, _ in files.job_ids}
    if claim is None:
        return sorted((sent - {number for number, _ in files.refused}) | ids)
    if race.chain is None:
        return [claim.submission]
    numbers = {race.number_of(claim)}
    if NEXT in ids:
        numbers.add(NEXT)
    return sorted(numbers)


def _is_enough(record: JobRecord | None, *, needs_code: bool) -> bool:
    """Return whether a record decides; that of a winner that failed may lack the code."""
    if record is None or record.state is JobState.UNKNOWN:
        return False
    return not (needs_code and record.state is JobState.FAILED and record.exit_code is None)


def _record(
    race: Race, files: StateFiles, number: int, records: Sequence[JobRecord]
) -> JobRecord | None:
    job_id = _winner_id(race, files, number) or (files.next_job_id if number == NEXT else 0)
    counted = records if job_id else without_replaced(race, files, records)
    return record_of(counted, race.name_of(number), job_id)


def is_known(race: Race, files: StateFiles, number: int, records: Sequence[JobRecord]) -> bool:
    """Return whether Slurm has a submission's job, or knows how it ended.

    Accounting that calls a job alive proves nothing: it may never have heard of the end.
    """
    record = _record(race, files, number, records)
    return record is not None and (record.source != ACCOUNTING or not is_live(record.state))


def awaits_code(status: RaceStatus, records: Sequence[JobRecord]) -> bool:
    """Return whether a controller calls the winner FAILED, and the code is still to come."""
    claim = status.claim
    if claim is None or status.state is not RaceState.FAILED or status.exit_code is not None:
        return False
    return all(r.source != ACCOUNTING for r in records if r.job_id == claim.job_id)
