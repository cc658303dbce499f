"""Pairs of nodes: a node that is slow with every partner is itself the slow one."""

from __future__ import annotations

import statistics
from typing import NamedTuple


class Pair(NamedTuple):
    """Two nodes and the bus bandwidth between them, GB/s."""

    one: str
    other: str
    busbw: float


def rounds(nodes: int, how: str) -> list[list[tuple[int, int]]]:
    """Give rounds of disjoint pairs: `all` meet each other once, `quick` has each meet once.

    The circle method of tournaments; in `quick` an odd node meets the first one afterwards.
    """
    if nodes < 2:
        return []
    if how == "quick":
        paired = [[(node, node + 1) for node in range(0, nodes - 1, 2)]]
        return [*paired, [(0, nodes - 1)]] if nodes % 2 else paired
    seats = list(range(nodes + nodes % 2))
    half = len(seats) // 2
    every = []
    for _ in range(len(seats) - 1):
        met = [(seats[place], seats[-1 - place]) for place in range(half)]
        every.append([(min(pair), max(pair)) for pair in met if max(pair) < nodes])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return every


def slow_nodes(pairs: list[Pair], lower: float) -> list[str]:
    """Name the nodes whose best pair is below `lower` of the median of all nodes' best pairs.

    With one pair there is nothing to compare with.
    """
    if len(pairs) < 2:
        return []
    best: dict[str, float] = {}
    for pair in pairs:
        for node in (pair.one, pair.other):
            best[node] = max(best.get(node, 0.0), pair.busbw)
    middle = statistics.median(best.values())
    return sorted(node for node, speed in best.items() if speed < lower * middle)
