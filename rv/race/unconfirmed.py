"""Submissions that were sent but not acknowledged, or acknowledged and then lost by Slurm.

The state file `jobs/N.sent` is written before sbatch is called, so that a client that dies inside
sbatch leaves a trace. Any rv command resolves it: it adopts a job of that name, and where there is
none it sends the submission again, once Slurm must have dealt with the first.
"""

from collections.abc import Sequence
from typing import Final

from rv.models.job import JobRecord, is_live
from rv.models.race import NEXT, Race, StateFiles

KEPT_S: Final = 86400.0
"""How long an unconfirmed submission is worth sending again: after a day nobody waits for it."""

_MOST_TIMES: Final = 5


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
    no end.
    """
    if files.claim or files.stopped:
        return ()
    rejected = {number for number, _ in files.exhausted} | {*files.again, NEXT}
    return tuple(
        number
        for number, ids in files.job_ids
        if number not in rejected
        and len(ids) < _MOST_TIMES
        and (accounting_answered or not recycled.isdisjoint(ids))
        and _is_missing(race, files, records, number, now_s)
    )


def _is_missing(
    race: Race, files: StateFiles, records: Sequence[JobRecord], number: int, now_s: float
) -> bool:
    """Return whether a job has been absent for long, with neither an end nor a place in Slurm."""
    name = race.name_of(number)
    absent_s = now_s - dict(files.absent_since).get(number, now_s)
    if not name or absent_s <= confirmation_limit_s(race):
        return False
    return not any(_proves_existence(record) for record in records if record.name == name)


def _proves_existence(record: JobRecord) -> bool:
    """Return whether a job ended, or is alive by another source than accounting, which lags."""
    return record.state.is_terminal or (is_live(record.state) and record.source != "sacct")


def unconfirmed_text(files: StateFiles, numbers: Sequence[int], now_s: float) -> str:
    """Say which submissions are unconfirmed and since when, "" for none."""
    return "; ".join(
        f"job {number} is unconfirmed: it was sent {round(unconfirmed_for_s(files, number, now_s))}"
        " s ago and no answer was heard"
        for number in numbers
    )
