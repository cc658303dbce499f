"""A result of stress lacks something where the driver's readings of a GPU are missing."""

import pytest

from rv.accept.result_checks import shortfall
from rv.accept.results import Status, TestResult
from rv.payloads.contract.catalogue import PAYLOADS
from tests.unit.accept.made_results import gpu, outcome, run_of

(PLANNED,) = [each.results.split() for each in PAYLOADS if each.name == "stress"]


def burned(device: str) -> TestResult:
    return outcome(device, name="stress.gpu_burn")


def told(device: str, status: Status = Status.PASS) -> TestResult:
    return outcome(device, name="telemetry", status=status)


@pytest.mark.parametrize(
    ("telemetry", "lacking"),
    [
        ([told("cuda:0"), told("cuda:1")], []),
        ([told("cuda:0"), told("cuda:1", Status.WARN)], []),
        ([told("cuda:0")], ["no test telemetry of cuda:1"]),
        ([], ["no test telemetry"]),
        ([told("", Status.SKIP)], []),
    ],
)
def test_telemetry_is_of_every_gpu(telemetry: list[TestResult], lacking: list[str]) -> None:
    """Or skipped for all, where nothing tells of them."""
    tests = [burned("cuda:0"), burned("cuda:1"), *telemetry]
    run = run_of(tests, [gpu(0), gpu(1)], test_type="stress", exit_code=0)

    assert shortfall(run, PLANNED, 2, 1) == lacking


def test_on_a_cpu_it_is_skipped() -> None:
    """As stress says itself."""
    run = run_of([burned("cpu:0"), told("", Status.SKIP)], [], test_type="stress", exit_code=0)

    assert shortfall(run, PLANNED, 0, 1) == []
