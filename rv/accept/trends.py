"""Compare measurements over time: has a GPU become slower, its history, and two runs side by side.

A regression is judged on the points of the same software. The latest value is compared with the
median of those before it, at least five, in units of their median absolute deviation (MAD), taken
for 1 % of the median where it is less. Where three of the latest values are in, their median is
compared with the rest in the same way: a lasting drop shows in it at a size that one noisy value
hides.

The z-score is corrected for the few values it is made of: the MAD of n normal values is too small
by n / (n - 0.8) (Croux and Rousseeuw, 1992), and their median itself varies by 1.25 / sqrt(n) of
their standard deviation.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rv.accept.measurements import Measurement, Point
from rv.accept.results import RunResult, Status
from rv.payloads.contract.stats import loss, mad, modified_z

LEAST_RUNS: Final = 5
FLOOR: Final = 0.01
WARN_LOSS, WARN_Z = 0.05, -3.5
FAIL_LOSS, FAIL_Z = 0.15, -6.0
_LASTING: Final = 3
_MEDIAN_OF_THREE: Final = 0.67
"""The standard deviation of the median of three normal values, in those of one."""
_OF_MEDIAN: Final = math.pi / 2
"""The variance of the median of n normal values is this times theirs, divided by n."""


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
    """Where the software changed: values are compared with those after the last change only."""

    time: float
    before: str
    after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """One number of one GPU over time, oldest first.

    `median`, `spread` (MAD) and `loss` compare the last value with those before it that have the
    same software.
    """

    last: Measurement
    values: tuple[float, ...]
    median: float
    spread: float
    loss: float
    regression: Regression | None
    changes: tuple[ChangePoint, ...]


def regression(points: Sequence[Point], direction: str) -> Regression | None:
    """Judge the last point by those before it; None where it is no loss, or those are too few."""
    values = [point.value for point in since_change(points)]
    judgements = [_judge(values[:-1], values[-1], direction, 1.0)]
    if len(values) >= LEAST_RUNS + _LASTING:
        latest = statistics.median(values[-_LASTING:])
        judgements.append(_judge(values[:-_LASTING], latest, direction, _MEDIAN_OF_THREE))
    flagged = [each for each in judgements if each is not None]
    return max(flagged, key=lambda each: (each.status is Status.FAIL, each.loss), default=None)


def since_change(points: Sequence[Point]) -> Sequence[Point]:
    """Give the points since the software last changed."""
    at = len(points)
    while at and points[at - 1].fingerprint == points[-1].fingerprint:
        at -= 1
    return points[at:]


def change_points(points: Sequence[Point]) -> tuple[ChangePoint, ...]:
    """Give the points where the software changed."""
    return tuple(
        ChangePoint(time=later.time, before=earlier.fingerprint, after=later.fingerprint)
        for earlier, later in itertools.pairwise(points)
        if earlier.fingerprint != later.fingerprint
    )


def _judge(
    before: Sequence[float], latest: float, direction: str, spread: float
) -> Regression | None:
    """Compare a value with those before; `spread` is how much less than one of them it varies."""
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


def trends(measured: Iterable[Measurement]) -> tuple[Trend, ...]:
    """Group measurements into histories; flagged ones first, then by what was lost."""
    groups: dict[tuple[str, ...], list[Measurement]] = {}
    for each in sorted(measured, key=lambda each: each.time):
        groups.setdefault(each.identity, []).append(each)
    every = [_trend(group) for group in groups.values()]
    return tuple(sorted(every, key=lambda trend: (trend.regression is None, -trend.loss)))


def _trend(group: Sequence[Measurement]) -> Trend:
    last = group[-1]
    before = [each.value for each in since_change(group)][:-1] or [last.value]
    median = statistics.median(before)
    return Trend(
        last=last,
        values=tuple(m.value for m in group),
        median=median,
        spread=mad(before, median),
        loss=loss(last.value, median, last.direction),
        regression=regression(group, last.direction),
        changes=change_points(group),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One number in both runs; `loss` is how much worse the second is, as a fraction."""

    before: Measurement
    after: Measurement
    loss: float


@dataclass(frozen=True, slots=True)
class Turn:
    """A test whose verdict differs; None where one run does not have it."""

    payload: str
    node: str
    test: str
    device: str
    before: Status | None
    after: Status | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What differs; the worst change first. `only_before` and `only_after` count numbers."""

    changes: tuple[Change, ...]
    turns: tuple[Turn, ...]
    only_before: int
    only_after: int


def compare(
    before: Sequence[Measurement],
    after: Sequence[Measurement],
    results: tuple[Sequence[RunResult], Sequence[RunResult]],
) -> Comparison:
    """Compare what both measured in the same way on the same GPU; `results` are both runs'."""
    first = {measured.identity: measured for measured in before}
    second = {measured.identity: measured for measured in after}
    both = [identity for identity in first if identity in second]
    changes = [_change(first[identity], second[identity]) for identity in both]
    was, now = _verdicts(results[0]), _verdicts(results[1])
    tests = [test for test in was | now if was.get(test) is not now.get(test)]
    return Comparison(
        changes=tuple(sorted(changes, key=lambda change: -change.loss)),
        turns=tuple(Turn(*test, was.get(test), now.get(test)) for test in tests),
        only_before=len(first) - len(both),
        only_after=len(second) - len(both),
    )


def _change(before: Measurement, after: Measurement) -> Change:
    lost = loss(after.value, before.value, after.direction)
    return Change(before=before, after=after, loss=lost)


def _verdicts(results: Sequence[RunResult]) -> dict[tuple[str, str, str, str], Status]:
    return {
        (result.test_type, test.host or result.hostname, test.name, test.device): test.status
        for result in results
        for test in result.tests
    }
