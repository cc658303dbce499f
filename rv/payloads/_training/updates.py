"""Each update of weights and moments, against AdamW's formula; and that nothing else changes them.

Replicas that are equal may all have been updated wrongly, and a shard has no replica. So what this
rank holds is copied before a step, and after it compared with what the formula makes of the copy
and of the gradient that is left. Until the next step no bit of it may change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from contract.verdicts import NotPassed

from .checks import fingerprint, flip_bit_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _harness.main import Session

MOMENTS = ("exp_avg", "exp_avg_sq")
MOST = 1 << 23
"""Elements that are compared in a step, of all tensors alike: of larger ones others in the next."""
ROUNDING = 1e-5
"""How far a weight or moment may be off, as a part of what was added up: fp32 rounds at 6e-8."""


@dataclass(frozen=True)
class Held:
    """Parts of weights, and of the means of their gradients and of the squares of these."""

    weight: torch.Tensor
    mean: torch.Tensor
    square: torch.Tensor


class Updates:
    """What was found in the steps of one optimizer, which must be torch's AdamW."""

    def __init__(self, session: Session, optimizer: Any) -> None:
        self.session, self.optimizer = session, optimizer
        self.most = MOST // sum(len(group["params"]) for group in optimizer.param_groups)
        self.found: list[str] = []
        self.steps = 0
        self.worst = 0.0
        self.compared = self.elements = 0
        self._held: list[Held] = []
        self._bits: int | None = None

    @torch.no_grad()
    def before(self, step: int) -> None:
        """Compare all bits with those that the last step left, and copy what is held."""
        self._require_untouched(step)
        self._held = [self._copy(group["params"], step) for group in self.optimizer.param_groups]

    @torch.no_grad()
    def after(self, step: int) -> None:
        """Compare what a step made with the formula, and sum its bits up."""
        if self.session.faults.get("lost-update", step=step):
            self._lose_update(step)
        groups = zip(self.optimizer.param_groups, self._held, strict=True)
        worst = float(torch.stack([self._off(group, held, step) for group, held in groups]).max())
        self.steps += 1
        self.compared += sum(held.weight.numel() for held in self._held)
        self.elements += sum(
            _local(p).numel() for g in self.optimizer.param_groups for p in g["params"]
        )
        if worst <= 1:
            self.worst = max(self.worst, worst)
        else:  # NaN too
            self.found.append(f"step {step}: weights or moments are not what AdamW makes of them")
        self._bits = int(fingerprint(self._tensors()))
        if self.session.faults.get("flipped-weight", step=step):
            flip_bit_of(next(self._tensors()))

    def report(self, device: str, test: str) -> None:
        """Report what was found, as this test."""
        self._require_untouched(self.steps)
        details = {
            "steps_compared": self.steps,
            "elements_compared": self.compared,
            "elements": self.elements,
            "of_the_gate": self.worst,
            "gate": ROUNDING,
        }
        with self.session.attempt(test, device=device, details=details):
            if self.found:
                more = f" (and {len(self.found) - 1} more)" if len(self.found) > 1 else ""
                reason = f"rank {self.session.ranks.rank}: {self.found[0]}{more}"
                raise NotPassed("FAIL", "wrong_result", reason)
            self.session.report.add(test, "PASS", device=device, details=details)

    @torch.no_grad()
    def _require_untouched(self, step: int) -> None:
        if self._bits is not None and int(fingerprint(self._tensors())) != self._bits:
            self.found.append(f"before step {step}: weights or moments changed after an update")
        self._bits = None

    def _tensors(self) -> Iterator[torch.Tensor]:
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                yield _local(parameter)
                state = self.optimizer.state.get(parameter, {})
                yield from (_local(state[name]) for name in MOMENTS if name in state)

    def _copy(self, parameters: list[torch.Tensor], step: int) -> Held:
        """Copy parts of parameters and moments, one after the other: zeros for what has none."""
        weights = [self._part(parameter, step) for parameter in parameters]
        states = [self.optimizer.state.get(parameter, {}) for parameter in parameters]
        moments = [
            [
                self._part(state[name], step) if name in state else torch.zeros_like(weight)
                for state, weight in zip(states, weights, strict=True)
            ]
            for name in MOMENTS
        ]
        return Held(*map(torch.cat, (weights, *moments)))

    def _off(self, group: dict[str, Any], held: Held, step: int) -> torch.Tensor:
        """Return how far the farthest element of a group is off, as a part of what may be."""
        given = group["params"]
        came = self._copy(given, step)
        grads = [self._part(p if p.grad is None else p.grad, step) for p in given]
        counts = [
            0 if p.grad is None else int(self.optimizer.state.get(p, {}).get("step", 1))
            for p in given
        ]
        right, allowed = adamw(group, held, torch.cat(grads), _repeated(counts, grads))
        ratios = [
            (getattr(came, name) - getattr(right, name)).abs() / getattr(allowed, name)
            for name in ("weight", "mean", "square")
        ]
        return torch.cat([*ratios, held.weight.new_zeros(1)]).max()

    def _part(self, tensor: torch.Tensor, step: int) -> torch.Tensor:
        """Return what is compared of a tensor in a step, as a view."""
        flat = _local(tensor).view(-1)
        pieces = max(1, -(-flat.numel() // self.most))
        return flat[(step % pieces) * self.most :][: self.most]

    def _lose_update(self, step: int) -> None:
        first = self._part(self.optimizer.param_groups[0]["params"][0], step)
        first.copy_(self._held[0].weight[: first.numel()])


def adamw(
    group: dict[str, Any], held: Held, grad: torch.Tensor, steps: torch.Tensor
) -> tuple[Held, Held]:
    """Return what is made of weights and moments, and how far rounding may put each off.

    `steps` counts the updates of each element, this one included; with 0 it has no gradient, and
    stays. I. Loshchilov and F. Hutter, "Decoupled weight decay regularization", 2019, algorithm 2.
    """
    (beta1, beta2), rate, has_gradient = group["betas"], group["lr"], (steps > 0).double()
    weight, grad = held.weight.double(), grad.double() * has_gradient
    mean = held.mean.double().lerp(grad, (1 - beta1) * has_gradient)
    square = held.square.double().lerp(grad**2, (1 - beta2) * has_gradient)
    since = steps.clamp(min=1)
    root = (square / (1 - beta2**since)).sqrt() + group["eps"]
    change = mean / (1 - beta1**since) / root + group["weight_decay"] * weight
    allowed = Held(
        ROUNDING * (weight.abs() / 10 + rate),
        ROUNDING * (held.mean.abs() + grad.abs()) + 1e-37,
        ROUNDING * square + 1e-36,
    )
    return Held(weight - rate * change * has_gradient, mean, square), allowed


def _repeated(counts: list[int], like: list[torch.Tensor]) -> torch.Tensor:
    """Give each tensor's count, in double precision, for each of its elements."""
    sizes = torch.tensor([each.numel() for each in like])
    return torch.tensor(counts).double().repeat_interleave(sizes).to(like[0].device)


def _local(tensor: Any) -> torch.Tensor:
    """Return what this rank holds of a tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
