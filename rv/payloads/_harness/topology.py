"""What joins the GPUs that this process sees: NVLink, PCIe switches or the host."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from contract.nvidia import connections
from contract.rates import model_of
from contract.readings import bare
from contract.references import GPUS
from contract.topology import link_share, share_together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.topology import Connection

Topology = dict[tuple[str, str], "Connection"]
"""By the labels of two GPUs (`cuda:0`), both ways; a pair of which nothing is known is left out."""


def topology_of(described: Sequence[dict[str, Any]]) -> Topology:
    """Ask nvidia-smi what joins GPUs, which are described as in a result; {} for fewer than two."""
    labels = {bare(str(each.get("uuid") or "")): f"cuda:{each['index']}" for each in described}
    if len(described) < 2:
        return {}
    return {
        (labels[one], labels[other]): connection
        for (one, other), connection in connections().items()
        if one in labels and other in labels
    }


def share_of_pairs(described: Sequence[dict[str, Any]], found: Topology) -> float | None:
    """Return what part of its NVLinks a pair of these GPUs has (`topology.link_share`).

    None where they are of several models, or a pair is not known.
    """
    known = _connections_between(described, found)
    return link_share(_links(described), known) if known else None


def share_of_ranks(described: Sequence[dict[str, Any]], ranks: int) -> float | None:
    """Return the same for a collective of the first so many GPUs, one a rank."""
    used = described[:ranks]
    known = _connections_between(used, topology_of(used)) if len(used) == ranks else []
    return share_together(_links(used), known) if known else None


def _connections_between(described: Sequence[dict[str, Any]], found: Topology) -> list[Connection]:
    """Return what joins each two; none where anything is unknown."""
    labels = [f"cuda:{each['index']}" for each in described]
    pairs = list(itertools.combinations(labels, 2))
    return [found[pair] for pair in pairs] if all(pair in found for pair in pairs) else []


def _links(described: Sequence[dict[str, Any]]) -> int:
    """Return the NVLinks of the one model; 0 for several, and where they join no whole node."""
    models = {model_of(each["name"]) for each in described}
    model = GPUS.get(models.pop(), {}) if len(models) == 1 else {}
    return int(model["links"]) if model.get("mesh") else 0
