"""Control charts: is the newest value of a series in line with the sound ones before it. Pure.

A value is held against the mean of the reference, in units of what it should vary by:
T = (x - mean) / (s sqrt(1 + 1/n)) for n reference values, Student's t while nothing changes. So the
reference needs no runs set aside for it: Hawkins' self-starting chart (D. M. Hawkins,
"Self-starting CUSUM charts for location and scale", The Statistician 36, 1987). Wallace's (1959)
transformation U = (8 v + 1) / (8 v + 3) sqrt(v ln(1 + T^2 / v)), with the sign of T, makes it
standard normal, v being the degrees of freedom.

Two limits together (J. M. Lucas, "Combined Shewhart-CUSUM quality control schemes", Journal of
Quality Technology 14, 1982): one for U, which sees a large loss at once, and one for Page's (1954)
sum S = max(0, S - U - k), which sees a small one that lasts, or a slow drift.

The reference grows by sound values alone, and is anchored on the first of them: none is ever
dropped from it, and from so many on none is added. What a GPU has lost is not learnt.

The variance s^2 is that of the reference, moderated by that of all series of a kind, s0^2 with v0
degrees of freedom (G. K. Smyth, "Linear models and empirical Bayes methods", 2004):
(v0 s0^2 + v s^2) / (v0 + v).
"""

import math
import statistics
from collections.abc import Iterable
from functools import cache
from typing import Final

from rv.dataclass import dataclass

LEAST_RUNS: Final = 5
"""Values that a reference is made of at least."""
ANCHOR: Final = 50
"""Sound values that a reference is made of at most: the first."""
FLOOR: Final = 0.01
"""The least standard deviation that is believed, as a fraction of the mean."""
SLACK: Final = 1.0
"""The k of the sum: half of the shift, in standard deviations, that it sees soonest."""
ALARMS_A_RUN: Final = 0.005
"""Share of runs in which sound series alarm, for which the limits are made; `tests/bench/roc.py`
counts them."""
SUSPECT: Final = -3.0
"""A U below which a value is not learnt while its series has few, and nothing else tells how much
such numbers vary: one of sound ones in 740."""
HEALING: Final = 2.0
"""How far the sum goes over its limit: at the old level it takes some three runs to come back."""

_PRIOR_RUNS: Final = 60
"""Degrees of freedom that the variance of all series of a kind counts for."""
_EARLY_SPREAD: Final = 0.02
_EARLY_RUNS: Final = 10
"""What stands for it while no series has enough values, and the degrees of freedom of that."""
_LEAST_EARLY: Final = 2
"""Values that another one is held against at least."""
_LEAST_ALIKE: Final = 4
"""Series that such a variance is made of."""
_OVERSHOOT: Final = 1.166


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What `U` must fall below, and the sum exceed, for a series to be flagged."""

    single: float
    lasting: float


@cache
def limits(series: int) -> Limits:
    """Give the limits for a run of so many series, so that few runs of sound ones alarm.

    Each limit gets half of the alarms of a run, and each series its equal part of them
    (Bonferroni). The sum's follows from Siegmund's (1985) average run length of a sound series,
    (exp(2 k b) - 2 k b - 1) / (2 k^2) with b = h + 1.166.
    """
    share = ALARMS_A_RUN / 2 / max(1, series)
    single = statistics.NormalDist().inv_cdf(share)
    low, high = 0.0, 50.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if _run_length(middle) < 1 / share:
            low = middle
        else:
            high = middle
    return Limits(single=single, lasting=high)


def _run_length(limit: float) -> float:
    exponent = 2 * SLACK * (limit + _OVERSHOOT)
    return (math.exp(exponent) - exponent - 1) / (2 * SLACK**2)


def as_normal(student: float, freedom: float) -> float:
    """Give the standard normal value that is as unlikely as one of Student's t (Wallace, 1959)."""
    size = math.sqrt(freedom * math.log1p(student**2 / freedom))
    return math.copysign(size * (8 * freedom + 1) / (8 * freedom + 3), student)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The newest `value` on its chart.

    `mean` is the reference's, of `runs` values; `normal` is U, `total` the sum S.
    `recent` is the mean of up to three newest values since the sum was last 0.
    """

    value: float
    mean: float
    runs: int
    normal: float
    total: float
    recent: float


class Chart:
    """The values of one series, added oldest first; better is higher.

    `alike` is the relative standard deviation of all series of its kind, None where unknown.
    """

    def __init__(self, bounds: Limits, alike: float | None = None, floor: float = FLOOR) -> None:
        self._bounds, self._alike, self._floor = bounds, alike, floor
        self._runs, self._mean, self._squares = 0, 0.0, 0.0
        self._total = 0.0
        self._since: list[float] = []
        self._seen = 0

    def add(self, value: float, *, is_sound: bool) -> None:
        """Add a value of an earlier run, and learn from it if it was sound and is in line.

        While the reference has few values, a low one is no part of it: it may be the first of a
        loss. Values of an older rv all stand as sound.
        """
        normal, bounds = self._step(value), self._bounds
        self._seen += 1
        is_early = self._alike is None and self._runs < LEAST_RUNS
        least = SUSPECT if is_early else bounds.single
        is_in_line = normal >= least and self._total <= bounds.lasting
        if is_sound and is_in_line and self._runs < ANCHOR:
            self._learn(value)

    def read(self, value: float) -> Reading | None:
        """Hold a value against the reference; None where there are too few values."""
        if self._runs < _LEAST_EARLY or self._seen < LEAST_RUNS - 1:
            return None
        normal = self._step(value)
        return Reading(
            value=value,
            mean=self._mean,
            runs=self._runs,
            normal=normal,
            total=self._total,
            recent=statistics.fmean(self._since or [value]),
        )

    def _step(self, value: float) -> float:
        """Add a value to the sum; give its U, 0 where the reference has too few values."""
        if self._runs < _LEAST_EARLY:
            return 0.0
        deviation, freedom = self._spread()
        wide = deviation * math.sqrt(1 + 1 / self._runs)
        normal = as_normal((value - self._mean) / wide, freedom)
        most = self._bounds.lasting + HEALING
        self._total = min(max(0.0, self._total - normal - SLACK), most)
        self._since = [*self._since[-2:], value] if self._total else []
        return normal

    @property
    def mean(self) -> float:
        """The reference's mean; 0 where it has no values."""
        return self._mean

    def spread(self) -> float | None:
        """Give the relative standard deviation of the reference; None where it has too few."""
        if self._runs < LEAST_RUNS or not self._mean:
            return None
        return math.sqrt(self._squares / (self._runs - 1)) / abs(self._mean)

    def _learn(self, value: float) -> None:
        self._runs += 1
        change = value - self._mean
        self._mean += change / self._runs
        self._squares += change * (value - self._mean)

    def _spread(self) -> tuple[float, float]:
        """Give the deviation, and its degrees of freedom."""
        freedom = self._runs - 1
        variance = self._squares / freedom
        usual, worth = self._alike, _PRIOR_RUNS
        if usual is None and self._runs < LEAST_RUNS:
            usual, worth = _EARLY_SPREAD, _EARLY_RUNS
        if usual is not None:
            variance = freedom * variance + worth * (usual * self._mean) ** 2
            freedom += worth
            variance /= freedom
        return max(math.sqrt(variance), self._floor * abs(self._mean), 1e-12), freedom


def spread_of(charts: Iterable[Chart]) -> float | None:
    """Give the usual relative deviation of series of a kind; None where they are too few."""
    spreads = [spread for chart in charts if (spread := chart.spread()) is not None]
    return statistics.median(spreads) if len(spreads) >= _LEAST_ALIKE else None
