"""Which layouts a chain may move to at a segment's end: those that do its work faster."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from rv.models.plan import Strategy, Submission

Moves = Mapping[int, tuple[int, ...]]
"""By submission, those whose layout the next segment may have instead, fastest first."""

_LESS: Final = 0.9
"""A layout is faster that takes at most so much of the other's time: to save and to load costs
some, and what the rates say is no more exact than that."""


def moves(jobs: Sequence[Submission], spares: Sequence[Submission]) -> Moves:
    """Return the moves from each job, and from each that may stand in for one, to the jobs.

    A job that carries several strategies may become any of them: it is as slow as the slowest to
    move to, and as fast as the fastest to move from.
    """
    fastest_first = sorted(jobs, key=_longest_s)
    return {
        job.number: tuple(
            other.number for other in fastest_first if _longest_s(other) <= _LESS * _shortest_s(job)
        )
        for job in (*jobs, *spares)
    }


def _longest_s(job: Submission) -> float:
    return max(map(_run_s, job.strategies))


def _shortest_s(job: Submission) -> float:
    return min(map(_run_s, job.strategies))


def _run_s(strategy: Strategy) -> float:
    return strategy.run.p50.total_seconds() if strategy.run else inf


def note_on_moves(jobs: Sequence[Submission], allowed: Moves) -> str:
    """Say in which order a chain would move to which layouts; or that nothing is faster."""
    if not any(allowed.values()):
        return "--switch changes nothing: no layout that is raced is a tenth faster than another"
    moved_to = {number for others in allowed.values() for number in others}
    fastest_first = sorted((job for job in jobs if job.number in moved_to), key=_longest_s)
    layouts = ", ".join(dict.fromkeys(map(_layout, fastest_first)))
    return f"a next segment may run on a layout that is faster than the last one's: {layouts}"


def _layout(job: Submission) -> str:
    layouts = (f"{one.gpu} {one.nodes}x{one.gpus_per_node}" for one in job.strategies)
    return " or ".join(dict.fromkeys(layouts))
