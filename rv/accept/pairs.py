"""Sweeps over pairs of nodes: who meets whom, and what the rates of all pairs say. Pure.

Each pair is one job that runs the collectives on two whole nodes. The rates are held against each
other (`rv.payloads.contract.pairs`), so that a result names the node, the link between two leaves
of the network, or the pair: a node's own results would name the one where a job began.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rv.accept.payload_command import PAIR_FAULTS
from rv.accept.results import RunResult, Status, TestResult, worst
from rv.accept.untrusted import list_of, object_of, whole_of
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.snapshot import Node
from rv.payloads.contract.fabrics import LARGE, LONG_S
from rv.payloads.contract.pairs import ON_CPU, Blame, Pair, Slow, blame, link_of, pairings
from rv.payloads.contract.stats import PEER_FAIL

PAYLOAD: Final = "allreduce"
KIND: Final = "pairs"
"""What the results that judge the pairs are of."""

_TEST: Final = "allreduce.all_reduce"
MOST_NODES: Final = 100
_NODE_OR_LINK: Final = "sweep pairs with more nodes: their link is slow, or one of the nodes is"
_SHOWN: Final = 12
"""Nodes that a sentence names."""


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


Results = Mapping[tuple[str, str], Sequence[RunResult]]
"""What the job of each pair of nodes reported."""


def judged_pairs(results: Results, leaves: Mapping[str, str]) -> tuple[RunResult, ...]:
    """Judge the pairs of each kind by each other: a result for each node, one for links and pairs.

    Of a kind are pairs whose GPUs are of the same models, as many of each. On CPUs no speed is
    judged, unless a fault was injected, to see it found.
    """
    kinds: dict[tuple[str, ...], dict[tuple[str, str], Sequence[RunResult]]] = {}
    for names, each in results.items():
        kinds.setdefault(_models(each), {})[names] = each
    judged = [_judged_kind(each, leaves) for each in kinds.values()]
    found = [*_of_nodes(results, judged), _of_links(judged, leaves)]
    # So that whoever reads of a planted fault sees that it was one.
    planted = _planted(results)
    if any(word.startswith(PAIR_FAULTS) for word in planted):
        found = _with_effect(found)
    return tuple(replace(e, argv=planted, began=_began(results, e.hostname)) for e in found)


def _with_effect(found: list[RunResult]) -> list[RunResult]:
    """Add an ERROR where nothing is slow, though a host or a link was slowed down on purpose."""
    if any(test.status is Status.FAIL for each in found for test in each.tests):
        return found
    *nodes, links = found
    reason = "nothing found the fault that was made: it takes three nodes that all meet"
    test = _test(Status.ERROR, "no_effect", reason, "", "pairs.fault")
    return [*nodes, replace(links, status=Status.ERROR, tests=(*links.tests, test))]


def _began(results: Results, node: str) -> float:
    """Return when the first job of a node's pairs began, of "" of all: it is judged by them all."""
    of_node = [each for names, each in results.items() if node in ("", *names)]
    times = (each.began for each in itertools.chain.from_iterable(of_node))
    return min(filter(None, times), default=0.0)


def _planted(results: Results) -> tuple[str, ...]:
    """Return the words that a fault was made with; () where none was."""
    every = itertools.chain.from_iterable(results.values())
    return next((each.argv for each in every if "--inject" in each.argv), ())


def _models(results: Sequence[RunResult]) -> tuple[str, ...]:
    """Return the models of a pair's GPUs, as often as there are GPUs; () on CPUs."""
    return max((tuple(sorted(d.name for d in each.devices)) for each in results), default=())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """Pairs of one kind: what they reached, what is slow, and which were not measured."""

    pairs: Sequence[Pair]
    found: Blame
    unmeasured: Sequence[tuple[str, str]]
    is_judged: bool


def _judged_kind(results: Results, leaves: Mapping[str, str]) -> _Kind:
    """Judge pairs of one kind by each other."""
    compared = _compared({names: dict(_rates(each)) for names, each in results.items()})
    pairs = [Pair(*names, busbw, _wrong(results[names])) for names, busbw in compared.items()]
    on_gpus = _is_on_gpus(results)
    is_judged = on_gpus or bool(_planted(results))
    found = blame(pairs, leaves, PEER_FAIL if on_gpus else ON_CPU) if is_judged else Blame()
    unmeasured = list(_silent(results, list(compared)))
    return _Kind(pairs=pairs, found=found, unmeasured=unmeasured, is_judged=on_gpus)


def _silent(results: Results, measured: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Give the pairs whose job said that all is well, and told no rate."""
    for names in results:
        if names not in measured and not _has_failed(results[names]):
            yield names


def _is_on_gpus(results: Results) -> bool:
    every = itertools.chain.from_iterable(results.values())
    return any(each.backend not in ("", "gloo") for each in every)


def _compared(rates: Mapping[tuple[str, str], Mapping[int, float]]) -> dict[tuple[str, str], float]:
    """Give the rate of each pair that has one to compare, by its rates at sizes in bytes.

    That is at the size of `_common_size`. A slow pair measures no size that would take long:
    without that one the rate at its largest counts, where it took so long that it is the link's.
    """
    size = _common_size(list(rates.values()))
    compared = {}
    for names, sizes in rates.items():
        largest = max(sizes, default=0)
        if size in sizes:
            compared[names] = sizes[size]
        # A bus bandwidth is twice what arrives, at most.
        elif 0 < largest < size and largest > sizes[largest] * 1e9 * LONG_S / 2:
            compared[names] = sizes[largest]
    return compared


def _common_size(rates: Sequence[Mapping[int, float]]) -> int:
    """Return the largest size that all pairs have which measured a large one; 0 without any rate.

    Where none is large, as on CPUs, it is the largest one of most.
    """
    large = [{size for size in sizes if size >= LARGE} for sizes in rates]
    shared = set[int]().union(*large).intersection(*filter(None, large))
    if shared:
        return max(shared)
    largest = [max(sizes) for sizes in rates if sizes]
    return max(largest, key=lambda size: (largest.count(size), size), default=0)


def _has_failed(results: Sequence[RunResult]) -> bool:
    """Whether a job said itself that it failed or broke off."""
    return worst([each.status for each in results]) in (Status.FAIL, Status.ERROR)


def _rates(results: Sequence[RunResult]) -> Iterator[tuple[int, float]]:
    """Give the bus bandwidths of all_reduce by their sizes in bytes."""
    for test in _all_reduces(results):
        for metric in test.metrics:
            size = whole_of(metric.more.get("bytes"))
            if metric.name.startswith("busbw_") and metric.value is not None and size:
                yield size, metric.value


def _wrong(results: Sequence[RunResult]) -> int:
    """Count the wrong elements of all_reduce, of all its sizes."""
    rows = [object_of(row) for t in _all_reduces(results) for row in list_of(t.details.get("rows"))]
    return sum(whole_of(row.get("wrong")) or 0 for row in rows)


def _all_reduces(results: Sequence[RunResult]) -> Iterator[TestResult]:
    for result in results:
        if result.test_type == PAYLOAD:
            yield from (test for test in result.tests if test.name == _TEST)


def _of_nodes(results: Results, judged: Sequence[_Kind]) -> Iterator[RunResult]:
    pairs = [pair for kind in judged for pair in kind.pairs]
    slow = {each.ends[0]: each for kind in judged for each in kind.found.nodes}
    for name in dict.fromkeys(name for names in results for name in names):
        yield _of_node(name, pairs, slow.get(name))


def _of_node(name: str, pairs: Sequence[Pair], slow: Slow | None) -> RunResult:
    if not any(name in (pair.one, pair.other) for pair in pairs):
        reason = "no pair with this node was measured"
        return _result(name, [_test(Status.ERROR, "no_result", reason, name)])
    if slow is None:
        return _result(name, [_test(Status.PASS, "", "", name)])
    return _result(name, [_test(Status.FAIL, "peer_outlier", _said(name, slow), name)])


def _of_links(judged: Sequence[_Kind], leaves: Mapping[str, str]) -> RunResult:
    pairs = sorted((p for kind in judged for p in kind.pairs), key=lambda pair: pair.busbw)
    details = [{**pair._asdict(), "leaves": list(link_of(pair, leaves))} for pair in pairs]
    every = TestResult(name=KIND, status=Status.PASS, details={"pairs": details})
    told = [test for kind in judged for test in (*_paths(kind, leaves), *_open(kind))]
    return _result("", [every, *told])


def _paths(kind: _Kind, leaves: Mapping[str, str]) -> Iterator[TestResult]:
    """Tell of what is slow and no node's own fault, or not for certain."""
    found = kind.found
    for slow in found.links:
        are = "leaves" if set(slow.ends) <= set(leaves.values()) else "parts of the network around"
        said = _said(f"the link between the {are} {' and '.join(slow.ends)}", slow)
        yield _test(Status.FAIL, "slow_path", said, "", "pairs.link")
    for slow in found.alone:
        where = f"{slow.ends[0]}, or what links its leaf {leaves[slow.ends[0]]}, where it is alone"
        alone = _test(Status.FAIL, "slow_path", _said(where, slow), "", "pairs.link")
        yield replace(alone, action=_NODE_OR_LINK)
    for slow in found.pairs:
        said = _said(" and ".join(slow.ends), slow)
        pair = _test(Status.FAIL, "slow_path", said, "", "pairs.pair")
        elsewhere = {name for each in kind.pairs for name in each[:2] if each[:2] != slow.ends}
        yield pair if set(slow.ends) <= elsewhere else replace(pair, action=_NODE_OR_LINK)


def _open(kind: _Kind) -> Iterator[TestResult]:
    """Tell of what the pairs leave open: what was not measured, and which are right."""
    for one, other in kind.unmeasured:
        reason = f"{one} and {other}: no rate at the size of the other pairs"
        yield _test(Status.ERROR, "metric_missing", reason, "", "pairs.pair")
    for slow in kind.found.apart:
        names = ", ".join(slow.ends[:_SHOWN])
        said = _said(f"most pairs, beside those of {names}", slow)
        # As among GPUs: a single fast one is no group.
        status = Status.FAIL if len(slow.ends) > 2 else Status.WARN
        yield _test(
            status, "peers_disagree", f"{said}; nothing says which are right", "", "pairs.speed"
        )
    if kind.is_judged and len(kind.pairs) == 1:
        one, other, *_ = kind.pairs[0]
        reason = f"{one} and {other}: no other pair of such nodes to hold their speed against"
        yield _test(Status.WARN, "no_reference", reason, "", "pairs.speed")


def _said(who: str, slow: Slow) -> str:
    many = f"{slow.pairs} pairs" if slow.pairs > 1 else "one pair"
    usual = f"{slow.share:.2f} of the usual {slow.usual:.4g}"
    return f"{who}: {many} at {slow.busbw:.4g} GB/s, {usual}"


def _test(
    status: Status, code: str, reason: str, host: str = "", name: str = "pairs.node"
) -> TestResult:
    return TestResult(name=name, status=status, code=code, reason=reason, host=host)


def _result(hostname: str, tests: Sequence[TestResult]) -> RunResult:
    status = worst([test.status for test in tests])
    return RunResult(test_type=KIND, status=status, hostname=hostname, tests=tuple(tests))
