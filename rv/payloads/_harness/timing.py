"""Time what a device does: CUDA events on a GPU, the monotonic clock on a CPU."""

from __future__ import annotations

import functools
import statistics
import time
from dataclasses import dataclass, field
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


INTERRUPTED = 8  # times the median: idle clocks are a sixth of the highest, a slice is 20 probes
CHUNK, TRIES = 150, 4
"""Rounds that are queued together (a driver's queue holds about 1,000 kernels), and attempts."""


@dataclass
class Timed:
    """Rounds on a device: the seconds of each, and of all from the first's start to the last's end.

    `is_fed` is whether everything was queued before the device began, so that what `whole` has
    beyond the rounds went to somebody else, and not to a wait for this process.
    """

    each: list[float] = field(default_factory=list)
    whole: float = 0.0
    is_fed: bool = True

    @property
    def share(self) -> float:
        """What part of the time the rounds took themselves.

        One far longer than most was interrupted in the middle; clocks that rise change it less.
        """
        usual = statistics.median(self.each)
        own = sum(each if each < INTERRUPTED * usual else usual for each in self.each)
        return own / self.whole


def time_all(
    torch: Any,
    device: str,
    work: Callable[[], object],
    rounds: int,
    between: Callable[[], object] | None = None,
) -> Timed:
    """Time rounds one by one, and the whole span of them by the device's clock.

    `between` runs before each round; what the device then does is no part of the span.
    """
    timed = Timed()
    if not device.startswith("cuda"):
        timed.each = time_each(torch, device, work, rounds=rounds, between=between)
        timed.whole = sum(timed.each)
        return timed
    chunk = CHUNK if between is None else CHUNK // 3
    with torch.cuda.device(device):
        ahead = AHEAD
        for first in range(0, rounds, chunk):
            part, ahead = _chunk(torch, work, min(chunk, rounds - first), ahead, between)
            timed.each += part.each
            timed.whole += part.whole
            timed.is_fed &= part.is_fed
    return timed


def time_fed(
    torch: Any,
    device: str,
    work: Callable[[], object],
    *,
    rounds: int,
    between: Callable[[], object],
    begin: Callable[[], object] | None = None,
) -> Timed:
    """Time a few rounds as `time_each` does; again, where the device began before all were queued.

    `begin` runs before each attempt. What ranks do together cannot be begun again by one of them.
    """
    if not device.startswith("cuda"):
        if begin is not None:
            begin()
        each = time_each(torch, device, work, rounds=rounds, between=between)
        return Timed(each, sum(each))
    with torch.cuda.device(device):
        return _chunk(torch, work, rounds, AHEAD, between, begin)[0]


def _chunk(
    torch: Any,
    work: Callable[[], object],
    rounds: int,
    ahead: int,
    between: Callable[[], object] | None,
    begin: Callable[[], object] | None = None,
) -> tuple[Timed, int]:
    """Time rounds that are queued while the device waits; where it waits too short, for longer."""
    marks = [[torch.cuda.Event(enable_timing=True) for _ in "abc"] for _ in range(rounds)]
    is_fed = False
    for _ in range(TRIES):
        if begin is not None:
            begin()
        is_fed = _queued(torch, work, marks, ahead, between)
        if is_fed:
            break
        ahead *= 2
    each = [start.elapsed_time(end) / 1e3 for _, start, end in marks]
    whole = marks[0][1].elapsed_time(marks[-1][2]) / 1e3
    if between is not None:
        whole -= sum(before.elapsed_time(start) for before, start, _ in marks[1:]) / 1e3
    return Timed(each, whole, is_fed), ahead


def _queued(
    torch: Any,
    work: Callable[[], object],
    marks: list[list[Any]],
    ahead: int,
    between: Callable[[], object] | None,
) -> bool:
    """Queue rounds and wait for them; return whether the device began after all were queued."""
    torch.cuda._sleep(ahead)  # noqa: SLF001 - the only kernel that just waits
    for before, start, end in marks:
        if between is not None:
            before.record()
            between()
        start.record()
        work()
        end.record()
    is_fed = not marks[0][1].query()
    torch.cuda.synchronize()
    return is_fed


PROBE_CYCLES = 200_000
"""About 0.1 ms: a driver gives the programs on a GPU slices of about 2 ms in turn."""


def own_share(torch: Any, device: str) -> float | None:
    """Return what part of a GPU's time this process gets while it works: 0.5 beside one other.

    Short kernels fit into the slices that it gets; the time between them is another's. None where
    they could not be queued fast enough, and on a CPU, which always has others.
    """
    if not device.startswith("cuda"):
        return None
    spin = functools.partial(torch.cuda._sleep, PROBE_CYCLES)  # noqa: SLF001
    timed = time_all(torch, device, spin, CHUNK)
    return min(1.0, timed.share) if timed.is_fed else None


def rounds_for(seconds: float, one_s: float, least: int = 5, most: int = MOST) -> int:
    """Return how many rounds of `one_s` seconds each fill `seconds`."""
    return max(least, min(most, round(seconds / max(one_s, 1e-9))))
