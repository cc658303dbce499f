"""Statistics that outliers do not move, and the rule by which devices are held against peers."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from .verdicts import FAIL, PASS, WARN

if TYPE_CHECKING:
    from collections.abc import Sequence

PEERS, PEERS_FOR_Z = 3, 6
"""The fewest peers that are compared, and that a z-score is computed of."""
PEER_WARN, PEER_FAIL, PEER_Z = 0.05, 0.10, 3.5
"""Losses against the peers' median, and Iglewicz and Hoaglin's bound of the modified z-score."""

_TO_SIGMA, _MEAN_TO_SIGMA = 0.6745, 0.7979  # of a normal distribution: MAD and mean deviation


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the linearly interpolated percentile (numpy's default)."""
    ordered = sorted(samples)
    place = (len(ordered) - 1) * percent / 100
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def mad(values: Sequence[float], middle: float) -> float:
    """Return the median absolute deviation from `middle`."""
    return statistics.median([abs(value - middle) for value in values])


def modified_z(value: float, values: Sequence[float], *, floor: float = 0.0) -> float:
    """Return Iglewicz and Hoaglin's modified z-score: 0.6745 (x - median) / max(MAD, floor).

    Where the MAD is 0, 0.7979 (x - median) / mean absolute deviation; where that is 0 too, 0.
    """
    middle = statistics.median(values)
    spread = max(mad(values, middle), floor)
    if spread > 0:
        return _TO_SIGMA * (value - middle) / spread
    mean = statistics.fmean([abs(each - middle) for each in values])
    return _MEAN_TO_SIGMA * (value - middle) / mean if mean > 0 else 0.0


def loss(value: float, middle: float, direction: str) -> float:
    """Return how much worse a value is than the middle, as a fraction of it; negative if better.

    `direction` is the better one, `higher` or `lower`.
    """
    if not middle:
        return 0.0
    change = (value - middle) / abs(middle)
    return -change if direction == "higher" else change


def peer_verdict(
    value: float,
    values: Sequence[float],
    direction: str = "higher",
    *,
    warn: float = PEER_WARN,
    fail: float = PEER_FAIL,
) -> str:
    """Hold one value against all of its kind, itself among them: PASS, WARN or FAIL.

    With three or more values, a loss against their median above `warn` is WARN, above `fail` FAIL;
    with six or more, above `warn` with a modified z-score beyond 3.5 is FAIL too.
    """
    if len(values) < PEERS:
        return PASS
    lost = loss(value, statistics.median(values), direction)
    if lost <= warn:
        return PASS
    is_outlier = len(values) >= PEERS_FOR_Z and abs(modified_z(value, values)) > PEER_Z
    return FAIL if lost > fail or is_outlier else WARN


def slow_ones(
    rates: Sequence[float], *, warn: float = PEER_WARN, fail: float = PEER_FAIL
) -> list[tuple[int, str, float]]:
    """Find devices slower than their peers: (place, WARN or FAIL, share of what peers reach).

    Of two the slower is held against the faster one, with twice the room.
    """
    if len(rates) == PEERS - 1:
        warn, fail, usual = 2 * warn, 2 * fail, max(rates)
        lost = [loss(rate, usual, "higher") for rate in rates]
        verdicts = [FAIL if each > fail else WARN if each > warn else PASS for each in lost]
    else:
        usual = statistics.median(rates) if rates else 0.0
        verdicts = [peer_verdict(rate, rates, warn=warn, fail=fail) for rate in rates]
    pairs = zip(rates, verdicts, strict=True)
    return [(at, each, rate / usual) for at, (rate, each) in enumerate(pairs) if each != PASS]


def odd_ones(values: Sequence[str]) -> list[int]:
    """Return the places of the values that differ from the majority's; without a majority, all."""
    if len(set(values)) < 2:
        return []
    usual = max(set(values), key=lambda value: (values.count(value), value))
    has_majority = values.count(usual) * 2 > len(values)
    return [at for at, value in enumerate(values) if not has_majority or value != usual]
