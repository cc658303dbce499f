"""Medians, and how far a value is from one in units that outliers do not move. Pure."""

import statistics
from collections.abc import Sequence
from typing import Final

_TO_SIGMA: Final = 0.6745
_MEAN_TO_SIGMA: Final = 0.7979


def mad(values: Sequence[float], middle: float) -> float:
    """The median absolute deviation from `middle`."""
    return statistics.median([abs(value - middle) for value in values])


def modified_z(value: float, values: Sequence[float], *, floor: float = 0.0) -> float:
    """Iglewicz and Hoaglin's modified z-score: 0.6745 (x - median) / MAD, MAD at least `floor`.

    Where the MAD is 0, 0.7979 (x - median) / mean absolute deviation; where that is 0 too, 0.
    """
    middle = statistics.median(values)
    spread = max(mad(values, middle), floor)
    if spread > 0:
        return _TO_SIGMA * (value - middle) / spread
    mean = statistics.fmean([abs(v - middle) for v in values])
    return _MEAN_TO_SIGMA * (value - middle) / mean if mean > 0 else 0.0


def loss(value: float, middle: float, direction: str) -> float:
    """How much worse a value is than the middle, as a fraction of it; negative for better."""
    if not middle:
        return 0.0
    change = (value - middle) / abs(middle)
    return -change if direction == "higher" else change
