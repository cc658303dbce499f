"""Submissions that were sent but not acknowledged, or acknowledged and then lost by Slurm.

The mark `jobs/N.sent` is written before sbatch is called, so that a client which dies inside it
leaves the question behind. Any rv command answers it: a job of that name is adopted, and where
there is none the submission goes out again once Slurm must have dealt with the first.
"""

from collections.abc import Sequence
from typing import Final

from rv.models.job import JobRecord, is_live
from rv.models.race import NEXT, Race, StateFiles

KEPT_S: Final = 86400.0
"""How long a submission in doubt is worth sending again; its user has given the race up by then."""

_MOST_TIMES: Final = 5


def unconfirmed(
    race: Race, files: StateFiles, records: Sequence[JobRecord] = ()
) -> tuple[int, ...]:
    """Number the submissions that were sent and not heard of since, nor seen in `records`.

    The next segment of a chain is none: the chain itself knows whether one comes.
    """
    seen = {record.name for record in records}
    heard = {number for number, _ in (*files.job_ids, *files.refused, *files.exhausted)}
    heard |= {*files.again, files.claim.submission if files.claim else NEXT}
    return tuple(
        n for n, _ in files.sent if n not in heard | {NEXT} and race.name_of(n) not in seen | {""}
    )


def patience(race: Race) -> float:
    """Seconds after which Slurm must have dealt with a message: twice the controller's timeout."""
    return 2 * race.message_timeout.total_seconds()


def age(files: StateFiles, number: int, now: float) -> float:
    """Seconds since a submission was sent, or since it was first looked for in vain.

    The submitting machine's clock may be ahead of ours: then only the second is known.
    """
    moments = (dict(files.sent).get(number), dict(files.absent_since).get(number))
    return next((now - at for at in moments if at is not None and at <= now), 0.0)


def to_resend(
    race: Race, files: StateFiles, records: Sequence[JobRecord], now: float
) -> tuple[int, ...]:
    """Number the submissions in doubt that Slurm does not have, and that are to be sent again."""
    return tuple(
        number
        for number in unconfirmed(race, files, records)
        if patience(race) < age(files, number, now) < KEPT_S
    )


def forgotten(
    race: Race,
    files: StateFiles,
    records: Sequence[JobRecord],
    now: float,
    *,
    accounting_answered: bool,
    recycled: frozenset[int] = frozenset(),
) -> tuple[int, ...]:
    """Number the jobs that Slurm took, never ended, and does not know any more.

    A controller that dies soon after taking a job has not saved it, and gives its id to another.
    Evidence is an id that another job bears now (`recycled`), or accounting that answers
    (`accounting_answered`) and knows of no end.
    """
    if files.claim or files.stopped:
        return ()
    over = {r.name for r in records if r.state.is_terminal}
    there = {r.name for r in records if is_live(r.state) and r.source != "sacct"}
    spent = {number for number, _ in files.exhausted} | set(files.again)
    found = []
    for number, ids in files.job_ids:
        name = race.name_of(number)
        since = dict(files.absent_since).get(number, now)
        is_gone = now - since > patience(race) and name not in over | there
        is_proven = accounting_answered or not recycled.isdisjoint(ids)
        if name and number not in spent and is_gone and is_proven and len(ids) < _MOST_TIMES:
            found.append(number)
    return tuple(number for number in found if number != NEXT)


def unconfirmed_text(files: StateFiles, numbers: Sequence[int], now: float) -> str:
    """Say what is in doubt, "" where nothing is."""
    return "; ".join(
        f"job {number} is in doubt: it was sent {round(age(files, number, now))} s ago and no"
        " answer was heard"
        for number in numbers
    )
