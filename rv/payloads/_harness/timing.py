"""Time what a device does: CUDA events on a GPU, the monotonic clock on a CPU."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 100_000
AHEAD = 20_000_000
"""Clock cycles that a GPU waits first, about 10 ms: so that it never waits for this process.

Several threads that feed several GPUs take turns; where a GPU is done before its next kernel comes,
the events would measure the process and not the GPU.
"""


def synchronize(torch: Any, device: str) -> None:
    """Wait until the device has done everything it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def warm_up(
    torch: Any, device: str, work: Callable[[], object], seconds: float = 3.0, rounds: int = 10
) -> int:
    """Work for at least so many seconds and so many rounds; return the number of rounds."""
    end, done = time.perf_counter() + seconds, 0
    while done < rounds or time.perf_counter() < end:
        work()
        done += 1
        if done % rounds == 0:
            synchronize(torch, device)
    synchronize(torch, device)
    return done


def time_each(
    torch: Any,
    device: str,
    work: Callable[[], object],
    *,
    rounds: int = 30,
    between: Callable[[], object] | None = None,
) -> list[float]:
    """Return the seconds that each round took on the device, synchronized once at the end.

    `between` runs before each round, untimed: to flush a cache or set an input again.
    """
    if device.startswith("cuda"):
        return _events(torch, device, work, rounds, between)
    taken = []
    for _ in range(rounds):
        if between is not None:
            between()
        start = time.perf_counter_ns()
        work()
        taken.append((time.perf_counter_ns() - start) / 1e9)
    return taken


def _events(
    torch: Any,
    device: str,
    work: Callable[[], object],
    rounds: int,
    between: Callable[[], object] | None,
) -> list[float]:
    pairs = [tuple(torch.cuda.Event(enable_timing=True) for _ in "ab") for _ in range(rounds)]
    with torch.cuda.device(device):
        torch.cuda._sleep(AHEAD)  # noqa: SLF001 - the only kernel that just waits
        for start, end in pairs:
            if between is not None:
                between()
            start.record()
            work()
            end.record()
        torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in pairs]


def rounds_for(seconds: float, one_s: float, least: int = 5, most: int = MOST) -> int:
    """Return how many rounds of `one_s` seconds each fill `seconds`."""
    return max(least, min(most, round(seconds / max(one_s, 1e-9))))
