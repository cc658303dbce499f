"""Are the averaged gradients those of one process that sees the whole batch?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.verdicts import NotPassed

from .models import loss_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from .data import Batch

TOLERANCE = 1e-4  # relative: fp32 sums in another order differ by some 1e-7


def of_whole_batch(model: torch.nn.Module, batch: Batch, device: str) -> list[torch.Tensor]:
    """Give the gradients of the whole batch in this process alone."""
    x, y = batch
    loss_of(model(x.to(device)), y.to(device)).backward()
    grads = (parameter.grad for parameter in model.parameters())
    return [grad.clone() for grad in grads if grad is not None]


def require_close(
    found: Iterable[torch.Tensor], expected: list[torch.Tensor], rank: int
) -> dict[str, float]:
    """Compare gradients, raise for a difference beyond rounding; give it."""
    pairs = list(zip(found, expected, strict=True))
    distance = sum(float((a.float() - b).norm()) ** 2 for a, b in pairs) ** 0.5
    length = sum(float(b.norm()) ** 2 for _, b in pairs) ** 0.5
    relative = distance / length
    if not relative <= TOLERANCE:  # written so that NaN fails
        ratio = sum(float(a.float().norm()) ** 2 for a, _ in pairs) ** 0.5 / length
        reason = (
            f"rank {rank}: gradients at step 0 are {relative:.2g} off one process's own"
            f" (gate {TOLERANCE:g}), {ratio:.2f} times as long"
        )
        raise NotPassed("FAIL", "gradient_mismatch", reason)
    return {"relative_difference": relative, "gate": TOLERANCE}
