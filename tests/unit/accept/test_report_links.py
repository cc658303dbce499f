"""The matrix of links: between nodes, and between the GPUs of one."""

import itertools
from typing import Any

import pytest

from rv.accept.report.links import Links, both_ways, matrices, matrix
from rv.accept.results import Metric, RunResult, Status, TestResult


def pairs(count: int, slow: dict[tuple[str, str], float]) -> Links:
    ends = [f"n{number}" for number in range(count)]
    return {pair: slow.get(pair, 50.0) for pair in itertools.combinations(ends, 2)}


def pair_result(first: str, second: str, rate: float, **more: Any) -> RunResult:
    """What a collective over two nodes reports."""
    metric = Metric(name="busbw_1GiB", value=rate, unit="GB/s", direction="higher")
    latency = Metric(name="latency_us", value=1e6, unit="us", direction="lower")
    test = TestResult(name="allreduce.x", status=Status.PASS, metrics=(metric, latency))
    fields = {"nnodes": 2, "hosts": (first, first, second, second), "hostname": first}
    return RunResult(test_type="allreduce", status=Status.PASS, tests=(test,), **{**fields, **more})


def test_a_link_without_a_direction_stands_both_ways_and_is_named_once() -> None:
    made = matrix("x", both_ways(pairs(4, {("n0", "n2"): 42.0})))
    assert [[link.rate for link in row] for row in made.rows] == [
        [None, 50, 42, 50],
        [50, None, 50, 50],
        [42, 50, None, 50],
        [50, 50, 50, None],
    ]
    assert [(link.source, link.target, link.status) for link in made.slow] == [
        ("n0", "n2", Status.FAIL)
    ]
    assert made.blamed == []


def test_a_node_whose_links_are_slow_is_named_instead_of_them() -> None:
    slow = {("n0", "n3"): 30.0, ("n1", "n3"): 30.0, ("n2", "n3"): 30.0, ("n0", "n1"): 47.0}
    made = matrix("x", both_ways(pairs(6, slow)))
    assert made.blamed == [("n3", 3, 5)]
    assert [(link.source, link.target, link.status) for link in made.slow] == [
        ("n0", "n1", Status.WARN)
    ]


def test_two_links_are_too_few_to_call_one_slow() -> None:
    made = matrix("x", {("a", "b"): 50, ("b", "a"): 10})
    assert (made.slow, made.blamed) == ([], [])


def test_two_node_collectives_are_links_and_others_are_not() -> None:
    runs = [
        pair_result("n1", "n2", 40),
        pair_result("n2", "n1", 45),
        pair_result("n1", "n3", 44),
        pair_result("n1", "n4", 44, nnodes=4, hosts=("n1", "n2", "n3", "n4")),
        pair_result("n1", "n1", 44, nnodes=1, hosts=("n1", "n1")),
    ]
    (made,) = matrices(runs)
    assert made.ends == ["n1", "n2", "n3"]
    assert made.rows[0][1].rate == made.rows[1][0].rate == 45


def test_of_several_nodes_those_with_a_slow_link_between_gpus_come_first() -> None:
    def peers(host: str, least: float) -> RunResult:
        ways = itertools.permutations(["cuda:0", "cuda:1", "cuda:2"], 2)
        rows = [{"source": a, "target": b, "one_way": 360.0} for a, b in ways]
        rows[0]["one_way"] = least
        test = TestResult(name="membw.peer", status=Status.PASS, host=host, details={"links": rows})
        return RunResult(test_type="membw", status=Status.PASS, tests=(test,))

    made = matrices([peers("n1", 360.0), peers("n2", 200.0)])
    assert [(each.title, each.is_folded) for each in made] == [
        ("Between the GPUs of n2, one way", False),
        ("Between the GPUs of n1, one way", True),
    ]


@pytest.mark.parametrize("junk", [None, 7, "x", [None, {"source": "a"}], [{"one_way": "fast"}]])
def test_links_of_another_shape_are_passed_over(junk: Any) -> None:
    test = TestResult(name="membw.peer", status=Status.PASS, details={"links": junk})
    assert matrices([RunResult(test_type="x", status=Status.PASS, tests=(test,))]) == []
