"""Pairs of nodes: rounds in which all meet, and which node, link or pair is slow by their rates.

Shared by a job on all of the nodes (`allreduce.py --pairwise`) and by many jobs on two each
(`rv accept sweep --pairs`).
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from .stats import PEER_FAIL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MOST_OF_NODE = 0.5
"""A node is slow where more than this part of its pairs are."""

MOST_OF_LINK = 0.75
"""A link between leaves is slow where this part of the pairs across it are, or more."""

ON_CPU = 0.6
"""The loss from which a pair is slow without GPUs, where other programs take much of the time."""

_ENOUGH_LINKS = 3
"""From so many links between leaves on, they are compared with each other alone: a network whose
leaves are joined by less than they hold is slower between them by design."""


class Pair(NamedTuple):
    """Two nodes, the bus bandwidth between them, GB/s, and wrong elements."""

    one: str
    other: str
    busbw: float
    wrong: int = 0


class Slow(NamedTuple):
    """What is slow: its `ends` (a node, two leaves or two nodes), its median rate and the usual."""

    ends: tuple[str, ...]
    busbw: float
    usual: float
    pairs: int

    @property
    def share(self) -> float:
        """Its rate as a part of the usual."""
        return self.busbw / self.usual


class Blame(NamedTuple):
    """What slow pairs have in common: nodes, links between leaves, or nothing but themselves."""

    nodes: tuple[Slow, ...] = ()
    links: tuple[Slow, ...] = ()
    pairs: tuple[Slow, ...] = ()


def pairings(nodes: int, how: str) -> list[list[tuple[int, int]]]:
    """Return rounds of disjoint pairs: `all` meet each other once, `quick` has each meet once.

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


def blame(
    pairs: Sequence[Pair], leaves: Mapping[str, str] | None = None, loss: float = PEER_FAIL
) -> Blame:
    """Tell which nodes, links between leaves and pairs are slow: by more than `loss`.

    `leaves` has each node's switch.
    The usual rate is what the upper quarter of the pairs reach: of three nodes one slow makes two
    of three pairs slow. With one pair there is nothing to compare with. First come the links, of
    which each leaf has pairs of its own that are sound; then nodes, from the one whose pairs are
    slow most; what is left is a pair's alone.
    """
    known = {} if leaves is None else leaves
    usual = _usual_rates(pairs, known)
    if len(pairs) < 2:
        return Blame()
    slow = {pair for pair in pairs if pair.busbw < (1 - loss) * usual[pair]}
    links, left = _slow_links(pairs, slow, known)
    nodes, left = _slow_nodes(left, slow)
    return Blame(
        tuple(_told((node,), of, usual) for node, of in nodes),
        tuple(_told(link, of, usual) for link, of in links),
        tuple(_told((p.one, p.other), [p], usual) for p in left if p in slow),
    )


def _told(ends: tuple[str, ...], of: Sequence[Pair], usual: Mapping[Pair, float]) -> Slow:
    rate = statistics.median(pair.busbw for pair in of)
    return Slow(ends, rate, statistics.median(usual[pair] for pair in of), len(of))


def link_of(pair: Pair, leaves: Mapping[str, str]) -> tuple[str, ...]:
    """Return the two leaves that a pair joins, sorted; one where both nodes are on it, or none."""
    ends = {leaves.get(pair.one, ""), leaves.get(pair.other, "")}
    return () if "" in ends else tuple(sorted(ends))


def _upper(rates: Iterable[float]) -> float:
    ordered = sorted(rates, reverse=True)
    return ordered[(len(ordered) - 1) // 4] if ordered else 0.0


def _usual_rates(pairs: Sequence[Pair], leaves: Mapping[str, str]) -> dict[Pair, float]:
    """Return for each pair what pairs like it usually reach."""
    links = {pair: link_of(pair, leaves) for pair in pairs}
    across = [pair for pair in pairs if len(links[pair]) == 2]
    every = _upper(pair.busbw for pair in pairs)
    usual = dict.fromkeys(pairs, every)
    if len({links[pair] for pair in across}) >= _ENOUGH_LINKS:
        usual |= dict.fromkeys(across, _upper(pair.busbw for pair in across))
    return usual


Blamed = list[tuple[tuple[str, ...], list[Pair]]]


def _slow_links(
    pairs: Sequence[Pair], slow: set[Pair], leaves: Mapping[str, str]
) -> tuple[Blamed, list[Pair]]:
    """Return the slow links, with their pairs, and the pairs that they do not explain."""
    by_link: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        by_link.setdefault(link_of(pair, leaves), []).append(pair)
    found: Blamed = [
        (link, of)
        for link, of in sorted(by_link.items())
        if _part(of, slow) >= MOST_OF_LINK and _joins_sound_leaves(link, by_link, slow)
    ]
    explained = {pair for _, of in found for pair in of}
    return found, [pair for pair in pairs if pair not in explained]


def _joins_sound_leaves(
    link: tuple[str, ...], by_link: Mapping[tuple[str, ...], Sequence[Pair]], slow: set[Pair]
) -> bool:
    """Whether a link is of two leaves, each with pairs of its own, most of which are not slow."""
    inner = [by_link.get((leaf,), ()) for leaf in link]
    return len(link) == 2 and all(of and _part(of, slow) <= MOST_OF_NODE for of in inner)


def _slow_nodes(
    pairs: Sequence[Pair], slow: set[Pair]
) -> tuple[list[tuple[str, list[Pair]]], list[Pair]]:
    """Return the slow nodes, with their pairs, and the pairs that they do not explain."""
    found, left = list[tuple[str, list[Pair]]](), list(pairs)
    while worst := _slowest_node(left, slow):
        node, of = worst
        found.append((node, of))
        left = [pair for pair in left if node not in (pair.one, pair.other)]
    return found, left


def _slowest_node(pairs: Sequence[Pair], slow: set[Pair]) -> tuple[str, list[Pair]] | None:
    """Return the node with the largest part of slow pairs, and its pairs; None where no most are.

    Of one pair alone a node is not to blame.
    """
    by_node: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_node.setdefault(pair.one, []).append(pair)
        by_node.setdefault(pair.other, []).append(pair)
    ranked = [
        (_part(of, slow), sum(pair in slow for pair in of), node)
        for node, of in by_node.items()
        if len(of) > 1
    ]
    part, _, node = max(ranked, default=(0.0, 0, ""))
    return (node, by_node[node]) if part > MOST_OF_NODE else None


def _part(pairs: Sequence[Pair], slow: set[Pair]) -> float:
    return sum(pair in slow for pair in pairs) / len(pairs)
