"""Did the loss fall? First and last steps are compared, so that one epoch is enough to tell."""

from __future__ import annotations

import math
import statistics
from typing import Any

from contract.verdicts import NotPassed

MUST_FALL_TO = 0.8  # of the start; the seeds' own gate of distributed training


def window(steps: int) -> int:
    """Give how many steps to average at either end: a fifth, at most 10."""
    return max(1, min(10, steps // 5))


def judge(losses: list[float]) -> dict[str, Any]:
    """Give start, end and whether it improved; raise for a loss that is no number or stays up."""
    bad = next((step for step, loss in enumerate(losses) if not math.isfinite(loss)), None)
    if bad is not None:
        reason = f"the loss of step {bad} is {losses[bad]}"
        raise NotPassed("FAIL", "nan_loss", reason, details={"step": bad})
    size = window(len(losses))
    start, end = statistics.fmean(losses[:size]), statistics.fmean(losses[-size:])
    found = {"loss_start": start, "loss_end": end, "improved": end < MUST_FALL_TO * start}
    if not found["improved"]:
        steps = f"in {len(losses)} steps, not below {MUST_FALL_TO:g} of the start"
        reason = f"loss {start:.4f} -> {end:.4f} {steps}"
        raise NotPassed("FAIL", "loss_not_falling", reason, details=found)
    return found
