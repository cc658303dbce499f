"""Pairs of nodes: rounds in which all meet, and which node, link or pair is slow by their rates.

Shared by a job on all of the nodes (`allreduce.py --pairwise`) and by many jobs on two each
(`rv accept sweep --pairs`).
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from .stats import PEER_FAIL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_SLOW = 0.75
"""A node, or a link between leaves, is slow where this part of its pairs are, or more."""

MOST_OF_SOUND = 0.5
"""A leaf is sound where not more than this part of its own pairs are slow."""

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


Blamed = list[tuple[tuple[str, ...], list[Pair]]]
"""What is slow, by its ends, with its pairs."""


class Blame(NamedTuple):
    """What slow pairs have in common: nodes, links between leaves, or nothing but themselves.

    `alone` are nodes that are alone on their leaf: their pairs do not tell them from its links.
    `apart` is what most pairs reach where some are faster: nothing says which are as they should
    be. Its `ends` are the nodes of the fast ones, its `usual` is what these reach.
    """

    nodes: tuple[Slow, ...] = ()
    links: tuple[Slow, ...] = ()
    pairs: tuple[Slow, ...] = ()
    alone: tuple[Slow, ...] = ()
    apart: tuple[Slow, ...] = ()


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

    `leaves` has each node's switch; where nobody knows any, they are what the rates show (`parts`).
    The usual rate is what the upper quarter of the pairs reach: of three nodes one slow makes two
    of three pairs slow. With one pair there is nothing to compare with. First come the links, of
    which each leaf has pairs of its own that are sound; then nodes, from the one whose pairs are
    slow most; what is left is a pair's alone.
    """
    if len(pairs) < 2:
        return Blame()
    known = leaves or parts(pairs, loss)
    usual = _usual_rates(pairs, known)
    slow = {pair for pair in pairs if pair.busbw < (1 - loss) * usual[pair]}
    links, left = _slow_links(pairs, slow, known)
    nodes, left = _slow_nodes(left, slow)
    nodes, alone = _split(nodes, _alone(pairs, known))
    return Blame(
        nodes=_every(nodes, usual),
        links=_every(links, usual),
        pairs=_every([((p.one, p.other), [p]) for p in left if p in slow], usual),
        alone=_every(alone, usual),
        apart=_apart(pairs, usual, loss),
    )


def _split(nodes: Blamed, alone: set[str]) -> tuple[Blamed, Blamed]:
    """Part nodes from those that are alone on their leaf."""
    lone = [each for each in nodes if each[0][0] in alone]
    return [each for each in nodes if each not in lone], lone


def parts(pairs: Sequence[Pair], loss: float) -> dict[str, str]:
    """Return the parts of a network that its rates show: fast inside, and slower between them.

    By node the name of its part, the first node of it; {} where there are no two parts. A node that
    is fast with none is of no part: it is the slow one itself.
    """
    near = _near(pairs, loss)
    found = {min(names): names for names in near.values() if len(names) > 1}
    # Each has to be fast with the same ones: else slow pairs only look like a border.
    part_of = {name: first for first, names in found.items() for name in names}
    is_clear = all(near[name] == found[first] for name, first in part_of.items())
    return part_of if len(found) > 1 and is_clear else {}


def _near(pairs: Sequence[Pair], loss: float) -> dict[str, set[str]]:
    """Return for each node those that it is as fast with as any two are, and itself."""
    least = (1 - loss) * max(pair.busbw for pair in pairs)
    near: dict[str, set[str]] = {}
    for pair in pairs:
        for one, other in ((pair.one, pair.other), (pair.other, pair.one)):
            near.setdefault(one, {one}).update({other} if pair.busbw >= least else ())
    return near


def _alone(pairs: Sequence[Pair], leaves: Mapping[str, str]) -> set[str]:
    """Return the nodes that are alone on their leaf, where there are other leaves."""
    on: dict[str, set[str]] = {}
    for name in (end for pair in pairs for end in (pair.one, pair.other)):
        on.setdefault(leaves.get(name, ""), set()).add(name)
    lone = [names for leaf, names in on.items() if leaf and len(names) == 1]
    return set().union(*lone) if len(on) > 1 else set()


def _apart(pairs: Sequence[Pair], usual: Mapping[Pair, float], loss: float) -> tuple[Slow, ...]:
    """Return what most pairs reach, where others are faster than that by more than `loss`."""
    fast = [pair for pair in pairs if usual[pair] < (1 - loss) * pair.busbw]
    if not fast:
        return ()
    kinds = {usual[pair] for pair in fast}
    others = [pair for pair in pairs if usual[pair] in kinds and pair not in fast]
    names = {end for pair in fast for end in (pair.one, pair.other)}
    return (Slow(tuple(sorted(names)), _middle(others), _middle(fast), len(others)),)


def _middle(pairs: Sequence[Pair]) -> float:
    return statistics.median(pair.busbw for pair in pairs)


def _every(blamed: Blamed, usual: Mapping[Pair, float]) -> tuple[Slow, ...]:
    """Tell what is blamed, each with the rates of its pairs."""
    return tuple(
        Slow(ends, _middle(of), statistics.median(usual[pair] for pair in of), len(of))
        for ends, of in blamed
    )


def link_of(pair: Pair, leaves: Mapping[str, str]) -> tuple[str, ...]:
    """Return the two leaves that a pair joins, sorted; one where both nodes are on it, or none."""
    ends = {leaves.get(pair.one, ""), leaves.get(pair.other, "")}
    return () if "" in ends else tuple(sorted(ends))


def _upper(pairs: Sequence[Pair]) -> float:
    ordered = sorted((pair.busbw for pair in pairs), reverse=True)
    return ordered[(len(ordered) - 1) // 4] if ordered else 0.0


def _usual_rates(pairs: Sequence[Pair], leaves: Mapping[str, str]) -> dict[Pair, float]:
    """Return for each pair what pairs like it usually reach.

    With enough links between leaves, those across are one kind and those inside another, which is
    not slower: where leaves are small, most pairs are across.
    """
    links = {pair: link_of(pair, leaves) for pair in pairs}
    across = [pair for pair in pairs if len(links[pair]) == 2]
    inner = [pair for pair in pairs if len(links[pair]) == 1]
    usual = dict.fromkeys(pairs, _upper(pairs))
    if len({links[pair] for pair in across}) >= _ENOUGH_LINKS:
        between = _upper(across)
        inside = max(between, _upper(inner))
        usual |= dict.fromkeys(across, between) | dict.fromkeys(inner, inside)
    return usual


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
        if _part(of, slow) >= MOST_SLOW and _joins_sound_leaves(link, by_link, slow)
    ]
    explained = {pair for _, of in found for pair in of}
    return found, [pair for pair in pairs if pair not in explained]


def _joins_sound_leaves(
    link: tuple[str, ...], by_link: Mapping[tuple[str, ...], Sequence[Pair]], slow: set[Pair]
) -> bool:
    """Whether a link is of two leaves, each with pairs of its own, most of which are not slow."""
    inner = [by_link.get((leaf,), ()) for leaf in link]
    return len(link) == 2 and all(of and _part(of, slow) <= MOST_OF_SOUND for of in inner)


def _slow_nodes(pairs: Sequence[Pair], slow: set[Pair]) -> tuple[Blamed, list[Pair]]:
    """Return the slow nodes, with their pairs, and the pairs that they do not explain."""
    found: Blamed = []
    left = list(pairs)
    while worst := _slowest_node(left, slow):
        node, of = worst
        found.append(((node,), of))
        left = [pair for pair in left if node not in (pair.one, pair.other)]
    return found, left


def _slowest_node(pairs: Sequence[Pair], slow: set[Pair]) -> tuple[str, list[Pair]] | None:
    """Return the node with the largest part of slow pairs, and its pairs; None where none has.

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
    return (node, by_node[node]) if part >= MOST_SLOW else None


def _part(pairs: Sequence[Pair], slow: set[Pair]) -> float:
    return sum(pair in slow for pair in pairs) / len(pairs)
