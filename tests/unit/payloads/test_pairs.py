"""Rounds of pairs, and what slow pairs have in common: each planted fault named, and nothing else."""

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
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


def ends(found: Blame) -> tuple[set[tuple[str, ...]], ...]:
    """What is blamed: nodes, links, pairs."""
    return tuple({each.ends for each in kind} for kind in found)


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
    assert ends(blame(pairs)) == ends(blame(pairs, leaves)) == (set(), set(), set())


@given(NODES, SLOW, SEED)
def test_a_slow_node_is_named_alone(nodes: int, slow: float, seed: int) -> None:
    """From three nodes on, wherever it is; with its leaf known or not."""
    leaves = on_leaves(2, (nodes + 1) // 2)
    names = list(leaves)[:nodes]
    bad = names[seed % nodes]
    pairs = measured(names, lambda *pair: slow if bad in pair else 1.0, seed)
    assert ends(blame(pairs)) == ({(bad,)}, set(), set())
    assert ends(blame(pairs, leaves)) == ({(bad,)}, set(), set())


@given(st.integers(5, 14), SLOW, SEED)
def test_two_slow_nodes_are_both_named(nodes: int, slow: float, seed: int) -> None:
    """From six on, in whatever order."""
    names = [f"n{at}" for at in range(nodes + 1)]
    bad = set(random.Random(seed).sample(names, 2))
    pairs = measured(names, lambda *pair: slow if bad & set(pair) else 1.0, seed)
    assert ends(blame(pairs)) == ({(name,) for name in bad}, set(), set())


@given(st.integers(4, 14), SLOW, SEED)
def test_a_slow_pair_is_named_alone(nodes: int, slow: float, seed: int) -> None:
    """Both of its nodes are sound with all others."""
    names = [f"n{at}" for at in range(nodes)]
    bad = set(random.Random(seed).sample(names, 2))
    pairs = measured(names, lambda *pair: slow if bad == set(pair) else 1.0, seed)
    assert ends(blame(pairs)) == (set(), set(), {tuple(sorted(bad, key=names.index))})


@given(st.integers(2, 5), st.integers(2, 5), SLOW, SEED)
@settings(deadline=None)
def test_a_slow_link_between_leaves_is_named_alone(
    many: int, near: int, slow: float, seed: int
) -> None:
    """Though every node of both leaves has slow pairs, half of its pairs or more."""
    leaves = on_leaves(many, near)
    bad = set(random.Random(seed).sample(sorted(set(leaves.values())), 2))

    def part(one: str, other: str) -> float:
        return slow if {leaves[one], leaves[other]} == bad else 1.0

    found = blame(measured(list(leaves), part, seed), leaves)
    assert ends(found) == (set(), {tuple(sorted(bad))}, set())
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

    assert ends(blame(measured(list(leaves), part, seed), leaves)) == (set(), set(), set())


def test_one_pair_says_nothing() -> None:
    """Nor does none."""
    assert blame([Pair("a", "b", 1.0)]) == blame([]) == Blame()
