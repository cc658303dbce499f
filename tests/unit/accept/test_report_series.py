"""Which charts results give."""

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from rv.accept.measurements import Measurement
from rv.accept.report.charts import DotChart, LineChart, draw
from rv.accept.report.series import charts
from rv.accept.report.trend_rows import trend_rows
from rv.accept.results import Device, Metric, Reference, RunResult, Status, TestResult


def result(*tests: TestResult, **changes: Any) -> RunResult:
    told: dict[str, Any] = {
        "test_type": "x",
        "status": Status.PASS,
        "hostname": "n1",
        "tests": tests,
    }
    return RunResult(**{**told, **changes})


def passed(name: str, **more: Any) -> TestResult:
    return TestResult(name=name, status=more.pop("status", Status.PASS), **more)


def only(runs: list[RunResult], kept: list[Measurement] | None = None) -> Any:
    (chart,) = charts(runs, kept or [])
    assert draw(chart).startswith("<svg")
    return chart


def test_each_collective_of_each_type_is_a_line_of_its_own() -> None:
    """And one rank has no bus bandwidth."""
    rows = [
        {"dtype": dtype, "operation": name, "bytes": size, "busbw": 1.0}
        for dtype in ("fp16", "bf16")
        for name in ("all_reduce", "reduce_scatter")
        for size in (2**10, 2**14)
    ]
    run = result(passed("allreduce.half_precision", details={"rows": rows}))
    (chart,) = charts([replace(run, world_size=2, hosts=("a1", "a2"), nnodes=2)], [])
    assert [line.name for line in chart.lines] == [
        "all_reduce fp16", "reduce_scatter fp16", "all_reduce bf16", "reduce_scatter bf16",
    ]  # fmt: skip
    assert all(line.x == [2**10, 2**14] for line in chart.lines)
    assert chart.caption.startswith("2 ranks on a1, a2")
    assert charts([replace(run, world_size=1)], []) == []


def test_a_sweep_of_sizes_is_a_line_with_its_reference_and_wrong_results_ringed() -> None:
    rows = [
        {"bytes": 8, "busbw": 0.1, "wrong": 0},
        {"bytes": 2**20, "busbw": 51.5, "wrong": 3},
        {"bytes": "cut", "busbw": None},
    ]
    reference = Reference(value=363, kind="builtin")
    metric = Metric(name="busbw_4GiB", value=51.5, unit="GB/s", reference=reference)
    test = passed("allreduce.all_reduce", details={"rows": rows}, metrics=(metric,))
    chart = only([result(test, world_size=4, backend="nccl")])
    assert isinstance(chart, LineChart)
    assert chart.reference == 363
    assert chart.bad == [(2**20, 51.5)]
    assert [(line.name, line.x, line.y) for line in chart.lines] == [
        ("all_reduce", [8, 2**20], [0.1, 51.5])
    ]


def test_gpus_are_dots_by_type_and_the_one_that_failed_is_named() -> None:
    def matmul(index: int, value: float, status: Status) -> TestResult:
        metric = Metric(name="tflops", value=value, unit="TFLOPS", direction="higher")
        return passed("matmul.bf16", device=f"cuda:{index}", metrics=(metric,), status=status)

    devices = (Device(index=0, uuid="GPU-a"), Device(index=1, uuid="GPU-b"))
    tests = (matmul(0, 781, Status.PASS), matmul(1, 600, Status.FAIL))
    chart = only([result(*tests, devices=devices)])
    assert isinstance(chart, DotChart)
    assert chart.groups == {"bf16": {"n1:0": 781, "n1:1": 600}}
    assert chart.outliers == {("bf16", "n1:1")}


def measured(time: float, value: float, fingerprint: str = "torch 2.13", gpu: str = "GPU-a") -> Any:
    return Measurement(
        run=str(time), time=time, cluster="c", node="n1", gpu_uuid=gpu, gpu="NVIDIA H200",
        device="cuda:0", payload="check", test="matmul.bf16", metric="tflops", dtype="bf16",
        shape="8192", world=1, method_version=2, fingerprint=fingerprint, unit="TFLOPS",
        direction="higher", value=value,
    )  # fmt: skip


HERE = result(devices=(Device(index=0, uuid="GPU-a"),))


def test_a_gpu_that_became_slower_is_ringed_with_the_median_it_had() -> None:
    kept = [measured(day * 86400.0, 780 + day % 3) for day in range(8)]
    chart = only([HERE], [*kept, measured(9 * 86400.0, 600)])
    assert chart.bad == [(9.0, 600)]
    assert chart.reference == pytest.approx(781, abs=1)
    assert "worse than its sound runs" in chart.caption


def fleet(noise: float, common: float = 0.0) -> tuple[list[RunResult], list[Measurement]]:
    """Twenty runs of 96 GPUs on twelve nodes, the last slower by `common`."""
    source, kept = random.Random(1), []
    for day, gpu in itertools.product(range(20), range(96)):
        value = 700 * (1 + source.gauss(0, noise)) * (1 - common * (day == 19))
        one = measured(day * 86400.0, value, gpu=f"GPU-{gpu}")
        kept.append(replace(one, node=f"n{gpu // 8}", device=f"cuda:{gpu % 8}"))
    devices = tuple(Device(index=gpu % 8, uuid=f"GPU-{gpu}") for gpu in range(96))
    return [result(devices=devices)], kept


def test_charts_ring_what_the_trends_flag_and_no_more() -> None:
    """Of 96 sound GPUs whose rates vary, some are far from their mean each time."""
    runs, kept = fleet(noise=0.025)

    assert not any(row.status for row in trend_rows(runs, kept))
    assert [chart.bad for chart in charts(runs, kept) if isinstance(chart, LineChart)] == [[]] * 6


def test_what_all_gpus_lost_together_is_told_of_none_by_itself() -> None:
    found = charts(*fleet(noise=0.01, common=0.08))

    assert len(found) == 6
    for chart in found:
        assert isinstance(chart, LineChart)
        assert chart.bad == []
        assert "all of its model are" in chart.caption


def test_what_no_run_is_judged_by_is_ringed_in_no_chart() -> None:
    """A latency that has risen, or a file system that is slower, is no fault of the GPU."""
    kept = [replace(measured(day * 86400.0, 900), unit="MB/s") for day in range(8)]
    chart = only([HERE], [*kept, replace(measured(9 * 86400.0, 500), unit="MB/s")])
    assert chart.bad == []
    assert chart.reference is None
    assert "not judged" in chart.caption


def test_a_change_of_software_is_marked_and_other_gpus_are_left_out() -> None:
    kept = [measured(day * 86400.0, 780, "torch 2.12") for day in range(3)]
    kept += [measured(3 * 86400.0, 800), measured(0, 1, gpu="GPU-z")]
    chart = only([HERE], kept)
    assert chart.marks == [(3.0, "torch 2.13")]
    assert chart.bad == []


@pytest.mark.parametrize("junk", [None, 7, "x", [None, {"bytes": {}}], {"a": 1}])
def test_details_of_another_shape_are_passed_over(junk: Any) -> None:
    assert charts([result(passed("allreduce.x", details={"rows": junk}))], []) == []


def heated(host: str, status: Status = Status.PASS, **timeline: Any) -> RunResult:
    details = {"timeline": {"at_s": [0, 0.5, 1.0], **timeline}}
    test = passed("telemetry", device="cuda:0", status=status, code="too_hot", details=details)
    return result(test, hostname=host, devices=(Device(index=0, uuid=f"GPU-{host}"),))


def test_temperature_power_and_clock_are_lines_over_time_the_worst_node_first() -> None:
    fine = heated("n1", temperature_c=[40, 50, 60], power_w=[1, 2, None], sm_mhz=[7, 7, 7])
    found = charts([fine, heated("n2", Status.WARN, temperature_c=[40, 80, 90])], [])
    assert [(chart.title, chart.caption) for chart in found] == [
        ("Temperature over time", "x on n2; cuda:0 WARN too_hot"),
        ("Temperature over time", "x on n1"),
        ("Clock of the processors over time", "x on n1"),
    ]
    (line,) = found[0].lines
    assert (line.x, line.y) == ((0, 0.5, 1.0), (40, 80, 90))


@pytest.mark.parametrize("junk", [7, "x", [1], {"at_s": [0, 1, 2]}, {"temperature_c": [1, 2, 3]}])
def test_a_timeline_of_another_shape_is_passed_over(junk: Any) -> None:
    test = passed("telemetry", device="cuda:0", details={"timeline": junk})
    assert charts([result(test, devices=(Device(index=0, uuid="GPU-a"),))], []) == []


def test_what_fell_is_a_trend_and_what_is_steady_is_none() -> None:
    """By UUID, whatever a payload puts in front of it; other GPUs are left out."""
    fell = [measured(day * 86400.0, 780 + day % 3) for day in range(8)]
    fell += [measured(9 * 86400.0, 600)]
    steady = [replace(each, test="matmul.fp16", value=500) for each in fell]
    others = [replace(each, gpu_uuid="GPU-z") for each in fell]
    here = result(devices=(Device(index=0, uuid="a"),))
    (row,) = trend_rows([here], [*fell, *steady, *others])
    assert (row.last.gpu_uuid, row.last.test, row.values[-1]) == ("GPU-a", "matmul.bf16", 600)
    assert row.status == "FAIL"
    assert row.points.split()[-1] == "117.0,23.0"
    assert trend_rows([here], fell[-2:]) == []
