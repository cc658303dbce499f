"""How a command's time is cut to a hole: one shorter job, or segments of one that can resume."""

from datetime import timedelta
from typing import Final

from rv.models.plan import SIGNAL_EARLY, usable
from rv.models.quantities import short_duration
from rv.models.request import Request
from rv.planner.families import Family
from rv.planner.reasons import Unfit

_MINUTE: Final = timedelta(minutes=1)
_SLACK: Final = timedelta(seconds=60)
"""A job that ended 30 s before the planned start behind its hole was seen to start (Slurm 22.05
and 24.11); a snapshot may be 30 s old."""

_SHARE: Final = 5
"""Unless told, the buffer is at most this part of a segment."""


def longest_in(hole: timedelta) -> timedelta:
    """Return the longest walltime, in whole minutes as Slurm counts, that fits a hole."""
    return max(timedelta(0), (hole - _SLACK) // _MINUTE * _MINUTE)


def buffer_of(walltime: timedelta, family: Family, request: Request) -> timedelta:
    """Return how long before its end a job is told to save its work."""
    if request.checkpoint_buffer is not None:
        return request.checkpoint_buffer
    return timedelta(seconds=min(family.buffer, walltime / _SHARE) // timedelta(seconds=1))


def check_usable(walltime: timedelta, buffer: timedelta, family: Family) -> None:
    """Raise `Unfit`, with the arithmetic, where a segment is too short to be of use."""
    left = usable(walltime, buffer)
    if left >= family.min_usable:
        return
    parts = (walltime, buffer, SIGNAL_EARLY)
    sum_text = " - ".join(f"{_seconds(part)} s" for part in parts)
    raise Unfit(
        f"a segment of {short_duration(walltime)} is too short: {sum_text} = {_seconds(left)} s"
        f" of use, at least {_seconds(family.min_usable)} s wanted"
    )


def _seconds(duration: timedelta) -> int:
    return int(duration.total_seconds())
