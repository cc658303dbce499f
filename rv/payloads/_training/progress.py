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

from .models import loss_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from _harness.main import Session
    from _harness.ranks import Group

    from .models import Batch


MUST_FALL_TO = 0.8  # of the start: the gate of the acceptance programs before rv
RATE = 3e-3
"""AdamW's learning rate."""


def optimizer_of(session: Session, model: Any) -> Any:
    """Make the optimizer; with the fault `no-learning`, one that changes nothing."""
    rate = 0.0 if session.faults.get("no-learning") else RATE
    return session.torch.optim.AdamW(model.parameters(), lr=rate)


def one_step(model: Any, optimizer: Any, batch: Batch) -> Any:
    """Do one step; return its loss, still on the device."""
    optimizer.zero_grad()
    loss = loss_of(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return loss.detach()


def averaged(group: Group, losses: list[Any]) -> list[float]:
    """Return each step's loss, averaged over the ranks."""
    mean = group.torch.stack(losses)
    group.dist.all_reduce(mean)
    return [float(loss) for loss in mean / group.ranks.world]


def judge(
    session: Session, group: Group, model: Any, losses: list[float], seconds: list[float],
    facts: dict[str, Any], *, more: str = "",
) -> None:  # fmt: skip
    """Report whether the loss fell, and how fast the steps were; `more` is for the screen."""
    device, world = group.device, group.ranks.world
    facts = {"world": world, "steps": len(losses), "losses": losses, **facts}
    with session.attempt(session.test, device=device, details=facts):
        trained = judge_losses(losses)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        metrics = metrics_of(seconds, session.options.batch_size, parameters)
        details = {**facts, **trained}
        session.report.add(session.test, "PASS", device=device, metrics=metrics, details=details)
        fell = f"loss {trained['loss_start']:.4f} -> {trained['loss_end']:.4f} improved=True"
        session.say("TRAIN", f"{device}: world={world}{more} {fell}")


def judge_losses(losses: list[float]) -> dict[str, Any]:
    """Return start, end and whether it improved; raise NotPassed for NaN or too small a fall."""
    bad = next((step for step, loss in enumerate(losses) if not math.isfinite(loss)), None)
    if bad is not None:
        reason = f"the loss of step {bad} is {losses[bad]}"
        raise NotPassed("FAIL", "nan_loss", reason, details={"step": bad})
    size = max(1, min(10, len(losses) // 5))
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


def exposed_share(
    session: Session, model: Any, step: Callable[[], object], device: str
) -> dict[str, Any]:
    """Compare steps that synchronize gradients with steps that do not: what is lost waiting."""

    def timed(around: Any) -> float:
        with around:
            step()
            times = []
            for _ in range(ROUNDS):
                timing.synchronize(session.torch, device)
                start = time.perf_counter()
                step()
                timing.synchronize(session.torch, device)
                times.append(time.perf_counter() - start)
        return statistics.median(times)

    alone, together = timed(model.no_sync()), timed(contextlib.nullcontext())
    share = max(0.0, 1 - alone / together)
    return metric("exposed_communication", [share], "share", LOWER)
