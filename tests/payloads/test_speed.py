"""How long check times products, on GPUs that only keep time: fast ones, and such as hardly do fp64."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import check
import pytest
from _matmul import speed
from _matmul.dtypes import KINDS
from contract.rates import judge_rates

from tests.payloads.made_gpu import CALL_S, MadeGpu

H200_BF16, A100_FP32, T4_FP64, A10_FP64 = 750e12, 19e12, 0.25e12, 0.49e12
"""Operations a second."""


class Work:
    """Products of one size at one rate."""

    def __init__(self, gpu: MadeGpu, side: int, rate: float) -> None:
        self.torch, self.one_s = gpu, 2.0 * side**3 / rate
        self.given = SimpleNamespace(shape=(side,) * 3, kind=KINDS["fp64"])
        self.made = self.compared = 0

    def __call__(self) -> None:
        self.made += 1
        self.torch.work(self.one_s)

    watched = __call__

    def between(self) -> None:
        """Compare nothing."""

    compare = require_right = between


def measured(
    monkeypatch: pytest.MonkeyPatch, side: int, rate: float, *, quick: bool, call_s: float = CALL_S
) -> tuple[speed.Speed, Work]:
    """Time products on a made-up GPU; the work tells how many there were."""
    gpu = MadeGpu(call_s)
    monkeypatch.setattr("time.perf_counter", gpu.perf_counter)
    work = Work(gpu, side, rate)
    return speed.measure(work, "cuda:0", quick=quick, slow=1.0), work  # type: ignore[arg-type]


@pytest.mark.parametrize(("rate", "side"), [(T4_FP64, 4096), (T4_FP64, 8192), (A10_FP64, 4096)])
@pytest.mark.parametrize(("quick", "most_s"), [(True, 12.0), (False, 36.0)])
def test_slow_products_are_few(
    monkeypatch: pytest.MonkeyPatch, rate: float, side: int, most_s: float, *, quick: bool
) -> None:
    """One takes 0.3 to 4.4 s: a hundred, three times over, would take up to 22 minutes."""
    found, work = measured(monkeypatch, side, rate, quick=quick)

    assert found.metrics[0]["value"] == pytest.approx(rate / 1e12, rel=0.01)
    assert found.metrics[0]["n"] >= speed.LEAST_ROUNDS
    assert work.torch.host_s < max(most_s, 19 * work.one_s)
    assert (found.of_bare, found.of_median) == pytest.approx((1.0, 1.0), abs=0.01)


@pytest.mark.parametrize(
    ("rate", "quick", "timed"),
    [(H200_BF16, False, 341), (H200_BF16, True, 300), (A100_FP32, False, 100), (A100_FP32, True, 30)],
)  # fmt: skip
def test_fast_products_are_as_many_as_ever(
    monkeypatch: pytest.MonkeyPatch, rate: float, timed: int, *, quick: bool
) -> None:
    """Half a second of them, and the usual number at least."""
    found, _ = measured(monkeypatch, 8192, rate, quick=quick)
    assert found.metrics[0]["n"] == timed


@pytest.mark.parametrize(
    ("rate", "quick", "sides"),
    [
        (H200_BF16, True, [8192]),
        (H200_BF16, False, [4096, 8192]),
        (A100_FP32, False, [4096, 8192]),
        (7e12, False, [4096, 8192]),  # fp64 of a V100
        (4e12, True, [8192]),  # fp32 of a hot T4
        (1.3e12, True, [4096]),  # fp64 of an L40S
        (T4_FP64, True, [4096]),
        (T4_FP64, False, [4096]),
    ],
)
def test_a_large_product_that_takes_too_long_is_left_out(
    monkeypatch: pytest.MonkeyPatch, rate: float, sides: list[int], *, quick: bool
) -> None:
    """References hold from 4096 on."""
    gpu = MadeGpu()
    monkeypatch.setattr("time.perf_counter", gpu.perf_counter)

    def factors(_torch: Any, _kind: Any, _device: str, shape: speed.Shape, _seed: int) -> Any:
        def multiply(_out: Any = None) -> None:
            gpu.work(2.0 * shape[0] ** 3 / rate)

        return SimpleNamespace(product=multiply, multiply=multiply)

    monkeypatch.setattr(speed, "random_factors", factors)
    monkeypatch.setattr(gpu, "mem_get_info", lambda _: (16 << 30, 16 << 30), raising=False)
    found = speed.usual_sides(gpu, KINDS["fp64"], "cuda:0", 1, quick=quick)

    assert found == sides
    assert gpu.host_s < 3


@pytest.mark.parametrize(("call_s", "judged"), [(CALL_S, ["FAIL"]), (1e-3, [])])
def test_a_rate_that_is_the_hosts_is_no_gpus(
    monkeypatch: pytest.MonkeyPatch, call_s: float, judged: list[str]
) -> None:
    """Half of what an H200 reaches is a failure; not where two CPUs feed eight GPUs, which is a warning."""
    found, _ = measured(monkeypatch, 8192, H200_BF16 / 2, quick=True, call_s=call_s)
    session: Any = SimpleNamespace(faults={}, options=SimpleNamespace(allow_busy_gpus=False))
    outcome = check.judged(session, KINDS["bf16"], "cuda:0", found)
    assert outcome["status"] == ("PASS" if judged else "WARN")
    assert outcome.get("code") == (None if judged else "jitter")

    about = {"name": "matmul.bf16", "device": "cuda:0", "details": {"dtype": "bf16"}}
    test = {
        "class": None,
        "reason": None,
        "code": None,
        **about,
        **outcome,
        "metrics": found.metrics,
    }
    judge_rates("check", [test], [{"index": 0, "name": "NVIDIA H200", "uuid": "a", "mig": None}], 1)
    assert test["status"] == (judged[0] if judged else "WARN")


def test_a_gpu_that_was_not_fed_is_no_slow_peer() -> None:
    """Its bits are compared, its rate is not known."""
    readings = [
        speed.Reading(f"cuda:{at}", "H200", "bf16", digest, rate, at, "a1")
        for at, (digest, rate) in enumerate([("x", 700.0), ("x", 0.0), ("y", 0.0), ("x", 705.0)])
    ]
    assert speed.outliers(readings) == []
    assert [each.rank for each in speed.strange_digests(readings)] == [2]


@pytest.mark.parametrize("quick", [True, False])
def test_a_large_product_is_left_out_on_a_small_slice(
    monkeypatch: pytest.MonkeyPatch, *, quick: bool
) -> None:
    """8192^2 in fp64 take 2.7 GB: more than half of a MIG slice of 5 GB has."""
    gpu = MadeGpu()
    room = (int(4.4 * (1 << 30)), int(4.75 * (1 << 30)))
    monkeypatch.setattr(gpu, "mem_get_info", lambda _: room, raising=False)
    monkeypatch.setattr(speed, "_one_product_s", lambda *_: 0.001)

    assert speed.usual_sides(gpu, KINDS["fp64"], "cuda:0", 1, quick=quick) == [4096]
