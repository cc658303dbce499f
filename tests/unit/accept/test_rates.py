"""Rates for plans: what was measured here, then what is published; a MIG slice's is none."""

import pytest

from rv.accept.history import history
from rv.accept.measurements import Measurement
from rv.accept.rates import performance


def measurement(**more: object) -> Measurement:
    values: dict[str, object] = {
        "time": 1.0,
        "value": 700.0,
        "fingerprint": "torch 2",
        "run": "r1",
        "cluster": "here",
        "node": "h1",
        "gpu_uuid": "u1",
        "gpu": "NVIDIA H200",
        "device": "cuda:0",
        "payload": "check",
        "test": "matmul.bf16",
        "metric": "tflops",
        "dtype": "bf16",
        "shape": "8192x8192x8192",
        "world": 1,
        "method_version": 2,
        "unit": "TFLOPS",
        "direction": "higher",
    }
    return Measurement(**{**values, **more})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def data_home(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_what_is_published_is_named_so_and_every_gpu_with_a_peak_has_a_rate() -> None:
    kinds = [rate.kind for rate in performance("here").rates]
    assert list(dict.fromkeys(kinds)) == ["published", "peak"]
    rated = {rate.gpu for rate in performance("here").rates}
    assert {"v100", "h100", "h200", "a100-sxm4-80gb"} <= rated


def test_the_medians_of_this_cluster_come_first_steps_before_products() -> None:
    step = {"payload": "train", "test": "train.ddp", "metric": "samples_per_s", "unit": "1/s"}
    history().add(
        [
            measurement(value=700.0),
            measurement(value=720.0, gpu_uuid="u2"),
            measurement(value=710.0, gpu_uuid="u3"),
            measurement(value=9.0, **step),
            measurement(value=1.0, cluster="elsewhere", gpu_uuid="u4"),
            measurement(value=2.0, gpu="NVIDIA H200 MIG 1g.18gb", gpu_uuid="u5"),
            measurement(value=3.0, standing="faulty", gpu_uuid="u6"),
            measurement(value=8.0, quick=True, gpu_uuid="u7", **step),
        ]
    )
    first, second, third, *_ = performance("here").rates
    assert (first.source, first.value) == ("measured here: training step", 9.0)
    assert (second.source, second.value) == ("measured here: bf16 rate", 710.0)
    assert third.kind == "published"


def test_the_best_bandwidth_of_each_run_counts() -> None:
    ring = {"payload": "allreduce", "test": "allreduce.all_reduce", "unit": "GB/s", "world": 8}
    history().add(
        measurement(value=value, run=run, metric=f"busbw_{size}", nodes=2, gpu_uuid="", **ring)
        for run, size, value in (("r1", "1M", 2.0), ("r1", "1G", 40.0), ("r2", "1G", 44.0))
    )
    link = performance("here").all_reduce[0]
    assert (link.gpus, link.nodes, link.value) == (8, 2, 42.0)
    assert link.source == "all-reduce measured here"
