"""How fast the steps are, and what part of a step is waiting for gradients of the others."""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import TYPE_CHECKING, Any

from _harness import timing
from contract.schema import HIGHER, LOWER, metric

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 10


def metrics_of(seconds: list[float], samples: int, parameters: int) -> list[dict[str, Any]]:
    """Sum up the times of steps: milliseconds, samples a second, and the model's own TFLOPS.

    A step is taken to do 6 operations a parameter and sample: forward 2, backward 4.
    """
    steady = seconds[len(seconds) // 5 :] or seconds
    rates = [samples / each for each in steady]
    return [
        metric("step_ms", [each * 1e3 for each in steady], "ms", LOWER),
        metric("samples_per_s", rates, "1/s", HIGHER),
        metric("model_tflops", [6 * parameters * rate / 1e12 for rate in rates], "TFLOPS", HIGHER),
    ]


def exposed_share(model: Any, step: Callable[[], object], device: str) -> dict[str, Any]:
    """Compare steps that synchronize gradients with steps that do not: what is lost waiting."""
    import torch

    def timed(around: Any) -> float:
        with around:
            step()
            times = []
            for _ in range(ROUNDS):
                timing.synchronize(torch, device)
                start = time.perf_counter()
                step()
                timing.synchronize(torch, device)
                times.append(time.perf_counter() - start)
        return statistics.median(times)

    alone, together = timed(model.no_sync()), timed(contextlib.nullcontext())
    share = max(0.0, 1 - alone / together)
    return metric("exposed_communication", [share], "share", LOWER)
