"""A page with something of everything, and hostile text in every place that takes text."""

from datetime import UTC, datetime

from rv.accept.report.charts import DotChart, Line, LineChart
from rv.accept.report.page import GpuRow, Page
from rv.accept.results import Device, Metric, RunResult, Status, TestResult

HOSTILE = '<script>alert("x")</script>|`*$\\'

LINES = LineChart(
    title="Bus bandwidth over size",
    caption="4 GPUs",
    x="bytes",
    is_log=True,
    y="GB/s",
    lines=[
        Line(name=HOSTILE, x=[2**power for power in range(3, 33)], y=list(range(30))),
        Line(name="all_gather", x=[8, 2**20], y=[1, 5]),
    ],
    reference=20,
    marks=[(2**10, "torch 2.13")],
    bad=[(2**20, 5)],
)
DOTS = DotChart(
    title="bf16 of each GPU",
    y="TFLOPS",
    groups={"bf16": {f"n1:{index}": 800.0 - 10 * index for index in range(60)} | {"n2:0": 600.0}},
    outliers={("bf16", "n2:0")},
)


def page(text: str = "plain", verdict: Status = Status.FAIL) -> Page:
    """Give a page that says `text` everywhere."""
    device = Device(index=0, name=text, uuid="GPU-1")
    test = TestResult(
        name=text,
        status=Status.FAIL,
        code="peer_outlier",
        device=text,
        reason=text,
        action=text,
        metrics=(Metric(name=text, value=781, unit=text),),
    )
    run = RunResult(
        test_type=text, status=Status.FAIL, hostname=text, duration_s=3.2, tests=(test,)
    )
    return Page(
        title=f"Acceptance {text}",
        verdict=verdict,
        when=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        counts={"PASS": 3, "FAIL": 1, "SKIP": 0},
        findings=[(run, test)],
        payloads=["check", text],
        nodes={text: ["PASS", ""], "n2": ["FAIL", ""]},
        figures=["bf16 TFLOPS"],
        gpus=[GpuRow(node=text, device=device, status="PASS", figures=["781"])],
        charts=[LINES, DOTS],
        runs=[run],
        environment={"torch": text},
    )
