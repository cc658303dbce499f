"""Sweeps over pairs of nodes: who meets whom and when, and what becomes of the rates."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.accept import pairs
from rv.accept.bad_nodes import bad_nodes
from rv.accept.results import Device, Metric, RunResult, Status, TestResult
from rv.accept.runs import NodeState, Run, RunRecord, Stage, Sweep
from rv.accept.sweep import next_nodes
from rv.errors import RvError
from rv.models.snapshot import GpuGroup, Node
from rv.slurm.topology import parse_show_topology
from rv.ui.acceptance import sweep_document, sweep_text

TOPOLOGY = """\
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=a[1-2]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=a[3-4]
SwitchName=top Level=1 LinkSpeed=1 Nodes=a[1-4] Switches=s[1-2]
"""
LEAVES = {"a1": "s1", "a2": "s1", "a3": "s2", "a4": "s2"}
NAMES = list(LEAVES)


def node(name: str, model: str = "h200", gpus: int = 8) -> Node:
    """A node with so many GPUs."""
    groups = (GpuGroup(type=model, total=gpus, used=0),) if gpus else ()
    fields: dict[str, Any] = {"cpus": 8, "cpus_used": 0, "memory_mib": 1, "memory_used_mib": 0}
    return Node(name=name, states=frozenset({"IDLE"}), gpus=groups, **fields)


def result(rate: float | None, backend: str = "nccl", **more: Any) -> RunResult:
    """What a pair's job reported."""
    metrics = [
        Metric(name="busbw_256MiB", value=1.0, unit="GB/s", more={"bytes": 256 << 20}),
        Metric(name="busbw_4GiB", value=rate, unit="GB/s", more={"bytes": 4 << 30}),
    ]
    test = TestResult(
        name="allreduce.all_reduce", status=Status.PASS, metrics=tuple(metrics) if rate else ()
    )
    fields = {"test_type": "allreduce", "status": Status.PASS, "nnodes": 2, "backend": backend}
    return RunResult(**{**fields, "tests": (test,), **more})


def judged(rates: dict[tuple[str, str], float | None], **more: Any) -> dict[str, RunResult]:
    """The results of the pairs, by the node that they speak of; "" for links and pairs."""
    results = {names: [result(rate, **more)] for names, rate in rates.items()}
    return {each.hostname: each for each in pairs.judged_pairs(results, LEAVES)}


def rates(**slow: float) -> dict[tuple[str, str], float | None]:
    """40 GB/s between all of four nodes, but for what is named: a1, or a1_a2."""
    every = {}
    for pair in itertools.combinations(NAMES, 2):
        parts = [part for who, part in slow.items() if set(who.split("_")) <= set(pair)]
        every[pair] = 40.0 * min([1.0, *parts])
    return every


def test_a_node_is_judged_by_pairs_since_the_first_of_them_began() -> None:
    """So that a repair, or a failure, in between is not answered by what was measured before it."""
    began = {("a1", "a2"): 30.0, ("a1", "a3"): 20.0, ("a2", "a3"): 40.0, ("a2", "a4"): 0.0}
    results = {names: [result(40.0, began=time)] for names, time in began.items()}
    found = {each.hostname: each.began for each in pairs.judged_pairs(results, LEAVES)}

    assert found == {"a1": 20.0, "a2": 30.0, "a3": 20.0, "a4": 0.0, "": 20.0}


def test_leaves_are_read_and_higher_switches_are_not() -> None:
    """Blocks too; a site without a topology has none."""
    assert parse_show_topology(TOPOLOGY) == LEAVES
    assert parse_show_topology("BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n") == {
        "n1": "b1",
        "n2": "b1",
    }
    assert parse_show_topology("") == {}


def test_nodes_that_are_alike_meet() -> None:
    """As many GPUs of one model; of two kinds each meets its own."""
    nodes = [
        *map(node, ("a1", "a2", "a3")),
        node("v1", "v100"),
        node("v2", "v100"),
        node("c", gpus=0),
    ]
    assert {frozenset(pair) for pair in pairs.schedule(nodes)} == {
        frozenset(pair) for pair in [("a1", "a2"), ("a1", "a3"), ("a2", "a3"), ("v1", "v2")]
    }


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("a1"), node("v1", "v100")], "no two of these nodes are alike"),
        ([node(f"a{at}") for at in range(101)], "101 nodes are 5050 pairs"),
    ],
)
def test_what_cannot_be_paired_is_refused(nodes: list[Node], reason: str) -> None:
    """Before anything is submitted."""
    with pytest.raises(RvError, match=reason):
        pairs.schedule(nodes)


@given(st.integers(2, 9), st.integers(1, 5), st.randoms(use_true_random=False))
def test_no_node_is_in_two_jobs_at_a_time(many: int, most: int, draw: Any) -> None:
    """In whatever order the jobs end; all pairs have their turn."""
    names = [",".join(pair) for pair in pairs.schedule([node(f"a{at}") for at in range(many)])]
    sweep = Sweep(
        sweep_id="sweep-1", cluster="c", profile="smoke", payloads=("allreduce",), begun_at=1.0,
        nodes=tuple(NodeState(node=name) for name in names), is_of_pairs=True,
    )  # fmt: skip
    while not sweep.is_over:
        for state in next_nodes(sweep, most):
            sweep = sweep.with_node(replace(state, stage=Stage.SENT))
        sent = sweep.at(Stage.SENT)
        busy = [name for state in sent for name in pairs.names_of(state.node)]
        assert 0 < len(sent) <= most
        assert len(busy) == len(set(busy))
        sweep = sweep.with_node(replace(draw.choice(sent), stage=Stage.OVER))
    assert len(sweep.at(Stage.OVER)) == many * (many - 1) // 2


def test_a_slow_node_fails_and_is_avoided_and_its_partners_are_not() -> None:
    """Though every one of them has a slow pair."""
    found = judged(rates(a3=0.5))

    assert {name: each.status for name, each in found.items()} == {
        "a1": "PASS", "a2": "PASS", "a3": "FAIL", "a4": "PASS", "": "PASS",
    }  # fmt: skip
    assert found["a3"].reason == "a3: 3 pairs at 20 GB/s, 0.50 of the usual 40"
    assert [bad.node for bad in bad_nodes(tuple(found.values()), "r", 0.0, 7)] == ["a3"]


def test_a_slow_link_and_a_slow_pair_are_nobodys_node() -> None:
    """Of class FABRIC, and no node is avoided."""
    across = {f"{one}_{other}": 0.5 for one in ("a1", "a2") for other in ("a3", "a4")}
    for slow, name, said in (
        (across, "pairs.link", "the link between the leaves s1 and s2: 4 pairs at 20 GB/s"),
        ({"a2_a4": 0.5}, "pairs.pair", "a2 and a4: one pair at 20 GB/s"),
    ):
        found = judged(rates(**slow))
        every, path = found[""].tests
        assert (path.name, path.code, path.fault_class) == (name, "slow_path", "FABRIC")
        assert path.reason.startswith(said)
        assert len(every.details["pairs"]) == 6
        assert bad_nodes(tuple(found.values()), "r", 0.0, 7) == ()


def test_nobody_says_that_a_node_is_sound_of_which_one_pair_alone_was_measured() -> None:
    """It may be the node as well as the link."""
    every = {names: each for names, each in rates(a2_a4=0.5).items() if names != ("a1", "a2")}
    few = {names: each for names, each in every.items() if names != ("a2", "a3")}
    for measured, advice in ((every, "the nodes are sound"), (few, "sweep pairs with more nodes")):
        _, path = judged(measured)[""].tests
        assert path.name == "pairs.pair"
        assert advice in path.advice


def test_on_cpus_nothing_is_judged_unless_a_fault_is_injected() -> None:
    """With a wider bound there, for the noise."""
    assert {each.status for each in judged(rates(a3=0.1), backend="gloo").values()} == {"PASS"}
    injected = {"backend": "gloo", "argv": ("--inject", "slow-host:host=a3")}
    assert judged(rates(a3=0.1), **injected)["a3"].status is Status.FAIL
    assert judged(rates(a3=0.5), **injected)["a3"].status is Status.PASS


@pytest.mark.parametrize("fault", ["slow-host:host=a3", "slow-link:one=a1,other=a3"])
def test_a_fault_between_nodes_that_nothing_found_is_no_pass(fault: str) -> None:
    """As of every other fault: two nodes that meet no third show nothing."""
    planted = {"backend": "gloo", "argv": ("--inject", fault)}
    for few in ({("a1", "a3"): 4.0}, rates()):
        found = judged(few, **planted)
        assert (found[""].status, found[""].code) == ("ERROR", "no_effect")
    assert "no_effect" not in {test.code for test in judged(rates(a3=0.1), **planted)[""].tests}
    assert judged(rates(), backend="gloo", argv=("--inject", "bitflip"))[""].status is Status.PASS


def test_a_node_of_which_no_pair_was_measured_is_an_error() -> None:
    """The others are judged by what there is."""
    unmeasured: dict[tuple[str, str], float | None] = {
        pair: None if "a4" in pair else rate for pair, rate in rates(a1=0.5).items()
    }
    found = judged(unmeasured)
    assert (found["a4"].status, found["a1"].status) == ("ERROR", "FAIL")


def test_two_models_of_one_sweep_are_not_held_against_each_other() -> None:
    """Half as fast by design, and sound; of a single pair of a kind nothing says how fast."""
    kinds = {"H200": ("a1", "a2", "a3"), "V100": ("v1", "v2", "v3"), "L4": ("l1", "l2")}
    results = {
        pair: [result(rate, devices=(Device(index=0, name=model, uuid=""),))]
        for (model, names), rate in zip(kinds.items(), (40.0, 16.0, 2.0), strict=True)
        for pair in itertools.combinations(names, 2)
    }
    found = {each.hostname: each for each in pairs.judged_pairs(results, {})}

    assert {name for name, each in found.items() if each.status is not Status.PASS} == {""}
    assert (found[""].status, found[""].reason.partition(":")[0]) == ("WARN", "l1 and l2")


def test_pairs_are_compared_at_one_size_and_none_is_left_out_in_silence() -> None:
    """One without room for a large size is not slow, and not judged either; nor is one without."""
    at_most = {pair: [result(rate)] for pair, rate in rates().items()}
    (test,) = at_most["a1", "a2"][0].tests
    small = replace(test.metrics[0], more={"bytes": 64 << 20}, value=40.0)
    at_most["a1", "a2"] = [result(40.0, tests=(replace(test, metrics=(small,)),))]
    at_most["a1", "a3"] = [result(None)]
    at_most["a1", "a4"] = [result(None, status=Status.ERROR)]
    found = {each.hostname: each for each in pairs.judged_pairs(at_most, LEAVES)}

    assert [(test.code, test.reason.partition(":")[0]) for test in found[""].tests[1:]] == [
        ("metric_missing", "a1 and a2"), ("metric_missing", "a1 and a3"),
    ]  # fmt: skip
    assert (found["a1"].status, found["a2"].status) == ("ERROR", "PASS")


@pytest.mark.parametrize(
    ("size", "busbw"), [(256 << 20, 5.0), (1 << 30, 8.0), (64 << 20, 0.1)], ids=str
)
def test_a_slow_node_is_named_though_it_measured_no_large_size(size: int, busbw: float) -> None:
    """What would take more than a second is left out."""
    results = {pair: [result(rate)] for pair, rate in rates().items()}
    for pair, [fast] in results.items():
        (test,) = fast.tests
        sizes = [256 << 20, 1 << 30, 4 << 30] if "a1" not in pair else [256 << 20, 1 << 30]
        kept = [each for each in sizes if each <= size or "a1" not in pair] or [size]
        metrics = [
            Metric(name="busbw_x", value=busbw if "a1" in pair else 40.0, more={"bytes": each})
            for each in kept
        ]
        results[pair] = [result(40.0, tests=(replace(test, metrics=tuple(metrics)),))]
    found = {each.hostname: each for each in pairs.judged_pairs(results, {})}

    assert {name: each.status for name, each in found.items() if name} == {
        "a1": "FAIL", "a2": "PASS", "a3": "PASS", "a4": "PASS",
    }  # fmt: skip
    assert found["a1"].tests[0].code == "peer_outlier"


def test_half_of_the_nodes_slow_is_a_failure_of_no_node() -> None:
    """Of four one pair is fast: a warning; of six it fails."""
    for many, status in ((4, "WARN"), (6, "FAIL")):
        names = [f"n{at}" for at in range(many)]
        both = itertools.combinations(names, 2)
        results = {
            pair: [result(40.0 if set(pair) <= set(names[: many // 2]) else 20.0)] for pair in both
        }
        found = pairs.judged_pairs(results, {})
        assert (found[-1].status, found[-1].tests[-1].code) == (status, "peers_disagree")
        assert "beside those of n0, n1" in found[-1].reason
        assert bad_nodes(found, "r", 0.0, 7) == ()


def test_what_was_planted_and_what_came_wrong_are_told() -> None:
    """A reader of the judgement sees both, as in the jobs' own results."""
    results = {pair: [result(rate)] for pair, rate in rates(a3=0.5).items()}
    (planted,) = results["a1", "a2"]
    test = replace(planted.tests[0], details={"rows": [{"wrong": 2}, {"wrong": "x"}, 7]})
    results["a1", "a2"] = [replace(planted, tests=(test,), argv=("--inject", "x"))]
    *_, links = found = pairs.judged_pairs(results, LEAVES)

    assert {each.argv for each in found} == {("--inject", "x")}
    assert {(p["one"], p["other"]): p["wrong"] for p in links.tests[0].details["pairs"]}[
        "a1", "a2"
    ] == 2


def test_a_sweep_over_pairs_shows_links_and_reasons() -> None:
    """As text and as JSON, the slowest pair first."""
    record = RunRecord(race_id="sweep-1", cluster="c", nodes=tuple(NAMES))
    run = Run(record=record, results=tuple(judged(rates(a2_a4=0.5)).values()))
    text = "\n\n".join(str(part) for part in sweep_text(run))

    assert "a2 a4  s1 s2   20\n" in text
    assert "slow: a2 and a4: one pair at 20 GB/s, 0.50 of the usual 40" in text
    document = sweep_document(run, ())
    assert document["pairs"][0] == {
        "one": "a2", "other": "a4", "busbw": 20.0, "wrong": 0, "leaves": ["s1", "s2"],
    }  # fmt: skip
    assert document["verdict"] == "FAIL"
