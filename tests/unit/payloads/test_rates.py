"""Rates held against references: the same for a payload by itself as for `rv accept`."""

from typing import Any

import pytest

from rv.payloads.contract.rates import Known, judge_rates, known_rate, mesh_rate
from rv.payloads.contract.schema import HIGHER, metric
from rv.payloads.contract.stats import slow_ones

H200 = {"index": 0, "name": "NVIDIA H200", "uuid": "a", "mig": None}


def outcome(name: str, rate: float, *, code: str = "", fault: str = "", **about: Any) -> Any:
    """A test of the first GPU that passed, unless told, with one rate."""
    unit = about.pop("unit", "TFLOPS")
    what = about.pop("metric", "tflops")
    return {
        "name": name, "status": about.pop("status", "PASS"), "code": code or None,
        "class": fault or None, "action": None, "reason": None, "details": {},
        "device": about.pop("device", "cuda:0"), "host": "a1",
        "metrics": [metric(what, [rate], unit, HIGHER, **about)],
    }  # fmt: skip


def judged(test: Any, payload: str = "check", world: int = 1, device: Any = H200) -> Any:
    """What becomes of it: status, code and class."""
    judge_rates(payload, [test], [device], world)
    return test["status"], test["code"], test["class"]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (700, ("PASS", None, None)),
        (640, ("WARN", "below_reference", "HARDWARE")),
        (570, ("FAIL", "below_floor", "HARDWARE")),
    ],
)
def test_a_fifth_below_a_known_model_fails(rate: float, expected: Any) -> None:
    """720 TFLOPS of bf16 is what an H200 reaches."""
    assert judged(outcome("matmul.bf16", rate, shape="8192x8192x8192", dtype="bf16")) == expected


def test_what_others_explain_stays_contention() -> None:
    """Half of the rate on a GPU that is shared is no fault of it, and a failure all the same."""
    test = outcome(
        "matmul.bf16", 360, shape="4096x4096x4096", status="WARN", code="contended",
        fault="CONTENTION",
    )  # fmt: skip
    assert judged(test) == ("FAIL", "contended", "CONTENTION")
    assert "0.50 of the 720 that h200 reaches" in test["reason"]


def test_two_gpus_without_peer_access_are_the_fabrics_fault() -> None:
    """NCCL over the host: 23.5 GB/s where NVLink gives 336."""

    def slow(rate: float, **links: float) -> Any:
        about = {"metric": "busbw_4GiB", "unit": "GB/s", "bytes": 4 << 30, "device": None}
        return outcome("allreduce.all_reduce", rate, **about, **links)

    assert judged(slow(23.5, link_share=1.0), "allreduce", 2) == ("FAIL", "slow_fabric", "FABRIC")
    assert judged(slow(330), "allreduce", 2) == ("PASS", None, None)
    # On a board of four without a switch, two have a third of the links between them.
    assert judged(slow(110, link_share=1 / 3), "allreduce", 2) == ("PASS", None, None)
    assert judged(slow(80, link_share=1 / 3), "allreduce", 2)[0] == "FAIL"
    assert judged(slow(110), "allreduce", 2) == ("WARN", "slow_fabric", "FABRIC")
    # Less than a third is no wiring, whatever is told of it.
    assert judged(slow(80), "allreduce", 2) == ("FAIL", "slow_fabric", "FABRIC")
    assert judged(slow(80, link_share=0.05), "allreduce", 2)[0] == "FAIL"
    v100 = {**H200, "name": "Tesla V100-SXM2-32GB"}
    assert judged(slow(20), "allreduce", 8, device=v100)[0] == "FAIL"
    assert [mesh_rate(name) for name in ("NVIDIA H200", "NVIDIA H100 NVL", "Tesla V100")] == [
        450.0, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("NVIDIA L4", {"sm_count": 58, "memory_bytes": 23_600_000_000}, "FAIL"),
        ("NVIDIA L4", {"sm_count": 58, "memory_bytes": 12 << 30}, "PASS"),
        ("NVIDIA L4-24Q", {}, "PASS"),
        ("Tesla T4", {"sm_count": 40, "memory_bytes": 15_640_000_000}, "FAIL"),
        ("NVIDIA A40", {"sm_count": 84, "memory_bytes": 47_700_000_000}, "FAIL"),
        ("NVIDIA A40", {"sm_count": 72, "memory_bytes": 47_700_000_000}, "PASS"),
    ],
)
def test_a_rate_is_judged_by_the_model_that_it_is_of(name: str, size: Any, expected: str) -> None:
    """Error correction takes some of the memory; a virtual GPU, or another size, has no reference."""
    test = outcome("matmul.bf16", 10, shape="8192x8192x8192", dtype="bf16")
    if name == "Tesla T4":
        test = outcome("matmul.fp16", 10, shape="8192x8192x8192", dtype="fp16")
    device = {"index": 0, "name": name, "uuid": "a", "mig": None, **size}
    assert judged(test, device=device)[0] == expected


def test_a_slice_is_scaled_and_only_warns() -> None:
    """As in `rv accept`, whose judge has the same numbers."""
    slice_ = {
        "index": 0, "name": "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "mig": {"profile": "1g.10gb"},
        "sm_count": 14, "memory_bytes": 10 << 30,
    }  # fmt: skip
    test = outcome("matmul.bf16", 33, shape="8192x8192x8192")
    known = known_rate("check", test, test["metrics"][0], slice_, 1)
    assert isinstance(known, Known)
    assert (round(known.value, 2), known.fail_loss) == (33.86, None)
    assert judged(outcome("matmul.bf16", 10, shape="8192x8192x8192"), device=slice_)[0] == "WARN"


def test_only_what_was_measured_alike_is_compared() -> None:
    """Not small shapes, other types, other models, nor what failed already."""
    for test in (
        outcome("matmul.bf16", 1, shape="2048x2048x2048"),
        outcome("stress.torch", 1, size=16384, dtype="float32"),
        outcome("matmul.bf16", 1, shape="8192x8192x8192", device="cpu"),
        outcome("matmul.bf16", 1, shape="8192x8192x8192", status="FAIL", code="wrong_result"),
    ):
        before = test["status"], test["code"]
        payload = test["name"].partition(".")[0].replace("matmul", "check")
        assert judged(test, payload)[:2] == before
    unknown = outcome("matmul.bf16", 1, shape="8192x8192x8192")
    assert judge_rates("check", [unknown], [{**H200, "name": "AMD Instinct MI300X"}], 1) == []


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([612.0, 317.0], [(1, "FAIL")]),
        ([612.0, 540.0], [(1, "WARN")]),
        ([612.0, 560.0], []),
        ([700.0, 700.0, 600.0], [(2, "FAIL")]),
        ([700.0, 700.0, 655.0], [(2, "WARN")]),
        ([700.0], []),
        ([], []),
    ],
)
def test_the_slower_of_two_is_held_against_the_faster(
    rates: list[float], expected: list[tuple[int, str]]
) -> None:
    """Of three and more each against the median."""
    assert [(at, status) for at, status, _ in slow_ones(rates)] == expected
