"""From results to the page: nothing bad is left out, and each GPU has its own row."""

from dataclasses import replace
from datetime import UTC, datetime

from rv.accept.pairs import KIND
from rv.accept.report.page import Page
from rv.accept.report.places import place_of
from rv.accept.report.write import as_html, as_markdown
from rv.accept.results import Device, Metric, Reference, RunResult, Status, TestResult
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


def run(
    status: Status,
    *tests: TestResult,
    host: str = "n1",
    payload: str = "check",
    devices: tuple[Device, ...] = (H200, OTHER),
) -> RunResult:
    return RunResult(
        test_type=payload,
        status=status,
        hostname=host,
        duration_s=2.5,
        tests=tests,
        devices=devices,
        env={"torch": "2.13.0"},
    )


def page(*runs: RunResult) -> Page:
    return Page(title="Acceptance", when=WHEN, runs=runs)


def nodes(made: Page) -> dict[str, list[str]]:
    return {row.node: [cell.status for cell in row.cells] for row in made.nodes}


def test_each_gpu_has_its_figure_and_its_own_verdict_the_worst_first() -> None:
    tests = (matmul("cuda:0", 781.4), matmul("cuda:1", 600, Status.FAIL, "peer_outlier"))
    made = page(run(Status.FAIL, *tests))
    rows = [
        (gpu.node, gpu.device.uuid, gpu.status, [(f.name, f.text) for f in gpu.figures])
        for gpu in made.gpus
    ]
    assert rows == [
        ("n1", "GPU-b", "FAIL", [("bf16 TFLOPS", "600")]),
        ("n1", "GPU-a", "PASS", [("bf16 TFLOPS", "781.4")]),
    ]


def test_a_figure_stands_beside_its_reference_or_the_median_of_three_peers() -> None:
    test = matmul("cuda:0", 540)
    known = replace(test.metrics[0], reference=Reference(value=720, kind="builtin"))
    (gpu,) = page(run(Status.PASS, replace(test, metrics=(known,)), devices=(H200,))).gpus
    assert [(f.beside, f.basis) for f in gpu.figures] == [("75% of 720", "builtin reference")]

    three = [run(Status.PASS, matmul("cuda:0", rate), host=f"n{rate}") for rate in (1, 2, 4)]
    own = [replace(r, devices=(replace(H200, uuid=r.hostname),)) for r in three]
    shares = [gpu.figures[0].share for gpu in page(*own).gpus]
    assert shares == [0.5, 1.0, 2.0]
    assert [gpu.figures[0].share for gpu in page(*own[:2]).gpus] == [None, None]


def test_gpus_of_one_verdict_are_sorted_by_what_they_reached() -> None:
    """Those behind the first ones are folded, and none of them is worse."""
    rates = {"n1": 100.0, "n2": 101.0, "n3": 96.0, "n4": 100.5}
    runs = [
        replace(run(Status.PASS, matmul("cuda:0", rate), host=node), devices=(at,))
        for node, rate in rates.items()
        for at in (replace(H200, uuid=node),)
    ]
    warned = run(Status.WARN, matmul("cuda:0", 102.0, Status.WARN), host="n5")
    runs.append(replace(warned, devices=(replace(H200, uuid="n5"),)))
    made = page(*runs)
    assert [gpu.node for gpu in made.gpus] == ["n5", "n3", "n1", "n4", "n2"]


def test_a_gpu_is_one_row_whatever_a_payload_calls_it_and_its_serial_is_kept() -> None:
    uuid = "aef4b2fe-676f-8f91-8de1-711e2ebac28e"
    ours = replace(H200, uuid=uuid, host="n1")
    theirs = replace(H200, uuid=f"GPU-{uuid}", more={"serial": "165"})
    made = page(
        run(Status.PASS, matmul("cuda:0", 7), devices=(ours,)),
        run(Status.PASS, payload="stress", devices=(theirs,)),
    )
    assert [(gpu.uuid, gpu.serial) for gpu in made.gpus] == [(f"GPU-{uuid}", "165")]


def test_a_finding_that_two_ranks_report_alike_is_one_row() -> None:
    failed = replace(matmul("cuda:1", 600, Status.FAIL, "peer_outlier"), host="n1")
    assert len(page(run(Status.FAIL, failed, failed), run(Status.FAIL, failed)).findings) == 1


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
    assert nodes(made) == {"n1": ["PASS"], "n7": ["FAIL"]}
    assert [row.node for row in made.nodes] == ["n7", "n1"]


def test_a_run_that_reported_nothing_is_a_row_and_a_finding() -> None:
    made = page(run(Status.ERROR, host="n3"), run(Status.PASS, matmul("cuda:0", 1)))
    assert nodes(made) == {"n1": ["PASS"], "n3": ["ERROR"]}
    assert [place_of(*one) for one in made.findings] == ["n3"]


def test_a_node_with_two_runs_of_a_payload_shows_the_worse() -> None:
    made = page(run(Status.PASS), run(Status.FAIL), run(Status.SKIP, payload="train"))
    assert made.payloads == ["check", "train"]
    assert nodes(made) == {"n1": ["FAIL", "SKIP"]}


def test_nodes_are_sorted_by_verdict_then_by_what_their_worst_gpu_reached() -> None:
    """The cell says how much of what was expected, and of which number."""

    def of(host: str, rate: float, status: Status = Status.PASS) -> RunResult:
        made = run(status, matmul("cuda:0", rate, status), host=host, devices=(H200,))
        return replace(made, devices=(replace(H200, uuid=host),))

    made = page(of("n1", 100), of("n2", 97), of("n3", 101), of("n4", 102, Status.WARN))
    assert [row.node for row in made.nodes] == ["n4", "n2", "n1", "n3"]
    assert [row.cells[0].text for row in made.nodes] == ["WARN", "97%", "100%", "100%"]
    assert made.nodes[1].cells[0].why == (
        "matmul.bf16 tflops cuda:0: 97 of 100.5 TFLOPS, median of 4"
    )
    assert [round(row.cells[0].heat, 2) for row in made.nodes] == [0, 0.04, 0, 0]
    assert made.counts[Status.WARN] == 1


def test_nodes_that_took_part_in_a_good_run_of_several_are_there() -> None:
    several = replace(run(Status.PASS, matmul("cuda:0", 7)), hosts=("n1", "n2"), nnodes=2)
    assert nodes(page(several)) == {"n1": ["PASS"], "n2": ["PASS"]}
    assert nodes(page(replace(several, status=Status.FAIL))) == {"n1": ["FAIL"]}


def test_of_nothing_the_verdict_is_error() -> None:
    assert page().verdict == "ERROR"


def test_it_says_what_was_measured_with_what() -> None:
    assert page(run(Status.PASS)).environment == {"GPUs": "2 x NVIDIA H200", "torch": "2.13.0"}


def test_made_up_gpus_and_faults_are_told_before_the_verdict_is_believed() -> None:
    """A green page of a sandbox vouches for no GPU."""
    fake = TestResult(name="device", status=Status.SKIP, code="fake_gpu")
    asked = replace(run(Status.FAIL), argv=("--quick", "--inject", "ecc", "--timeout", "50"))
    made = page(run(Status.PASS, fake), asked, asked)
    assert made.cautions == [
        "A sandbox's GPUs are made up: no GPU was tested.",
        "A fault was made on purpose: --inject ecc.",
    ]
    assert all(caution in as_html(made).replace("&#39;", "'") for caution in made.cautions)
    assert all(f"**{caution}**" in as_markdown(made) for caution in made.cautions)
    assert not page(run(Status.PASS)).cautions


def test_what_is_between_nodes_is_no_node() -> None:
    """It has its finding, and no row in the map of nodes."""
    slow = TestResult(name="pairs.pair", status=Status.FAIL, code="slow_path", reason="a1 and a2")
    sound = replace(run(Status.PASS, payload=KIND), hostname="a1")
    made = page(sound, replace(run(Status.FAIL, slow, payload=KIND), hostname=""))
    assert nodes(made) == {"a1": ["PASS"]}
    ((result, test),) = made.findings
    assert (place_of(result, test), test.code) == ("between nodes", "slow_path")
    assert made.verdict == "FAIL"
