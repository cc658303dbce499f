"""What was measured beside another program says nothing of a GPU in later runs, good or bad."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rv.accept.bad_nodes import bad_nodes
from rv.accept.baselines import Baselines
from rv.accept.history import History
from rv.accept.judge import Judge
from rv.accept.measurements import CONTENDED, FAULTY, SOUND, Measurement
from rv.accept.report.series import charts
from rv.accept.results import RunResult, Status, TestResult
from rv.accept.run import remembered
from rv.accept.runs import Run, RunRecord
from rv.accept.trends import trends
from rv.payloads.contract.codes import CONTENTION
from tests.unit.accept.made_results import gpu, metric, outcome, run_of
from tests.unit.accept.test_regressions import judged, of_run

BUSY = outcome(
    "cuda:0", name="contention", status=Status.FAIL, code="gpu_busy", reason="bob's", host="n1"
)
BUSBW: dict[str, Any] = {"name": "busbw_4GiB", "unit": "GB/s", "more": {"bytes": 4 << 30}}


def beside(result: RunResult, **more: Any) -> RunResult:
    """The same run, whose first GPU was another's too."""
    busy = replace(BUSY, **more)
    return replace(result, tests=(busy, *result.tests), status=max(busy.status, result.status))


def stored(*results: RunResult) -> list[tuple[str, str, str]]:
    """Give test, device and standing of each number of a run."""
    run = Run(record=RunRecord(race_id="r", cluster="c"), results=results)
    return [(each.test, each.device, each.standing) for each in remembered(run)]


def test_a_run_beside_another_program_is_no_fault_and_no_reference(tmp_path: Path) -> None:
    """Six sound runs, one at six tenths beside another program, and a sound one again."""
    history = History(tmp_path / "h.sqlite")
    for n in range(6):
        judged(history, n, of_run(n, 700.0, 700.0))
    shared = judged(history, 6, beside(of_run(6, 420.0, 700.0))).results[0]
    after = judged(history, 7, of_run(7, 700.0, 700.0)).results[0]

    slow = next(test for test in shared.tests if test.code == "regression")
    assert (slow.status, slow.fault_class) == (Status.FAIL, CONTENTION)
    assert [test.code for test in after.tests] == ["", ""]
    standings = [each.standing for each in history.all(gpu="GPU-n1-0")]
    assert standings == [SOUND] * 6 + [CONTENDED, SOUND]
    assert {each.standing for each in history.all(gpu="GPU-n1-1")} == {SOUND}


def test_a_gpu_that_was_shared_from_the_first_is_no_measure_for_others(tmp_path: Path) -> None:
    """Two of a model that nobody knows, at half of their speed: a third is no twice as fast one."""
    history = History(tmp_path / "h.sqlite")
    for n, node in enumerate(("n1", "n2")):
        judged(history, n, beside(of_run(n, 350.0, node=node), host=node))
    alone = judged(history, 2, of_run(2, 352.0, node="n3")).results[0]

    assert {each.standing for each in history.all() if each.node != "n3"} == {CONTENDED}
    assert [test.code for test in alone.tests] == ["", "no_reference"]


@pytest.mark.parametrize("status", [Status.PASS, Status.SKIP])
def test_only_what_was_found_counts(status: Status) -> None:
    """A look at who else is there is no find: nor where the driver does not tell."""
    looked = beside(of_run(0, 700.0), status=status, code="", reason="")
    assert stored(looked) == [("matmul.bf16", "cuda:0", SOUND)]


def test_what_others_explain_is_not_called_faulty_by_another_test() -> None:
    """Nor in another payload of the run; the other GPU of the node is what its own tests say."""
    wrong = replace(of_run(0, 400.0, 700.0).tests[1], status=Status.FAIL, code="wrong_result")
    first = beside(of_run(0, 400.0, 700.0), status=Status.WARN)
    second = of_run(0, 400.0, 700.0)
    second = replace(second, tests=(*second.tests[:1], wrong), test_type="train")

    assert [each for _, _, each in stored(first, second)] == [CONTENDED, FAULTY] * 2


def collective(**more: Any) -> RunResult:
    return replace(
        of_run(0, 700.0, 700.0),
        tests=(outcome("", metric(90.0, **BUSBW), name="allreduce.all_reduce", host="n1"),),
        test_type="allreduce",
        world_size=2,
        backend="nccl",
        **more,
    )


def test_a_collective_is_of_all_its_ranks() -> None:
    """It is as slow as the rank whose GPU others use, also where another payload saw them."""
    assert stored(beside(collective())) == [("allreduce.all_reduce", "", CONTENDED)]
    checked = beside(of_run(0, 400.0))
    assert stored(checked, collective())[-1] == ("allreduce.all_reduce", "", CONTENDED)
    assert stored(checked, collective(hostname="n2"))[-1][2] == CONTENDED  # its test names n1
    elsewhere = beside(of_run(0, 400.0, node="n9"), host="n9")
    assert stored(elsewhere, collective())[-1] == ("allreduce.all_reduce", "", SOUND)


def test_others_traffic_on_the_network_says_nothing_of_the_gpus() -> None:
    """An all-reduce that was unsteady is told without a device: of the collectives alone."""
    unsteady = outcome(
        "", name="allreduce.steady", status=Status.WARN, code="contended", reason="0.8", host="n1"
    )
    busy = replace(collective(), tests=(*collective().tests, unsteady))

    assert [each for _, _, each in stored(of_run(0, 700.0), busy)] == [SOUND, CONTENDED]


def test_a_newest_value_that_is_contended_is_not_flagged(tmp_path: Path) -> None:
    """In `rv accept history` and in reports, which judge by the history alone."""
    history = History(tmp_path / "h.sqlite")
    for n in range(6):
        judged(history, n, of_run(n, 700.0))
    judged(history, 6, beside(of_run(6, 420.0)))
    every = history.all()
    (trend,) = trends(every)
    (chart,) = [each for each in charts([of_run(6, 420.0)], every) if "tflops of" in each.title]

    assert trend.regression is None
    assert "measured beside others: not judged" in chart.caption
    after: Measurement = replace(every[-1], time=every[-1].time + 60, standing=SOUND, value=700.0)
    assert trends([*every, after])[0].median == 700.0


def judged_as_one(*results: RunResult) -> dict[tuple[str, str], str]:
    """Judge a run of several payloads; give the class of each test that is too slow."""
    found = Judge(baselines=Baselines(values=(), models={}), past=lambda _: ()).judge(results)
    assert [each.test_type for each in found] == [each.test_type for each in results]
    return {
        (each.test_type, test.device): test.fault_class
        for each in found
        for test in each.tests
        if test.code in ("below_floor", "slow_link")
    }


def slow(device: str, host: str = "n1", code: str = "below_floor") -> TestResult:
    said = {"status": Status.FAIL, "code": code, "reason": "half", "host": host}
    return outcome(device, metric(350.0), **said)


CHECKED = run_of([replace(BUSY, device="cuda:2")], [gpu(2), gpu(3)], status=Status.FAIL)


def test_who_is_on_a_gpu_explains_what_another_payload_measured_there() -> None:
    """On that GPU alone, which the other payload may number otherwise, and on no other node."""
    devices = [gpu(0, uuid="GPU-2"), gpu(2, uuid="GPU-9")]
    membw = run_of([slow("cuda:0"), slow("cuda:2")], devices, test_type="membw")
    there = [gpu(2, uuid="GPU-n2-2")]
    train = run_of([slow("cuda:2", "n2")], there, test_type="train", hostname="n2")

    assert judged_as_one(membw, CHECKED, train) == {
        ("membw", "cuda:0"): CONTENTION,
        ("membw", "cuda:2"): "HARDWARE",
        ("train", "cuda:2"): "HARDWARE",
    }


def test_without_a_uuid_the_gpu_is_that_of_the_node_and_number() -> None:
    nameless = [gpu(index, uuid="") for index in (2, 3)]
    membw = run_of([slow("cuda:2"), slow("cuda:3")], nameless, test_type="membw")
    other = replace(membw, tests=(slow("cuda:2", "n2"),), hostname="n2", test_type="train")

    assert judged_as_one(replace(CHECKED, devices=tuple(nameless)), membw, other) == {
        ("membw", "cuda:2"): CONTENTION,
        ("membw", "cuda:3"): "HARDWARE",
        ("train", "cuda:2"): "HARDWARE",
    }


def test_links_of_gpus_are_explained_by_a_look_at_one_of_them_in_another_payload() -> None:
    """What is told without a device is of all GPUs of its result; others' are of no other result."""
    links = run_of([slow("", code="slow_link")], [gpu(2), gpu(3)], test_type="membw")
    apart = replace(links, devices=(gpu(0), gpu(1)), test_type="stress")
    unsteady = outcome("", name="steady", status=Status.WARN, code="contended", reason="0.8")

    assert judged_as_one(CHECKED, links, apart) == {
        ("membw", ""): CONTENTION,
        ("stress", ""): "HARDWARE",
    }
    noisy = run_of([unsteady], [gpu(2), gpu(3)], test_type="allreduce")
    assert judged_as_one(noisy, links) == {("membw", ""): "HARDWARE"}


def test_no_node_is_avoided_for_a_gpu_that_somebody_else_used() -> None:
    membw = run_of([slow("cuda:2")], [gpu(2)], test_type="membw", status=Status.FAIL)
    found = Judge(baselines=Baselines(values=(), models={}), past=lambda _: ()).judge(
        [CHECKED, membw]
    )

    assert bad_nodes(found, "r1", 0.0, 7) == ()


def test_a_gpu_that_is_only_unsteady_excuses_no_other_payload() -> None:
    """A rate that something else may take a part of, or that falls by itself: nobody was seen."""
    unsteady = replace(BUSY, name="matmul.bf16", status=Status.WARN, code="contended")
    checked = run_of([unsteady], [gpu(0)], status=Status.WARN)
    burned = run_of([slow("cuda:0")], [gpu(0)], test_type="stress", status=Status.FAIL)

    assert judged_as_one(checked, burned) == {("stress", "cuda:0"): "HARDWARE"}
    assert judged_as_one(replace(checked, tests=(unsteady, slow("cuda:0")))) == {
        ("check", "cuda:0"): CONTENTION
    }
