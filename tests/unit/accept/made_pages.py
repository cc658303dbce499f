"""A page with something of everything, and hostile text in every place that takes text."""

from rv.accept.report.charts import Axis, BarChart, DotChart, Line, LineChart
from rv.accept.report.page import Finding, GpuRow, NodeRow, Page, RunRow

HOSTILE = '<script>alert("x")</script>|`*$\\'

LINES = LineChart(
    title="Bus bandwidth over size",
    caption="4 GPUs",
    x=Axis(label="bytes", scale="log"),
    y=Axis(label="GB/s"),
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
    y=Axis(label="TFLOPS"),
    groups=[("bf16", [("n1:0", 780.0), ("n1:1", 770.0), ("n2:0", 600.0)])],
    outliers=frozenset({("bf16", "n2:0")}),
)
BARS = BarChart(
    title="Where a request's time goes",
    x=Axis(label="ms"),
    parts=["serialize", "network"],
    bars=[("4K", [1, 2]), ("1M", [3, 4])],
)


def page(text: str = "plain", verdict: str = "FAIL") -> Page:
    """Give a page that says `text` everywhere."""
    return Page(
        title=f"Acceptance {text}",
        verdict=verdict,
        when="2026-01-02 03:04 UTC",
        counts={"PASS": 3, "FAIL": 1, "SKIP": 0},
        findings=[
            Finding(
                status="FAIL", where=text, test=text, code="peer_outlier", reason=text, action=text
            )
        ],
        payloads=["check", text],
        nodes=[
            NodeRow(node=text, verdicts=("PASS", "")),
            NodeRow(node="n2", verdicts=("FAIL", "")),
        ],
        figures=["bf16 TFLOPS"],
        gpus=[GpuRow(node=text, index=0, name=text, uuid="GPU-1", status="PASS", figures=("781",))],
        charts=[LINES, DOTS, BARS],
        runs=[
            RunRow(
                payload="check",
                where=text,
                status="FAIL",
                when="2026-01-02",
                seconds=3.2,
                tests=(("matmul.bf16", "FAIL", "781 TFLOPS", text),),
            )
        ],
        environment=[("torch", text)],
    )
