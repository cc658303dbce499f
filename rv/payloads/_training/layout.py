"""Who is where: each rank's node, node rank and device, and that no two nodes share a rank."""

from __future__ import annotations

import os
from typing import Any

from _harness.ranks import node_name
from contract.verdicts import NotPassed


def gather(group: Any, *, pretend: bool) -> list[dict[str, Any]]:
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
