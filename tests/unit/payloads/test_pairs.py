"""Rounds of pairs, and what slow pairs have in common: each planted fault named, and nothing else."""

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.payloads.contract.pairs import Blame, Pair, blame, pairings

NODES = st.integers(3, 14)
NOISE = 0.02
"""The standard deviation of a sound pair's rate, cut off at two of them."""


@given(st.integers(0, 40))
def test_all_nodes_meet_once_and_none_twice_at_a_time(nodes: int) -> None:
    """A tournament, in as few rounds as there can be."""
    met = pairings(nodes, "all")
    assert sorted(itertools.chain(*met)) == list(itertools.combinations(range(nodes), 2))
    assert len(met) == (0 if nodes < 2 else nodes - 1 + nodes % 2)
    for one in met:
        seats = list(itertools.chain(*one))
        assert len(seats) == len(set(seats))


@pytest.mark.parametrize("nodes", range(2, 10))
def test_a_quick_round_has_every_node(nodes: int) -> None:
    """The odd one meets the first."""
    met = pairings(nodes, "quick")
    assert {seat for one in met for pair in one for seat in pair} == set(range(nodes))
    assert len(met) == 1 + nodes % 2


def measured(names: list[str], part: Callable[[str, str], float], seed: int) -> list[Pair]:
    """All pairs of the nodes: 40 GB/s with noise, times the part that a pair gets."""
    draw = random.Random(seed)
    pairs = []
    for one, other in itertools.combinations(names, 2):
        noise = max(-2 * NOISE, min(2 * NOISE, draw.gauss(0, NOISE)))
        pairs.append(Pair(one, other, 40.0 * (1 + noise) * part(one, other)))
    draw.shuffle(pairs)
    return pairs


def ends(found: Blame) -> dict[str, set[tuple[str, ...]]]:
    """What is blamed, by kind: nodes, links, pairs, and what else there is."""
    return {kind: {each.ends for each in of} for kind, of in found._asdict().items() if of}


def on_leaves(leaves: int, near: int) -> dict[str, str]:
    """So many nodes on each of so many leaves."""
    return {f"n{leaf}-{at}": f"s{leaf}" for leaf in range(leaves) for at in range(near)}


SLOW = st.floats(0.1, 0.8)
SEED = st.integers(0, 10**6)


@given(NODES, SEED)
def test_sound_pairs_are_not_blamed(nodes: int, seed: int) -> None:
    """With noise of 2 %, with and without leaves."""
    leaves = on_leaves(2, nodes)
    pairs = measured(list(leaves)[:nodes], lambda *_: 1.0, seed)
    assert ends(blame(pairs)) == ends(blame(pairs, leaves)) == {}


@given(NODES, SLOW, SEED)
def test_a_slow_node_is_named_alone(nodes: int, slow: float, seed: int) -> None:
    """From three nodes on, wherever it is; with its leaf known or not."""
    leaves = on_leaves(2, (nodes + 1) // 2)
    names = list(leaves)[:nodes]
    bad = names[seed % nodes]
    pairs = measured(names, lambda *pair: slow if bad in pair else 1.0, seed)
    assert ends(blame(pairs)) == {"nodes": {(bad,)}}
    is_alone = [leaves[name] for name in names].count(leaves[bad]) == 1
    assert ends(blame(pairs, leaves)) == {"alone" if is_alone else "nodes": {(bad,)}}


@given(st.integers(5, 14), SLOW, SEED)
def test_two_slow_nodes_are_both_named(nodes: int, slow: float, seed: int) -> None:
    """From six on, in whatever order."""
    names = [f"n{at}" for at in range(nodes + 1)]
    bad = set(random.Random(seed).sample(names, 2))
    pairs = measured(names, lambda *pair: slow if bad & set(pair) else 1.0, seed)
    assert ends(blame(pairs)) == {"nodes": {(name,) for name in bad}}


@given(st.integers(4, 14), SLOW, SEED)
def test_a_slow_pair_is_named_alone(nodes: int, slow: float, seed: int) -> None:
    """Both of its nodes are sound with all others."""
    names = [f"n{at}" for at in range(nodes)]
    bad = set(random.Random(seed).sample(names, 2))
    pairs = measured(names, lambda *pair: slow if bad == set(pair) else 1.0, seed)
    assert ends(blame(pairs)) == {"pairs": {tuple(sorted(bad, key=names.index))}}


@given(st.integers(2, 5), st.integers(2, 5), SLOW, SEED)
def test_a_slow_link_between_leaves_is_named_alone(
    many: int, near: int, slow: float, seed: int
) -> None:
    """Though every node of both leaves has slow pairs, half of its pairs or more."""
    leaves = on_leaves(many, near)
    bad = set(random.Random(seed).sample(sorted(set(leaves.values())), 2))

    def part(one: str, other: str) -> float:
        return slow if {leaves[one], leaves[other]} == bad else 1.0

    found = blame(measured(list(leaves), part, seed), leaves)
    assert ends(found) == {"links": {tuple(sorted(bad))}}
    assert found.links[0].share == pytest.approx(slow, rel=0.15)
    assert found.links[0].pairs == near * near


@given(st.integers(3, 5), st.integers(2, 4), SLOW, SEED)
def test_a_network_that_is_slower_between_leaves_is_sound(
    many: int, near: int, slow: float, seed: int
) -> None:
    """By design: all of its links alike, and there are three or more."""
    leaves = on_leaves(many, near)

    def part(one: str, other: str) -> float:
        return 1.0 if leaves[one] == leaves[other] else slow

    assert ends(blame(measured(list(leaves), part, seed), leaves)) == {}


@given(st.integers(2, 5), st.integers(2, 4), st.floats(0.1, 0.7), SEED)
def test_a_network_that_nobody_described_is_found_by_its_rates(
    many: int, near: int, slow: float, seed: int
) -> None:
    """Nodes are not blamed for what lies between the parts; of two parts the link is."""
    leaves = on_leaves(many, near)

    def part(one: str, other: str) -> float:
        return 1.0 if leaves[one] == leaves[other] else slow

    found = ends(blame(measured(list(leaves), part, seed)))
    assert found == ({"links": {("n0-0", "n1-0")}} if many == 2 else {})


@given(st.integers(4, 12), st.floats(0.1, 0.7), SEED)
def test_half_of_the_nodes_slow_or_more_is_no_pass(nodes: int, slow: float, seed: int) -> None:
    """Nothing says which half is right: the fast ones are named, and nobody is blamed."""
    names = [f"n{at}" for at in range(nodes)]
    good = set(random.Random(seed).sample(names, max(2, nodes // 2)))
    pairs = measured(names, lambda *pair: 1.0 if good >= set(pair) else slow, seed)
    found = blame(pairs)
    if nodes % 2 == 0:
        assert ends(found) == {"apart": {tuple(sorted(good))}}
        assert found.apart[0].share == pytest.approx(slow, rel=0.15)
    assert any(found)


@given(st.integers(2, 6), st.floats(0.1, 0.7), SEED)
def test_a_node_alone_on_its_leaf_is_not_told_from_its_link(
    near: int, slow: float, seed: int
) -> None:
    """It may be the node, or what joins its leaf to the others."""
    leaves = on_leaves(1, near) | {"far": "s1"}
    pairs = measured(list(leaves), lambda *pair: slow if "far" in pair else 1.0, seed)
    assert ends(blame(pairs, leaves)) == {"alone": {("far",)}}


@given(st.integers(4, 8), st.floats(0.1, 0.7), SEED)
def test_a_pair_inside_a_small_leaf_is_not_held_against_those_between(
    many: int, slow: float, seed: int
) -> None:
    """Between leaves, where most pairs are, the network has half by design."""
    leaves = on_leaves(many, 2)

    def part(one: str, other: str) -> float:
        inside = slow if {one, other} == {"n0-0", "n0-1"} else 1.0
        return inside if leaves[one] == leaves[other] else 0.5

    found = ends(blame(measured(list(leaves), part, seed), leaves))
    assert found == {"pairs": {("n0-0", "n0-1")}}


def test_one_pair_says_nothing() -> None:
    """Nor does none."""
    assert blame([Pair("a", "b", 1.0)]) == blame([]) == Blame()
