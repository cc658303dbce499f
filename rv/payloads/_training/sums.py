"""Gradients while a training runs, against the same step computed by this process alone.

Equal replicas may all have a wrong gradient, and a loss falls with the gradient of one rank, too.
So a model that no other rank touches takes the parameters of a step before it is done, and computes
the parts of all ranks one after the other; what the ranks have together must be the mean of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from contract.verdicts import NotPassed

from .checks import GRADIENT_TOLERANCE
from .models import loss_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from _harness.main import Session

    from .models import Batch

ROUNDED = 2e-2
"""The gate where the model computes in bfloat16: a sum of fewer ranks is off by far more."""
FLOOR = 1e-2
"""Of the first gradient's length: shorter ones are sums that cancel, and are held against that."""


class Sums:
    """The model of this process alone, and what was found in the steps that it did too."""

    def __init__(self, alone: torch.nn.Module, device: str, steps: Collection[int]) -> None:
        self.alone, self.device, self.steps = alone.to(device), device, set(steps)
        self.gate = GRADIENT_TOLERANCE
        self.differences: dict[int, float] = {}
        self._first = 0.0

    def round_to(self, dtype: torch.dtype) -> None:
        """Compute in a shorter type, as the sharded model does: parameters alone are rounded."""
        self.gate = ROUNDED
        for parameter in self.alone.parameters():
            parameter.data = parameter.data.to(dtype)

    @torch.no_grad()
    def before(self, step: int, parameters: Sequence[torch.Tensor]) -> None:
        """Take the parameters that a step begins with."""
        if step in self.steps:
            for own, given in zip(self.alone.parameters(), parameters, strict=True):
                own.copy_(_whole(given))

    def after(self, step: int, parameters: Sequence[torch.Tensor], parts: Sequence[Batch]) -> None:
        """Compare the gradients that a step left with the mean over the parts."""
        if step not in self.steps:
            return
        expected = self._mean(parts)
        distance = length = 0.0
        for given, right in zip(parameters, expected, strict=True):
            grad = torch.zeros_like(right) if given.grad is None else _whole(given.grad)
            distance += float((grad.float() - right).norm()) ** 2
            length += float(right.norm()) ** 2
        self._first = self._first or length**0.5
        self.differences[step] = distance**0.5 / max(length**0.5, FLOOR * self._first, 1e-30)

    def _mean(self, parts: Sequence[Batch]) -> list[torch.Tensor]:
        sums = [torch.zeros(p.shape, device=self.device) for p in self.alone.parameters()]
        for x, y in parts:
            self.alone.zero_grad()
            loss_of(self.alone(x.to(self.device)), y.to(self.device)).backward()
            for total, parameter in zip(sums, self.alone.parameters(), strict=True):
                if parameter.grad is not None:
                    total.add_(parameter.grad.float() / len(parts))
        return sums

    def report(self, session: Session, test: str) -> None:
        """Report the largest difference, and which steps were compared."""
        bad = {step: each for step, each in self.differences.items() if not each <= self.gate}
        details: dict[str, Any] = {
            "steps_compared": sorted(self.differences),
            "largest_difference": max(self.differences.values(), default=None),
            "gate": self.gate,
        }
        with session.attempt(test, device=self.device, details=details):
            if bad:
                step = min(bad)
                reason = (
                    f"rank {session.ranks.rank}: in {len(bad)} of {len(self.differences)} steps the"
                    f" gradients are not the mean over the ranks: step {step} is {bad[step]:.2g}"
                    f" off (gate {self.gate:g})"
                )
                raise NotPassed("FAIL", "gradient_mismatch", reason)
            session.report.add(test, "PASS", device=self.device, details=details)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Gather a sharded tensor; all ranks must ask."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def spread(steps: int, most: int) -> list[int]:
    """Return up to so many steps, spread evenly, the last one always."""
    count = max(1, min(steps, most))
    return sorted({steps - 1 - place * steps // count for place in range(count)})
