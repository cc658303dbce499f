"""A GPU that only keeps time, for what no machine without one can run: a queue beside a host's clock.

It is as much of `torch.cuda` as `_harness.timing` uses. What runs on it is `work(seconds)`.
"""

from __future__ import annotations

import contextlib
from typing import Any

CYCLE_S = 0.5e-9
"""`_sleep` of 20,000,000 cycles is 10 ms."""
CALL_S = 20e-6
"""What the host takes to queue one thing."""


class MadeGpu:
    """Stands for `torch`: `host_s` is the host's clock, `free_s` when the device has done all.

    `call_s` is what each thing that is queued costs the host.
    """

    def __init__(self, call_s: float = CALL_S) -> None:
        self.call_s = call_s
        self.host_s = self.free_s = 0.0
        self.sleeps: list[int] = []
        self.cuda = self
        self.device = lambda _name: contextlib.nullcontext()

    def perf_counter(self) -> float:
        """The host's clock, which each look moves."""
        self.host_s += 1e-7
        return self.host_s

    def work(self, seconds: float) -> None:
        """Queue work of so many seconds."""
        self.host_s += self.call_s
        self.free_s = max(self.free_s, self.host_s) + seconds

    def _sleep(self, cycles: int) -> None:
        self.sleeps.append(cycles)
        self.work(cycles * CYCLE_S)

    def synchronize(self, _device: str = "") -> None:
        self.host_s = max(self.host_s, self.free_s)

    def Event(self, **_: Any) -> MadeEvent:  # noqa: N802 - torch's name
        return MadeEvent(self)


class MadeEvent:
    """A mark in the queue."""

    def __init__(self, gpu: MadeGpu) -> None:
        self._gpu, self.at = gpu, 0.0

    def record(self) -> None:
        self._gpu.work(0.0)
        self.at = self._gpu.free_s

    def query(self) -> bool:
        return self._gpu.host_s >= self.at

    def elapsed_time(self, end: MadeEvent) -> float:
        return (end.at - self.at) * 1e3
