"""The schedule of a chain: when each of its segments can start, one after the other."""

from datetime import timedelta
from math import ceil
from typing import Final

from rv.models.plan import Strategy, usable
from rv.planner.capacity import Window
from rv.planner.schedule import NodeWindows, earliest_start

_MOST: Final = 50
"""Segments of which the start is worked out."""


def segment_starts(windows: NodeWindows, strategy: Strategy) -> tuple[timedelta, ...]:
    """Return when each segment of a chain starts, from now: as soon as its nodes are free for it.

    Empty for one job, and where the start of one is not known. The next segment is submitted when
    the one before ends, on any nodes of the strategy.
    """
    first = strategy.estimate.start_in
    if strategy.segments < 2 or first is None:
        return ()
    length_s = strategy.walltime.total_seconds()
    starts_s = [first.total_seconds()]
    for _ in range(1, min(strategy.segments, _MOST)):
        later = _after(windows, starts_s[-1] + length_s)
        free_s = earliest_start(later, strategy.nodes, strategy.walltime)
        if free_s is None:
            return ()
        starts_s.append(free_s)
    return tuple(timedelta(seconds=round(start_s)) for start_s in starts_s)


def _after(windows: NodeWindows, moment_s: float) -> NodeWindows:
    """Return what is left of windows from a moment on."""
    return {
        name: [
            Window(max(moment_s, one.start_s), one.end_s) for one in spans if one.end_s > moment_s
        ]
        for name, spans in windows.items()
    }


def end_of_chain(strategy: Strategy, run: timedelta) -> timedelta:
    """Return when a command that computes so long is done, from its first start on.

    One job is done after its run. A chain is done in the segment in which its work ends, as the
    schedule has it; behind the schedule its segments follow each other at once.
    """
    if strategy.segments < 2 or not run:
        return run
    part = usable(strategy.walltime, strategy.buffer)
    before = ceil(run / part) - 1
    starts = strategy.segment_starts or (timedelta(0),)
    last = min(before, len(starts) - 1)
    return starts[last] - starts[0] + (before - last) * strategy.walltime + run - before * part
