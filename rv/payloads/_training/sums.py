"""Gradients while a training runs, against the same step computed by this process alone.

Equal replicas may all have a wrong gradient, and a loss falls with the gradient of one rank, too.
So a model that no other rank touches takes the parameters of a step before it is done, and computes
the parts of all ranks one after the other; what the ranks have together must be the mean of these.
"""

from __future__ import annotations

import math
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
ELEMENT, ELEMENT_ROUNDED = 1e-3, 0.25
"""How far one element may be off, in fp32 and in bfloat16, as a part of itself and of its tensor's
root mean square together: a few wrong ones are lost in the length of all."""


class Sums:
    """The model of this process alone, and what was found in the steps that it did too."""

    def __init__(self, alone: torch.nn.Module, device: str, steps: Collection[int]) -> None:
        self.alone, self.device, self.steps = alone.to(device), device, set(steps)
        self.gate, self.element_gate = GRADIENT_TOLERANCE, ELEMENT
        self.differences: dict[int, float] = {}
        self.elements: dict[int, float] = {}
        self._first = 0.0
        self._sizes: dict[int, float] = {}

    def round_to(self, dtype: torch.dtype) -> None:
        """Compute in a shorter type, as the sharded model does: parameters alone are rounded."""
        self.gate, self.element_gate = ROUNDED, ELEMENT_ROUNDED
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
        distance = length = farthest = 0.0
        for number, (given, right) in enumerate(zip(parameters, self._mean(parts), strict=True)):
            off = _gradient(given) - right
            distance += float(off.norm()) ** 2
            length += float(right.norm()) ** 2
            farthest = _larger(farthest, self._farthest(number, off, right))
        self._first = self._first or length**0.5
        self.differences[step] = distance**0.5 / max(length**0.5, FLOOR * self._first, 1e-30)
        self.elements[step] = farthest

    def _farthest(self, number: int, off: torch.Tensor, right: torch.Tensor) -> float:
        """Return how far the farthest element of a tensor is off, beside itself and the tensor."""
        size = float(right.square().mean().sqrt())
        floor = max(size, FLOOR * self._sizes.setdefault(number, size), 1e-30)
        return float((off.abs() / (right.abs() + floor)).max())

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
        details: dict[str, Any] = {
            "steps_compared": sorted(self.differences),
            "largest_difference": _largest(self.differences),
            "gate": self.gate,
            "largest_of_an_element": _largest(self.elements),
            "gate_of_an_element": self.element_gate,
        }
        with session.attempt(test, device=self.device, details=details):
            wrong = self._wrong()
            if wrong:
                reason = f"rank {session.ranks.rank}: {wrong}"
                raise NotPassed("FAIL", "gradient_mismatch", reason)
            session.report.add(test, "PASS", device=self.device, details=details)

    def _wrong(self) -> str:
        """Say what is wrong with the gradients, "" for nothing."""
        elements = "single elements of a gradient are"
        return _told(self.differences, self.gate, "the gradients are", "off") or _told(
            self.elements, self.element_gate, elements, "of an element off"
        )


def _told(differences: dict[int, float], gate: float, what: str, off: str) -> str:
    bad = {step: each for step, each in differences.items() if not each <= gate}  # NaN too
    if not bad:
        return ""
    step = min(bad)
    steps = f"in {len(bad)} of {len(differences)} steps {what} not the mean over the ranks"
    return f"{steps}: step {step} is {bad[step]:.2g} {off} (gate {gate:g})"


def _largest(values: dict[int, float]) -> float | None:
    finite = [each for each in values.values() if math.isfinite(each)]
    return max(finite, default=None)


def _larger(one: float, other: float) -> float:
    """Return the larger; NaN where one is."""
    return other if other > one or math.isnan(other) else one


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    if parameter.grad is None:
        return torch.zeros(parameter.shape, device=parameter.device)
    return _whole(parameter.grad).float()


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Gather a sharded tensor; all ranks must ask."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def spread(steps: int, most: int) -> list[int]:
    """Return up to so many steps, spread evenly, the last one always."""
    count = max(1, min(steps, most))
    return sorted({steps - 1 - place * steps // count for place in range(count)})
