"""Submissions whose fate nobody knows: sent without an answer heard, or taken and forgotten. Pure.

The mark `jobs/N.sent` is written before sbatch is called, so that a client which dies inside it
leaves the question behind. Any rv command answers it: a job of that name is adopted, and where
there is none the submission goes out again once Slurm must have dealt with the first.
"""

from collections.abc import Sequence
from typing import Final

from rv.models.job import JobRecord, is_live
from rv.models.race import NEXT, Marks, Race

KEPT_S: Final = 86400.0
"""How long a submission in doubt is worth sending again; its user has given the race up by then."""

_MOST_TIMES: Final = 5


def doubts(race: Race, marks: Marks, records: Sequence[JobRecord] = ()) -> tuple[int, ...]:
    """Number the submissions that were sent and not heard of since, nor seen in `records`.

    The next segment of a chain is none: the chain itself knows whether one comes.
    """
    seen = {record.name for record in records}
    heard = {number for number, _ in (*marks.job_ids, *marks.refused, *marks.exhausted)}
    heard |= {*marks.again, marks.claim.submission if marks.claim else NEXT}
    return tuple(
        n for n, _ in marks.sent if n not in heard | {NEXT} and race.name_of(n) not in seen | {""}
    )


def patience(race: Race) -> float:
    """Seconds after which Slurm must have dealt with a message: twice the controller's timeout."""
    return 2 * race.message_timeout.total_seconds()


def age(marks: Marks, number: int, now: float) -> float:
    """Seconds since a submission was sent, or since it was first looked for in vain.

    The submitting machine's clock may be ahead of ours: then only the second is known.
    """
    moments = (dict(marks.sent).get(number), dict(marks.absent_since).get(number))
    return next((now - at for at in moments if at is not None and at <= now), 0.0)


def overdue(race: Race, marks: Marks, records: Sequence[JobRecord], now: float) -> tuple[int, ...]:
    """Number the submissions in doubt that Slurm does not have, and that are to be sent again."""
    return tuple(
        number
        for number in doubts(race, marks, records)
        if patience(race) < age(marks, number, now) < KEPT_S
    )


def forgotten(
    race: Race,
    marks: Marks,
    records: Sequence[JobRecord],
    now: float,
    *,
    accounted: bool,
    recycled: frozenset[int] = frozenset(),
) -> tuple[int, ...]:
    """Number the jobs that Slurm took, never ended, and does not know any more.

    A controller that dies soon after taking a job has not saved it, and gives its id to another.
    Evidence is an id that another job bears now (`recycled`), or accounting that answers
    (`accounted`) and knows of no end.
    """
    if marks.claim or marks.stopped:
        return ()
    over = {r.name for r in records if r.state.is_terminal}
    there = {r.name for r in records if is_live(r.state) and r.source != "sacct"}
    spent = {number for number, _ in marks.exhausted} | set(marks.again)
    found = []
    for number, ids in marks.job_ids:
        name = race.name_of(number)
        since = dict(marks.absent_since).get(number, now)
        is_gone = now - since > patience(race) and name not in over | there
        is_proven = accounted or not recycled.isdisjoint(ids)
        if name and number not in spent and is_gone and is_proven and len(ids) < _MOST_TIMES:
            found.append(number)
    return tuple(number for number in found if number != NEXT)


def doubt_text(marks: Marks, numbers: Sequence[int], now: float) -> str:
    """Say what is in doubt, "" where nothing is."""
    return "; ".join(
        f"job {number} is in doubt: it was sent {round(age(marks, number, now))} s ago and no"
        " answer was heard"
        for number in numbers
    )
