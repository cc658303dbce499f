"""What answers a failure of a node: a later pass of the same test, on the GPU that is accused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rv import avoided_nodes
from rv.accept.bad_nodes import bad_nodes, still_accused
from rv.accept.results import RunResult, Status, TestResult
from rv.avoided_nodes import AvoidedNode
from rv.bundle import acceptance_file
from tests.unit.accept.made_results import gpu, metric, outcome, run_of

NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def fails(name: str, device: str = "cuda:1", code: str = "wrong_result") -> TestResult:
    return outcome(device, name=name, status=Status.FAIL, code=code, reason="bad")


def warns(name: str, device: str = "", code: str = "telemetry_unreadable") -> TestResult:
    return outcome(device, name=name, status=Status.WARN, code=code, reason="unsure")


def passes(name: str, device: str = "cuda:1") -> TestResult:
    return outcome(device, name=name)


PRODUCTS = [outcome(f"cuda:{index}", metric(700)) for index in (0, 1)]
GPUS = [gpu(0), gpu(1)]


def accused(*tests: TestResult, **more: Any) -> tuple[AvoidedNode, ...]:
    """The node after a run of two GPUs in which these tests failed, as the file gives it back."""
    result = run_of([*PRODUCTS, *tests], GPUS, status=Status.FAIL, **more)
    avoided_nodes.update("c", bad_nodes([result], "r1", NOW, 7), (), NOW)
    return avoided_nodes.load("c", NOW)


def later(*tests: TestResult, **more: Any) -> RunResult:
    """A newer run of the two GPUs, in which the products passed, and with these tests."""
    status = Status.WARN if any(test.status is Status.WARN for test in tests) else Status.PASS
    fields = {"status": status, "began": NOW + 1, **more}
    return run_of([*PRODUCTS, *tests], GPUS, **fields)


def is_answered(before: tuple[AvoidedNode, ...], *results: RunResult) -> bool:
    assert [entry.node for entry in before] == ["n1"]
    return still_accused(before, results) == frozenset()


DIAGNOSED = fails("dcgm", code="dcgm_failed")
WORN = fails("wear", code="row_remap")


@pytest.mark.parametrize(
    "tests",
    [
        [],
        [outcome("", name="dcgm", status=Status.SKIP, code="dcgm_absent", reason="none")],
        [warns("dcgm", code="dcgm_unavailable")],
        [passes("dcgm", "cuda:0")],
        [passes("wear")],
        [warns("dcgm", "cuda:1", "dcgm_warned"), warns("dcgm", code="dcgm_unavailable")],
    ],
    ids=["absent", "skipped", "could not look", "another GPU", "another test", "broke off"],
)
def test_a_pass_without_the_test_that_failed_answers_nothing(tests: list[TestResult]) -> None:
    """`check --dcgm 3` found it, and a plain `check` looked elsewhere."""
    assert not is_answered(accused(DIAGNOSED), later(*tests))


@pytest.mark.parametrize(
    "test", [passes("dcgm"), passes("dcgm", ""), warns("dcgm", "cuda:1", "dcgm_warned")]
)
def test_the_test_that_failed_answers_when_it_passes(test: TestResult) -> None:
    """One without a device is of all GPUs."""
    assert is_answered(accused(DIAGNOSED), later(test))


def test_counters_that_cannot_be_read_answer_nothing() -> None:
    """Neither of all GPUs, nor of one, nor in part beside what could be read."""
    before = accused(WORN)
    one = warns("wear", "cuda:1")
    capped = warns("wear", "cuda:1", "power_capped")

    assert not is_answered(before, later(warns("wear")))
    assert not is_answered(before, later(passes("wear", "cuda:0"), one))
    assert not is_answered(before, later(capped, one))
    assert is_answered(before, later(capped, warns("wear", "cuda:0")))
    assert is_answered(before, later(passes("wear", "cuda:0"), passes("wear")))


def test_all_that_failed_is_answered_each_by_its_own_test() -> None:
    before = accused(DIAGNOSED, WORN)

    assert not is_answered(before, later(passes("wear")))
    assert is_answered(before, later(passes("wear")), later(passes("dcgm", "")))


def test_a_rate_of_a_gpu_that_waited_answers_no_slow_one() -> None:
    """Its own process kept it waiting: that number is of the host, and nobody judged it."""
    slow = replace(PRODUCTS[1], status=Status.FAIL, code="below_floor", reason="half")
    result = run_of([PRODUCTS[0], slow], GPUS, status=Status.FAIL)
    before = bad_nodes([result], "r1", NOW, 7)
    waited = replace(warns("matmul.bf16", "cuda:1", "jitter"), metrics=(metric(9, direction=""),))
    shaky = replace(waited, metrics=(metric(700),))
    both = later(waited)

    assert still_accused(before, [replace(both, tests=(PRODUCTS[0], waited))])
    assert not still_accused(before, [replace(both, tests=(PRODUCTS[0], shaky))])


def test_a_rate_of_a_gpu_that_waited_answers_one_that_was_wrong() -> None:
    """Its products were compared all the same; and a ratio beside the rate is no rate."""
    before = accused(fails("matmul.fp32"))
    rate, ratio = metric(9, direction=""), metric(0.5, name="bare_ratio", unit="ratio")
    waited = replace(warns("matmul.fp32", "cuda:1", "jitter"), metrics=(rate, ratio))
    assert is_answered(before, later(waited))

    slow = accused(replace(fails("matmul.fp64", code="below_floor"), metrics=(metric(9),)))
    fed = replace(waited, name="matmul.fp64")
    assert not is_answered(slow, later(waited, fed))
    assert is_answered(slow, later(waited, replace(fed, metrics=(metric(700), ratio))))


def test_gpus_that_are_held_against_each_other_answer_for_all_of_them() -> None:
    """Only those that are slow have a test of their own, and one that warns is not the failed."""
    before = accused(fails("matmul.peers", code="peer_outlier"))

    assert is_answered(before, later(warns("matmul.peers", "cuda:0", "peer_outlier")))
    assert not is_answered(before, later())


@pytest.mark.parametrize("name", ["check", "ranks"])
def test_a_test_that_is_told_only_when_it_fails_is_answered_by_the_payload(name: str) -> None:
    """A CUDA error outside of any test, or when the ranks met: a pass never names it."""
    before = accused(fails(name, "", "cuda_error"))

    assert is_answered(before, later())
    assert not is_answered(before, replace(later(), test_type="membw"))
    assert not is_answered(before, replace(later(), devices=(gpu(0),)))


def test_the_tests_of_other_ranks_answer_those_of_the_first() -> None:
    """Which rank a GPU has differs from job to job."""
    before = accused(fails("allreduce.half", code="below_floor"), test_type="allreduce")

    found = later(passes("allreduce.half.rank"), test_type="allreduce")
    assert is_answered(before, found)


def test_a_node_that_lost_a_gpu_is_answered_when_all_are_there_again() -> None:
    before = accused(fails("device", "", "gpu_not_visible"))

    assert not is_answered(before, later(passes("device", "cuda:0")))
    assert is_answered(before, later(passes("device", "cuda:0,cuda:1")))


OLDER = {
    "node": "n1", "since": NOW, "until": NOW + 9e5, "run": "r0", "uuids": ["GPU-1"],
    "evidence": ["check dcgm dcgm_failed: memory"],
}  # fmt: skip


def written(entry: dict[str, Any]) -> None:
    path = acceptance_file("avoid", "c", ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"nodes": [entry]}))


def test_a_file_of_an_older_rv_is_read_by_its_sentences() -> None:
    """It names no tests: a pass of the payload answers, as it did; and it keeps what came later."""
    written(OLDER)
    assert is_answered(avoided_nodes.load("c", NOW), later())

    both = accused(WORN)
    assert not is_answered(both, later())
    assert not is_answered(both, later(passes("wear"), test_type="membw"))
    assert is_answered(both, later(passes("wear")))


def test_a_file_of_this_rv_is_one_for_an_older_one() -> None:
    """Each payload has its sentence, however many there are; what it does not know it leaves out."""
    names = [f"matmul.{number}" for number in range(30)]
    accused(*(fails(name) for name in names), WORN)
    accused(fails("membw.stream"), test_type="membw")
    (kept,) = json.loads(acceptance_file("avoid", "c", ".json").read_text())["nodes"]

    assert len(kept["evidence"]) == 20
    assert {line.split()[0] for line in kept["evidence"]} == {"check", "membw"}
    (entry,) = avoided_nodes.load("c", NOW)
    assert {each.test for each in entry.failed} == {*names, "wear", "membw.stream"}
    del kept["failed"]
    written(kept)
    assert is_answered(avoided_nodes.load("c", NOW), later(), later(test_type="membw"))
