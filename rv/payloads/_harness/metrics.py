"""Numbers as results hold them: a value with its spread, unit and direction."""

from __future__ import annotations

import math
import statistics
from typing import Any

HIGHER, LOWER = "higher", "lower"


def metric(name: str, samples: list[float], unit: str, better: str, **more: Any) -> dict[str, Any]:
    """Sum up samples: the value is their median, `cv` is standard deviation over mean.

    `better` is HIGHER or LOWER; `more` are facts about the method, such as `data="randn"`.
    """
    if not samples:
        raise ValueError(f"no samples of {name}")
    mean = statistics.fmean(samples)
    deviation = statistics.stdev(samples) if len(samples) > 1 else 0.0
    middle = statistics.median(samples)
    spread = {
        "n": len(samples),
        "median": middle,
        "p05": percentile(samples, 5),
        "p95": percentile(samples, 95),
        "min": min(samples),
        "max": max(samples),
        "cv": deviation / abs(mean) if mean else 0.0,
    }
    return {"name": name, "value": middle, "unit": unit, "dir": better, **spread, **more}


def percentile(samples: list[float], percent: float) -> float:
    """Give the linearly interpolated percentile (numpy's default)."""
    ordered = sorted(samples)
    place = (len(ordered) - 1) * percent / 100
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def modified_z(value: float, peers: list[float]) -> float:
    """Give Iglewicz and Hoaglin's modified z-score: robust against the outlier it looks for."""
    middle = statistics.median(peers)
    distances = [abs(peer - middle) for peer in peers]
    spread = statistics.median(distances)
    if spread:
        return 0.6745 * (value - middle) / spread
    mean = statistics.fmean(distances)
    return 0.7979 * (value - middle) / mean if mean else 0.0
