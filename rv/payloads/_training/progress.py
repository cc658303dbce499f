"""Whether the loss fell, how fast the steps are, and what part of a step is waiting."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from typing import TYPE_CHECKING, Any

from _harness import timing
from contract.schema import HIGHER, LOWER, metric
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    from collections.abc import Callable


MUST_FALL_TO = 0.8  # of the start: the gate of the acceptance programs before rv


def window(steps: int) -> int:
    """Return how many steps to average at either end: a fifth, at most 10."""
    return max(1, min(10, steps // 5))


def judge_losses(losses: list[float]) -> dict[str, Any]:
    """Return start, end and whether it improved; raise NotPassed for NaN or too small a fall."""
    bad = next((step for step, loss in enumerate(losses) if not math.isfinite(loss)), None)
    if bad is not None:
        reason = f"the loss of step {bad} is {losses[bad]}"
        raise NotPassed("FAIL", "nan_loss", reason, details={"step": bad})
    size = window(len(losses))
    start, end = statistics.fmean(losses[:size]), statistics.fmean(losses[-size:])
    facts = {"loss_start": start, "loss_end": end, "improved": end < MUST_FALL_TO * start}
    if not facts["improved"]:
        steps = f"in {len(losses)} steps, not below {MUST_FALL_TO:g} of the start"
        reason = f"loss {start:.4f} -> {end:.4f} {steps}"
        raise NotPassed("FAIL", "loss_not_falling", reason, details=facts)
    return facts


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
