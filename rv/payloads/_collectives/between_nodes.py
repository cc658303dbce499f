"""What the network between nodes carries: all-reduces that go over it alone, all at once.

The ranks of one place on their nodes (all first GPUs, all second ones, …) are a group each, so that
every sum crosses the network and all adapters of a node are at work. The rate of a node is the sum
of its groups' bus bandwidths.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from contract.fabrics import LONG_S
from contract.schema import HIGHER, metric

from .measure import Row, measure
from .operations import OPERATIONS

if TYPE_CHECKING:
    from _harness.main import Session

    from .measure import Field

NBYTES = {"cuda": 256 << 20, "cpu": 1 << 20}
SECONDS = 0.5
TEST = "allreduce.between_nodes"


def check(session: Session, field: Field, largest: Row) -> None:
    """Measure and report the rate between nodes; every rank of several nodes must call.

    `largest` is the largest size that was measured: where that took long, no larger one is taken.
    """
    places = places_of([int(one[0]) for one in field.gather([float(session.ranks.node)])])
    usual = NBYTES[field.device.partition(":")[0]]
    nbytes = min(usual, largest.nbytes) if largest.middle >= LONG_S else usual
    row = _own_row(field, places, nbytes)
    busbw = row.busbw * row.of_median if row else 0.0
    wrong = row.wrong if row else 0
    every = field.gather([busbw, float(wrong)])
    rates = [sum(every[ranks[at]][0] for ranks in places) for at in range(len(places[0]))]
    total = int(sum(found for _, found in every))
    session.say("DDP", f"between nodes: {min(rates):.3f} GB/s a node, {len(places)} groups at once")
    name = TEST if session.ranks.rank == 0 else f"{TEST}.rank"
    session.report.add(name, **_verdict(total), **_figures(session, nbytes, places, rates))


def places_of(nodes: list[int]) -> list[list[int]]:
    """Return the ranks of each place, one of every node; `nodes` has the node of each rank."""
    by_node: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        by_node.setdefault(node, []).append(rank)
    fewest = min(map(len, by_node.values()))
    return [[ranks[place] for ranks in by_node.values()] for place in range(fewest)]


def _own_row(field: Field, places: list[list[int]], nbytes: int) -> Row | None:
    """Measure this rank's group, while the others measure theirs; None for a rank in none."""
    groups = [field.dist.new_group(ranks) for ranks in places]  # every rank must ask
    row = None
    for ranks, group in zip(places, groups, strict=True):
        if field.rank in ranks:
            near = replace(field, rank=ranks.index(field.rank), world=len(ranks), group=group)
            total = nbytes // field.item_bytes
            row = measure(near, OPERATIONS["all_reduce"], total, budget_s=SECONDS, iters=10)
    for group in groups:
        if group != field.dist.GroupMember.NON_GROUP_MEMBER:
            field.dist.destroy_process_group(group)
    return row


def _verdict(wrong: int) -> dict[str, str]:
    if not wrong:
        return {"status": "PASS"}
    reason = f"{wrong} wrong elements between nodes"
    return {"status": "FAIL", "code": "wrong_collective", "reason": reason}


def _figures(
    session: Session, nbytes: int, places: list[list[int]], rates: list[float]
) -> dict[str, Any]:
    """Return what rank 0 reports besides the verdict: the least node's rate is the value."""
    if session.ranks.rank:
        return {}
    size = {"bytes": nbytes, "nodes": len(rates)}
    rate = metric("busbw_a_node", rates, "GB/s", HIGHER, value=min(rates), **size)
    return {"metrics": [rate], "details": {**size, "groups": len(places), "by_node": rates}}
