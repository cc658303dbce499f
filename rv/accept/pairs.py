"""Sweeps over pairs of nodes: who meets whom, and what the rates of all pairs say. Pure.

Each pair is one job that runs the collectives on two whole nodes. The rates are held against each
other (`rv.payloads.contract.pairs`), so that a result names the node, the link between two leaves
of the network, or the pair: a node's own results would name the one where a job began.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rv.accept.results import Metric, RunResult, Status, TestResult, worst
from rv.errors import ErrorKind, RvError
from rv.models.snapshot import Node
from rv.payloads.contract.pairs import ON_CPU, Blame, Pair, Slow, blame, link_of, pairings
from rv.payloads.contract.stats import PEER_FAIL

PAYLOAD: Final = "allreduce"
KIND: Final = "pairs"
"""What the results that judge the pairs are of."""

_TEST: Final = "allreduce.all_reduce"
MOST_NODES: Final = 100


def schedule(nodes: Sequence[Node]) -> tuple[tuple[str, str], ...]:
    """Pair all nodes that have as many GPUs of one model: round after round, each of disjoint ones.

    Raises `RvError(INFEASIBLE)` where no two are alike, `RvError(USAGE)` for more than MOST_NODES.
    """
    if len(nodes) > MOST_NODES:
        many = len(nodes) * (len(nodes) - 1) // 2
        message = f"{len(nodes)} nodes are {many} pairs, and {MOST_NODES} nodes at most are paired"
        raise RvError(ErrorKind.USAGE, message, hint="choose some with --nodes or --partition")
    alike: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for node in nodes:
        kind = tuple(sorted((group.type, group.total) for group in node.gpus))
        alike.setdefault(kind, []).append(node.name)
    rounds = [
        [(names[one], names[other]) for one, other in met]
        for names in alike.values()
        for met in pairings(len(names), "all")
    ]
    if not rounds:
        hint = "a pair is of two nodes with as many GPUs of one model"
        raise RvError(ErrorKind.INFEASIBLE, "no two of these nodes are alike", hint=hint)
    return tuple(pair for met in rounds for pair in met)


def names_of(pair: str) -> tuple[str, ...]:
    """Return the nodes that a job of a sweep is on: two for a pair."""
    return tuple(pair.split(","))


def measured_pair(names: Sequence[str], results: Sequence[RunResult]) -> Pair | None:
    """Return what a pair reached at its largest size; None where its job measured nothing."""
    rates = [
        (size, metric.value)
        for metric in _rates(results)
        if metric.value and isinstance(size := metric.more.get("bytes"), int)
    ]
    return Pair(names[0], names[1], max(rates)[1]) if rates else None


def _rates(results: Sequence[RunResult]) -> Iterator[Metric]:
    """Give the bus bandwidths of all_reduce."""
    for result in results:
        tests = [test for test in result.tests if test.name == _TEST]
        for test in tests if result.test_type == PAYLOAD else ():
            yield from (each for each in test.metrics if each.name.startswith("busbw_"))


def judged_pairs(
    results: Mapping[tuple[str, str], Sequence[RunResult]], leaves: Mapping[str, str]
) -> tuple[RunResult, ...]:
    """Judge all pairs by each other: a result for each node, and one for links and pairs.

    On CPUs no speed is judged, unless a fault was injected, to see it found.
    """
    pairs = [pair for names, each in results.items() if (pair := measured_pair(names, each))]
    found = _blame(pairs, list(itertools.chain.from_iterable(results.values())), leaves)
    met = dict.fromkeys(name for names in results for name in names)
    nodes = [_of_node(name, pairs, found) for name in met]
    return (*nodes, _of_links(pairs, found, leaves))


def _blame(pairs: Sequence[Pair], results: Sequence[RunResult], leaves: Mapping[str, str]) -> Blame:
    if any(each.backend not in ("", "gloo") for each in results):
        return blame(pairs, leaves, PEER_FAIL)
    is_injected = any("--inject" in each.argv for each in results)
    return blame(pairs, leaves, ON_CPU) if is_injected else Blame()


def _of_node(name: str, pairs: Sequence[Pair], found: Blame) -> RunResult:
    rates = [pair.busbw for pair in pairs if name in (pair.one, pair.other)]
    slow = next((each for each in found.nodes if each.ends == (name,)), None)
    if not rates:
        reason = "no pair with this node was measured"
        return _result(name, [_test(Status.ERROR, "no_result", reason, name)])
    if slow is None:
        return _result(name, [_test(Status.PASS, "", "", name)])
    return _result(name, [_test(Status.FAIL, "peer_outlier", _said(name, slow), name)])


def _of_links(pairs: Sequence[Pair], found: Blame, leaves: Mapping[str, str]) -> RunResult:
    tests = list(_paths(found))
    details = [
        {**pair._asdict(), "leaves": list(link_of(pair, leaves))}
        for pair in sorted(pairs, key=lambda pair: pair.busbw)
    ]
    every = TestResult(name=KIND, status=Status.PASS, details={"pairs": details})
    return _result("", [every, *tests])


def _paths(found: Blame) -> Iterator[TestResult]:
    for slow in found.links:
        one, other = slow.ends
        said = _said(f"the link between the leaves {one} and {other}", slow)
        yield _test(Status.FAIL, "slow_path", said, "", "pairs.link")
    for slow in found.pairs:
        one, other = slow.ends
        yield _test(Status.FAIL, "slow_path", _said(f"{one} and {other}", slow), "", "pairs.pair")


def _said(who: str, slow: Slow) -> str:
    many = f"{slow.pairs} pairs" if slow.pairs > 1 else "one pair"
    usual = f"{slow.share:.2f} of the usual {slow.usual:.4g}"
    return f"{who}: {many} at {slow.busbw:.4g} GB/s, {usual}"


def _test(
    status: Status, code: str, reason: str, host: str, name: str = "pairs.node"
) -> TestResult:
    return TestResult(name=name, status=status, code=code, reason=reason, host=host)


def _result(hostname: str, tests: Sequence[TestResult]) -> RunResult:
    status = worst([test.status for test in tests])
    return RunResult(test_type=KIND, status=status, hostname=hostname, tests=tuple(tests))
