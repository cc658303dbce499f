"""From results to the page: nothing bad is left out, and each GPU has its own row."""

from dataclasses import replace
from datetime import UTC, datetime

from rv.accept.report.page import Page
from rv.accept.report.places import place_of
from rv.accept.results import Device, Metric, RunResult, Status, TestResult
from rv.payloads.contract import codes

WHEN = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
H200 = Device(index=0, name="NVIDIA H200", uuid="GPU-a")
OTHER = Device(index=1, name="NVIDIA H200", uuid="GPU-b")


def matmul(device: str, tflops: float, status: Status = Status.PASS, code: str = "") -> TestResult:
    metric = Metric(name="tflops", value=tflops, unit="TFLOPS", direction="higher")
    reason = f"{tflops} is too little" if code else ""
    return TestResult(
        name="matmul.bf16",
        status=status,
        code=code,
        reason=reason,
        device=device,
        metrics=(metric,),
    )


def run(status: Status, *tests: TestResult, host: str = "n1", payload: str = "check") -> RunResult:
    return RunResult(
        test_type=payload,
        status=status,
        hostname=host,
        duration_s=2.5,
        tests=tests,
        devices=(H200, OTHER),
        env={"torch": "2.13.0"},
    )


def page(*runs: RunResult) -> Page:
    return Page(title="Acceptance", when=WHEN, runs=runs)


def test_each_gpu_has_its_figure_and_its_own_verdict() -> None:
    tests = (matmul("cuda:0", 781.4), matmul("cuda:1", 600, Status.FAIL, "peer_outlier"))
    made = page(run(Status.FAIL, *tests))
    assert made.figures == ["bf16 TFLOPS"]
    rows = [(gpu.node, gpu.device, gpu.status, gpu.figures) for gpu in made.gpus]
    assert rows == [("n1", H200, "PASS", ["781.4"]), ("n1", OTHER, "FAIL", ["600"])]


def test_what_needs_a_look_says_where_and_what_to_do_the_worst_first() -> None:
    warned = TestResult(name="jitter", status=Status.WARN, code="jitter", reason="cv 9 %", rank=3)
    failed = matmul("cuda:1", 600, Status.FAIL, "peer_outlier")
    several = replace(run(Status.WARN, warned, payload="allreduce"), world_size=4)
    made = page(several, run(Status.FAIL, failed, host="n2"))
    findings = [(test.status, place_of(run, test), test.advice) for run, test in made.findings]
    assert findings == [
        ("FAIL", "n2, cuda:1", codes.EXCLUDE),
        ("WARN", "n1, rank 3", codes.LOOK),
    ]
    assert made.verdict == "FAIL"


def test_a_fault_on_another_ranks_node_is_put_there() -> None:
    test = TestResult(name="straggler", status=Status.FAIL, code="straggler", rank=1, host="n7")
    made = page(replace(run(Status.FAIL, matmul("cuda:0", 781), test), world_size=2))
    assert place_of(*made.findings[0]) == "n7, rank 1"
    assert made.nodes == {"n1": ["PASS"], "n7": ["FAIL"]}


def test_a_run_that_reported_nothing_is_a_row_and_a_finding() -> None:
    made = page(run(Status.ERROR, host="n3"), run(Status.PASS, matmul("cuda:0", 1)))
    assert made.nodes == {"n1": ["PASS"], "n3": ["ERROR"]}
    assert [place_of(*one) for one in made.findings] == ["n3"]


def test_a_node_with_two_runs_of_a_payload_shows_the_worse() -> None:
    made = page(run(Status.PASS), run(Status.FAIL), run(Status.SKIP, payload="train"))
    assert made.payloads == ["check", "train"]
    assert made.nodes == {"n1": ["FAIL", "SKIP"]}


def test_of_nothing_the_verdict_is_error() -> None:
    assert page().verdict == "ERROR"


def test_it_says_what_was_measured_with_what() -> None:
    assert page(run(Status.PASS)).environment == {"GPUs": "2 x NVIDIA H200", "torch": "2.13.0"}
