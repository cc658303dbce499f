"""Collectives that are slow because NCCL took the wrong transport send nobody after a link."""

from dataclasses import replace
from typing import Any

import pytest

from rv.accept.remarks import explained
from rv.accept.results import RunResult, Status, TestResult
from rv.payloads.contract.codes import CONFIG, CONTENTION, FABRIC, FREE, LINKS, TRANSPORT
from tests.unit.accept.made_results import gpu, outcome, run_of

SLOW = outcome(
    "", name="all_reduce", status=Status.FAIL, code="slow_fabric", reason="27 of 336 GB/s"
)
WRONG = outcome(
    "", name="transport", status=Status.FAIL, code="wrong_transport", reason="SHM: it is set so"
)
BY_VARIABLE = replace(WRONG, fault=CONFIG)


def told(*tests: TestResult, **more: Any) -> RunResult:
    """What an all-reduce over two GPUs is judged to be."""
    fields: dict[str, Any] = {"test_type": "allreduce", "status": Status.FAIL, **more}
    (found,) = explained([run_of(list(tests), [gpu(0), gpu(1)], **fields)])
    return found


@pytest.mark.parametrize(("cause", "fault"), [(BY_VARIABLE, CONFIG), (WRONG, FABRIC)])
def test_a_wrong_transport_is_told_first_and_explains(cause: TestResult, fault: str) -> None:
    """A variable that switches P2P off is of CONFIG, and so is what is slow for it."""
    found = told(SLOW, cause, replace(SLOW, name="floor"))
    assert [test.name for test in found.tests] == ["transport", "all_reduce", "floor"]
    assert {(test.fault_class, test.advice) for test in found.tests} == {(fault, TRANSPORT)}
    assert found.reason == cause.reason


def test_a_slow_link_without_a_known_cause_stays_one() -> None:
    """So it does where the transport is merely doubtful: that may be meant."""
    doubt = replace(WRONG, status=Status.WARN)
    for tests in ((SLOW,), (SLOW, doubt)):
        first = told(*tests).tests[0]
        assert (first.name, first.fault_class, first.advice) == ("all_reduce", FABRIC, LINKS)


def test_what_is_not_of_the_links_keeps_its_own_class() -> None:
    """A wrong sum is the hardware's, whichever way it went; a shared GPU is to be freed."""
    sum_ = replace(SLOW, name="sums", code="wrong_result")
    busy = outcome("cuda:0", name="contention", status=Status.FAIL, code="gpu_busy", host="n1")
    found = {test.name: test for test in told(busy, SLOW, WRONG, sum_).tests}
    assert found["sums"].fault_class == sum_.fault_class
    assert (found["all_reduce"].fault_class, found["all_reduce"].advice) == (CONTENTION, FREE)


def test_another_payload_of_the_run_is_not_explained_by_it() -> None:
    """Its ranks may have gone another way: each result has its own log."""
    own = run_of([WRONG], [gpu(0), gpu(1)], test_type="allreduce", status=Status.FAIL)
    other = run_of([SLOW], [gpu(0), gpu(1)], test_type="train", status=Status.FAIL)
    assert explained([own, other])[1].tests[0].advice == LINKS
