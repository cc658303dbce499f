"""Results for the acceptance tests, as payloads on real GPUs would write them."""

from datetime import UTC, datetime
from typing import Any

from rv.accept.results import Device, Metric, RunResult, Status, TestResult

H200 = "NVIDIA H200"


def metric(value: float | None, **more: Any) -> Metric:
    """A rate of bf16 products at 8192^3."""
    about = {"dtype": "bf16", "shape": "8192x8192x8192"} | more.pop("more", {})
    fields = {"name": "tflops", "unit": "TFLOPS", "direction": "higher", "n": 100}
    return Metric(**{**fields, "value": value, "more": about, **more})


def outcome(device: str, *metrics: Metric, **more: Any) -> TestResult:
    """A test of one device that passed, unless told."""
    fields = {"name": "matmul.bf16", "status": Status.PASS, "device": device, "host": "n1"}
    return TestResult(**{**fields, "metrics": metrics, **more})


def gpu(index: int, name: str = H200, **more: Any) -> Device:
    """A GPU whose UUID tells its index."""
    return Device(**{"index": index, "name": name, "uuid": f"GPU-{index}", **more})


def run_of(tests: list[TestResult], devices: list[Device], **more: Any) -> RunResult:
    """What `check` reported on a node."""
    fields: dict[str, Any] = {
        "test_type": "check",
        "status": Status.PASS,
        "hostname": "n1",
        "method_version": 2,
        "timestamp": datetime(2026, 11, 22, 10, tzinfo=UTC),
        "env": {"torch": "2.13.0", "cuda": "13.0", "driver": "580"},
    }
    return RunResult(**{**fields, "tests": tuple(tests), "devices": tuple(devices), **more})


def of_rates(*rates: float, name: str = H200, **more: Any) -> RunResult:
    """One node whose GPUs reached these rates."""
    tests = [outcome(f"cuda:{i}", metric(rate)) for i, rate in enumerate(rates)]
    return run_of(tests, [gpu(i, name) for i in range(len(rates))], **more)
