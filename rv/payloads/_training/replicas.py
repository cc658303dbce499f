"""Are the replicas of a model the same on all ranks, to the last bit?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    from collections.abc import Iterable


def fingerprint(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Sum the bits of tensors with odd weights, in 64-bit integers that wrap around.

    An odd weight is invertible modulo 2 ** 64, so that no change of a single element is lost.
    """
    total = torch.zeros((), dtype=torch.int64)
    for tensor in tensors:
        bits = tensor.detach().contiguous().flatten().view(torch.uint8).to(torch.int64)
        weights = 2 * torch.arange(bits.numel(), device=bits.device) + 1
        total = total.to(bits.device) * 1_000_003 + (bits * weights).sum()
    return total


def require_equal(model: torch.nn.Module, group: Any, step: int) -> None:
    """Compare all replicas; raise, naming the ranks that differ from most."""
    own = fingerprint(model.parameters()).reshape(1)
    every = [torch.zeros_like(own) for _ in range(group.ranks.world)]
    group.dist.all_gather(every, own)
    prints = [int(each) for each in every]
    if len(set(prints)) == 1:
        return
    usual = max(prints, key=prints.count)
    strange = [rank for rank, each in enumerate(prints) if each != usual]
    where = ", ".join(f"rank {rank} on {group.hosts[rank]}" for rank in strange)
    reason = f"after step {step} the parameters of {where} differ from the other replicas'"
    details = {"step": step, "ranks": strange}
    raise NotPassed("FAIL", "replica_divergence", reason, details=details)


def flip_bit(model: torch.nn.Module) -> None:
    """Flip the lowest bit of one weight: the smallest fault there is."""
    flip_bit_of(next(model.parameters()).data)


def flip_bit_of(weight: torch.Tensor) -> None:
    """Flip the lowest bit of one element of an fp32 tensor."""
    weight.view(torch.int32).flatten()[7] ^= 1
