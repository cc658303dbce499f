"""A page with something of everything, and hostile text in every place that takes text."""

import itertools
from datetime import UTC, datetime

from rv.accept.measurements import Measurement
from rv.accept.report.charts import DotChart, Line, LineChart
from rv.accept.report.page import Page
from rv.accept.report.trend_rows import TrendRow
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


def trend(text: str = "plain") -> TrendRow:
    """Give a number that fell, of a GPU of which `text` says everything."""
    last = Measurement(
        run="r", time=0.0, value=600.0, fingerprint=text, cluster=text, node=text, gpu_uuid=text,
        gpu=text, device=text, payload=text, test=text, metric=text, dtype=text, shape=text,
        world=1, method_version=2, unit=text, direction="higher",
    )  # fmt: skip
    return TrendRow(last=last, values=(780, 781, 600), usual=780, loss=0.23, regression=None)


def page(text: str = "plain", verdict: Status = Status.FAIL) -> Page:
    """Give a page that says `text` everywhere."""
    rate = Metric(name="tflops", value=781, unit="TFLOPS")
    test = TestResult(
        name=text,
        status=verdict,
        code="peer_outlier",
        device="cuda:0",
        reason=text,
        action=text,
        metrics=(rate, Metric(name=text, value=1, unit=text)),
    )
    ways = itertools.permutations([text, "cuda:1", "cuda:2"], 2)
    links = [{"source": a, "target": b, "one_way": 9.0 if text == a else 90.0} for a, b in ways]
    peers = TestResult(name="membw.peer", status=Status.PASS, details={"links": links})
    run = RunResult(
        test_type=text,
        status=verdict,
        hostname=text,
        duration_s=3.2,
        devices=(Device(index=0, name=text, uuid=text, more={"serial": text}),),
        env={"torch": text},
        tests=(test, peers),
    )
    other = RunResult(test_type="check", status=Status.PASS, hostname="n2")
    return Page(
        title=f"Acceptance {text}",
        when=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        runs=[run, other],
        about=text,
        trends=[trend(text)],
        charts=[LINES, DOTS],
    )
