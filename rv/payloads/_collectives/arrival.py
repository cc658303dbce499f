"""Who keeps the others waiting: a collective ends for all at once, so arrival is measured.

All ranks do equal local work and meet at a barrier; the rank that waits least there is the one
that the others wait for. Of several rounds the best counts: a passing disturbance names nobody.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .measure import Field

ROUNDS = 8


@dataclass(frozen=True)
class Arrival:
    """One rank's equal work (best of the rounds) and its wait at the barrier (median), seconds."""

    rank: int
    work: float
    wait: float


def arrivals(field: Field, work: Callable[[], None], rounds: int = ROUNDS) -> list[Arrival]:
    """Let every rank work and meet, `rounds` times; give what each rank needed.

    On a CPU the processor time counts, which other programs on the machine do not lengthen.
    """
    clock = time.thread_time if field.device == "cpu" else time.perf_counter
    worked, waited = [], []
    for _ in range(rounds):
        field.dist.barrier(group=field.group)
        start = clock()
        work()
        worked.append(clock() - start)
        met = time.perf_counter()
        field.dist.barrier(group=field.group)
        waited.append(time.perf_counter() - met)
    every = field.gather([min(worked), statistics.median(waited)])
    return [Arrival(rank, *numbers) for rank, numbers in enumerate(every)]


def equal_work(torch: Any, device: str, size: int, repeats: int) -> Callable[[], None]:
    """Give work that is the same on every rank: products of two matrices, waited for."""
    left, right = (torch.rand(size, size, device=device) for _ in "ab")
    out = torch.empty_like(left)

    def work() -> None:
        for _ in range(repeats):
            torch.mm(left, right, out=out)
        if device != "cpu":
            torch.cuda.synchronize(device)

    work()
    return work


def stragglers(found: list[Arrival], limit: float) -> list[tuple[Arrival, float]]:
    """Give the ranks that took over `limit` times what their peers took (median), slowest first."""
    late = []
    for one in found:
        peers = [other.work for other in found if other.rank != one.rank]
        ratio = one.work / max(statistics.median(peers), 1e-9) if peers else 1.0
        if ratio > limit:
            late.append((one, ratio))
    return sorted(late, key=lambda pair: -pair[1])
