"""What must hold between ranks: distinct places, right gradients, equal replicas."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from _harness.ranks import node_name
from contract.verdicts import NotPassed

from .models import loss_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _harness.main import Session
    from _harness.ranks import Group

    from .models import Batch


def gather_places(group: Any, *, pretend: bool) -> list[dict[str, Any]]:
    """Collect where every rank is; `pretend` makes this one's node another (an injected fault)."""
    cuda = group.device.startswith("cuda")
    properties = group.torch.cuda.get_device_properties(group.device) if cuda else None
    own = {
        "rank": group.ranks.rank,
        "node": f"not-{node_name()}" if pretend else node_name(),
        "node_rank": int(os.environ.get("GROUP_RANK", os.environ.get("NODE_RANK", "0"))),
        "device": group.device,
        "gpu": properties.name if properties else None,
        "uuid": str(getattr(properties, "uuid", "")) or None if properties else None,
    }
    every: list[dict[str, Any]] = [{} for _ in range(group.ranks.world)]
    group.dist.all_gather_object(every, own)
    return every


def require_distinct(places: list[dict[str, Any]]) -> None:
    """Raise where two nodes have one node rank, or two ranks one whole GPU."""
    nodes: dict[int, str] = {}
    for place in places:
        first = nodes.setdefault(place["node_rank"], place["node"])
        if first != place["node"]:
            reason = f"NODE_RANK {place['node_rank']} is that of {first} and of {place['node']}"
            raise NotPassed("FAIL", "node_rank_clash", reason)
    gpus = [(place["node"], place["uuid"]) for place in places if place["uuid"]]
    if len(set(gpus)) < len(gpus):
        raise NotPassed("FAIL", "gpu_mismatch", "two ranks share one GPU")


GRADIENT_TOLERANCE = 1e-4  # relative: fp32 sums in another order differ by some 1e-7


def of_whole_batch(model: torch.nn.Module, batch: Batch, device: str) -> list[torch.Tensor]:
    """Return the gradients of the whole batch in this process alone."""
    x, y = batch
    loss_of(model(x.to(device)), y.to(device)).backward()
    grads = (parameter.grad for parameter in model.parameters())
    return [grad.clone() for grad in grads if grad is not None]


def report_gradients(
    session: Session, group: Group, gradients: list[torch.Tensor], expected: list[torch.Tensor]
) -> None:
    """Report whether gradients are those of one process, as the test that runs."""
    if session.faults.get("gradient"):
        gradients[0] *= group.ranks.world + 1
    with session.attempt(session.test, device=group.device):
        details = _require_close(gradients, expected, group.ranks.rank)
        session.report.add(session.test, "PASS", device=group.device, details=details)


def _require_close(
    gradients: list[torch.Tensor], expected: list[torch.Tensor], rank: int
) -> dict[str, float]:
    """Compare gradients, raise for a difference beyond rounding; return it."""
    pairs = list(zip(gradients, expected, strict=True))
    distance = sum(float((a.float() - b).norm()) ** 2 for a, b in pairs) ** 0.5
    length = sum(float(b.norm()) ** 2 for _, b in pairs) ** 0.5
    relative = distance / length
    if not relative <= GRADIENT_TOLERANCE:  # written so that NaN fails
        ratio = sum(float(a.float().norm()) ** 2 for a, _ in pairs) ** 0.5 / length
        reason = (
            f"rank {rank}: gradients at step 0 are {relative:.2g} off one process's own"
            f" (gate {GRADIENT_TOLERANCE:g}), {ratio:.2f} times as long"
        )
        raise NotPassed("FAIL", "gradient_mismatch", reason)
    return {"relative_difference": relative, "gate": GRADIENT_TOLERANCE}


SMALL = 1 << 16
"""Elements of tensors that are taken together: for small ones each operation costs the same."""


def fingerprint(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Sum the bits of tensors with odd weights, in 64-bit integers that wrap around.

    An odd weight is invertible modulo 2 ** 64, so that no change of a single element is lost.
    """
    total = torch.zeros((), dtype=torch.int64)
    for words in _together([_words(tensor) for tensor in tensors]):
        weights = 2 * torch.arange(words.numel(), device=words.device) + 1
        total = total.to(words.device) * 1_000_003 + (words * weights).sum()
    return total


def _words(tensor: torch.Tensor) -> torch.Tensor:
    kind = torch.int32 if tensor.element_size() == 4 else torch.uint8
    return tensor.detach().contiguous().flatten().view(kind)


def _together(vectors: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Give small vectors as one, and then the large ones, as 64-bit integers."""
    small = [each.to(torch.int64) for each in vectors if each.numel() <= SMALL]
    if small:
        yield torch.cat(small)
    yield from (each.to(torch.int64) for each in vectors if each.numel() > SMALL)


def require_equal(model: torch.nn.Module, group: Any, step: int) -> None:
    """Compare all replicas; raise, naming the ranks that differ from most."""
    # With its number, each part is told from a copy of another.
    own_print = fingerprint(model.parameters())
    own = torch.stack([own_print, torch.full_like(own_print, group.ranks.rank)])
    every = [torch.zeros_like(own) for _ in range(group.ranks.world)]
    group.dist.all_gather(every, own)
    prints, places = zip(*(each.tolist() for each in every), strict=True)
    if list(places) != list(range(group.ranks.world)) or prints[group.ranks.rank] != int(own_print):
        reason = f"rank {group.ranks.rank}: all_gather delivered other parts than the ranks gave"
        raise NotPassed("FAIL", "wrong_collective", reason, details={"step": step})
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
