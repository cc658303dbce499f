"""Whether a GPU has become slower than its own history. Pure.

The latest value is held against the median of those before it, of the same software, with at least
five of them, and their median absolute deviation (MAD), taken for 1 % of the median where it is
less. Where three of the latest values are in, their median is held against the rest in the same
way: a lasting drop shows in it at a size that one noisy value hides.

The z-score is corrected for what few values do not tell: the MAD of n normal values is too small
by n / (n - 0.8) (Croux and Rousseeuw, 1992), and their median itself varies by 1.25 / sqrt(n) of
their standard deviation.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rv.accept.results import Status
from rv.accept.robust import loss, modified_z

LEAST_RUNS: Final = 5
FLOOR: Final = 0.01
WARN_LOSS: Final = 0.05
WARN_Z: Final = -3.5
FAIL_LOSS: Final = 0.15
FAIL_Z: Final = -6.0
_LASTING: Final = 3
_MEDIAN_OF_THREE: Final = 0.67
"""The standard deviation of the median of three normal values, in those of one."""
_OF_MEDIAN: Final = math.pi / 2
"""The variance of the median of n normal values is this of theirs, divided by n."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One value of a history, oldest first in a sequence of them."""

    time: float
    value: float
    fingerprint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Regression:
    """A loss against the history: a fraction of its median, and its modified z-score."""

    status: Status
    loss: float
    z: float
    median: float
    runs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangePoint:
    """Where the software changed: what follows is compared with what follows."""

    time: float
    before: str
    after: str


def regression(points: Sequence[Point], direction: str) -> Regression | None:
    """Judge the last point by those before it; None where all is well, or too little is known."""
    same = since_change(points)
    values = [point.value for point in same]
    found = [_judged(values[:-1], values[-1], direction, 1.0)]
    if len(values) >= LEAST_RUNS + _LASTING:
        latest = statistics.median(values[-_LASTING:])
        found.append(_judged(values[:-_LASTING], latest, direction, _MEDIAN_OF_THREE))
    flagged = [each for each in found if each is not None]
    return max(flagged, key=lambda each: (each.status is Status.FAIL, each.loss), default=None)


def since_change(points: Sequence[Point]) -> Sequence[Point]:
    """The points since the software last changed."""
    at = len(points)
    while at and points[at - 1].fingerprint == points[-1].fingerprint:
        at -= 1
    return points[at:]


def change_points(points: Sequence[Point]) -> tuple[ChangePoint, ...]:
    """Where the software changed."""
    pairs = itertools.pairwise(points)
    return tuple(
        ChangePoint(time=b.time, before=a.fingerprint, after=b.fingerprint)
        for a, b in pairs
        if a.fingerprint != b.fingerprint
    )


def _judged(
    before: Sequence[float], latest: float, direction: str, spread: float
) -> Regression | None:
    """Hold a value against those before; `spread` is how much less than one of them it varies."""
    if len(before) < LEAST_RUNS:
        return None
    median = statistics.median(before)
    lost = loss(latest, median, direction)
    runs = len(before)
    z = modified_z(latest, before, floor=FLOOR * abs(median)) * (runs - 0.8) / runs
    z /= math.sqrt(spread**2 + _OF_MEDIAN / runs)
    z = -abs(z) if lost > 0 else abs(z)
    if lost > FAIL_LOSS and z < FAIL_Z:
        status = Status.FAIL
    elif lost > WARN_LOSS and z < WARN_Z:
        status = Status.WARN
    else:
        return None
    return Regression(status=status, loss=lost, z=z, median=median, runs=runs)
