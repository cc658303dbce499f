"""Time alternatives in turn, so that a busy moment of the machine falls on all of them."""

import statistics
import time
from collections.abc import Callable, Mapping


def alternate(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Run every contender once a round and return each one's median, in seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]
