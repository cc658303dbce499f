"""Numbers held against references, peers, history and their own spread."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rv.accept.bad_nodes import bad_nodes, cleared
from rv.accept.baselines import Baselines, Model, load
from rv.accept.history import History
from rv.accept.judge import Judge
from rv.accept.measurements import FAULTY, SOUND, Measurement, Point, measurements
from rv.accept.results import Metric, RunResult, Status, TestResult
from rv.accept.run import earlier, others
from rv.errors import RvError
from rv.payloads.contract.codes import CODES, meaning
from rv.payloads.contract.stats import percentile
from tests.unit.accept.made_results import gpu, metric, of_rates, outcome, run_of


@pytest.fixture(scope="module")
def builtin() -> Baselines:
    return load(Path("/nonexistent"), [], Path("/nonexistent"))


NO_BASELINES = Baselines(values=(), models={})


def judged(
    result: RunResult, baselines: Baselines = NO_BASELINES, past: Sequence[Point] = ()
) -> RunResult:
    (found,) = Judge(baselines=baselines, past=lambda _: past, time_s=1e12).judge([result])
    return found


def told(result: RunResult) -> list[tuple[str, str]]:
    return [(str(test.status), test.code) for test in result.tests]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (720, ("PASS", "")),
        (660, ("PASS", "")),
        (640, ("WARN", "below_reference")),
        (577, ("WARN", "below_reference")),
        (576, ("FAIL", "below_floor")),
        (1130, ("PASS", "")),
        (1140, ("FAIL", "above_peak")),
    ],
)
def test_builtin_reference_of_an_h200(builtin: Baselines, rate: float, expected: Any) -> None:
    """720 TFLOPS of bf16: below 0.90 warns, 0.80 fails, and what physics forbids fails too."""
    result = judged(of_rates(rate), builtin)

    assert told(result) == [expected]
    assert result.status == expected[0]
    reference = result.tests[0].metrics[0].reference
    assert reference is not None
    assert (reference.value, reference.kind) == (720.0, "builtin")
    assert "2026-11-21" in reference.source


def test_no_reference_for_small_shapes_other_methods_and_cpus(builtin: Baselines) -> None:
    """A reference is only of what it was measured as."""
    small = outcome("cuda:0", metric(100, more={"shape": "2048x2048x2048"}))
    on_cpu = outcome("cpu", metric(0.1))

    unknown = [("PASS", ""), ("WARN", "no_reference")]
    assert told(judged(run_of([small], [gpu(0)]), builtin)) == unknown
    assert told(judged(of_rates(100, method_version=1), builtin)) == unknown
    assert told(judged(run_of([on_cpu], []), builtin)) == [("PASS", "")]


@pytest.mark.parametrize(
    ("product", "model"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("Tesla V100-PCIE-16GB", "v100-pcie"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "a100-sxm4-80gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA A40", "a40"),
        ("Tesla V100-SXM3-32GB", "v100"),
        ("NVIDIA GH200 120GB", "gh200"),
        ("NVIDIA H200 MIG 1g.18gb", "h200"),
        ("Tesla T4", "t4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GB200", "gb200"),
        ("AMD Instinct MI300X", ""),
        # variants, whose speed is another
        ("Tesla V100-FHHL-16GB", ""),
        ("Tesla V100-DGXS-32GB", ""),
        ("Tesla V100S-PCIE-32GB", ""),
        ("NVIDIA H100 64GB HBM2", ""),
        ("NVIDIA H100 80GB HBM2e", ""),
        ("NVIDIA H100 96GB HBM3", ""),
        ("NVIDIA GH200 144G HBM3e", ""),
        ("NVIDIA A100-SXM-64GB", ""),
        ("NVIDIA A100 80GB PCIe", ""),
        ("NVIDIA H20", ""),
        ("NVIDIA L40", ""),
        ("NVIDIA GeForce RTX 3090 Ti", ""),
        ("NVIDIA GeForce RTX 3090 Laptop GPU", ""),
        ("NVIDIA RTX 6000 Ada Generation", ""),
        # virtual GPUs
        ("NVIDIA A40-8Q", ""),
        ("NVIDIA L40S-48C", ""),
        ("GRID T4-16Q", ""),
        ("GRID V100-32Q", ""),
    ],
)
def test_models_are_found_by_the_longest_name(builtin: Baselines, product: str, model: str) -> None:
    """As drivers call them."""
    assert builtin.model_of(product) == model


def test_a_variant_that_a_site_names_is_known(tmp_path: Path) -> None:
    """By its own words, and with the sizes that it says; without any, whatever the size."""
    site = tmp_path / "baselines.yaml"
    site.write_text(
        "method_version: 2\ngpus:\n  v100-fhhl: {memory_gb: 16}\n  rtx-3080: {sizes_gb: [10, 12]}\n"
        "  mi300x: {}\n"
    )
    known = load(tmp_path / "config", [], site)
    assert known.model_of("Tesla V100-FHHL-16GB") == "v100-fhhl"
    assert known.model_of("NVIDIA GeForce RTX 3080 12GB") == "rtx-3080"
    assert known.model_of("NVIDIA GeForce RTX 3080 Ti") == ""
    assert known.model_of("AMD Instinct MI300X 192GB") == "mi300x"
    assert replace(known, models={"a100": Model()}).model_of("NVIDIA A100 80GB PCIe") == "a100"


@pytest.mark.parametrize(
    ("size", "code"),
    [
        ({"sm_count": 132, "memory_bytes": 84_929_347_584}, "below_floor"),
        ({"sm_count": 132, "memory_bytes": 67_000_000_000}, "no_reference"),
        ({"sm_count": 114, "memory_bytes": 84_929_347_584}, "no_reference"),
        ({}, "below_floor"),
    ],
    ids=["as known", "64 GB", "of PCIe", "untold"],
)
def test_a_gpu_of_another_size_is_not_judged_as_its_namesake(
    builtin: Baselines, size: dict[str, int], code: str
) -> None:
    """It has no reference, which is said, and no failure."""
    device = gpu(0, "NVIDIA H100", **size)
    found = told(judged(run_of([outcome("cuda:0", metric(300.0))], [device]), builtin))
    assert [each for _, each in found if each] == [code]


def test_every_builtin_value_is_physically_plausible(builtin: Baselines) -> None:
    """At least 0.3 and at most 1.15 of the dense peak: catches slips of digits, and sparse peaks."""
    checked = 0
    for value in builtin.values:
        assert value.source, value
        if value.test == "inference.throughput":  # 8.2 GFLOP an image
            share = value.value * 8.2e-3 / builtin.models[value.gpu].peaks["fp16"]
            assert 0.1 <= share <= 0.6, value
            continue
        peak = builtin.models[value.gpu].peaks.get(value.peak)
        assert peak is not None, f"{value.gpu} has no peak {value.peak} for {value.test}"
        least = 0.1 if value.peak == "host" else 0.3
        assert least * peak <= value.value <= 1.15 * peak, value
        checked += 1
    assert checked > 60


def test_a_mig_slice_is_scaled_and_only_warns(builtin: Baselines) -> None:
    """14 of 108 processors: about 34 TFLOPS of bf16, and a slice far below is a warning."""
    slice_ = gpu(0, "NVIDIA A100-SXM4-80GB MIG 1g.10gb", mig="1g.10gb", sm_count=14)

    good = judged(run_of([outcome("cuda:0", metric(33.0))], [slice_]), builtin)
    bad = judged(run_of([outcome("cuda:0", metric(10.0))], [slice_]), builtin)

    reference = good.tests[0].metrics[0].reference
    assert reference is not None
    assert reference.kind == "scaled"
    assert reference.value == pytest.approx(261.2 * 14 / 108)
    assert (told(good), told(bad)) == ([("PASS", "")], [("WARN", "below_reference")])


def test_a_slow_host_link_is_no_failure_but_by_a_reference_of_the_site(
    builtin: Baselines, tmp_path: Path
) -> None:
    """What links to the host give differs from host to host, and a node that fails is avoided."""
    h2d = metric(20.0, name="h2d_pinned", unit="GB/s")
    tests = [
        outcome("cuda:0", h2d, metric(55.0, name="d2h_pinned", unit="GB/s"), name="membw.host")
    ]
    run = run_of(tests, [gpu(0, "NVIDIA H100 80GB HBM3")], test_type="membw")
    site = tmp_path / "baselines.yaml"
    of = "{payload: membw, test: membw.host, metric: h2d_pinned, unit: GB/s, peak: host}"
    values = "{h100: {value: 54, source: here}}"
    site.write_text(f"method_version: 2\nreferences: {{here: {{of: {of}, values: {values}}}}}\n")

    assert told(judged(run, builtin)) == [("WARN", "below_reference")]
    assert told(judged(run, load(tmp_path / "config", [], site))) == [("FAIL", "below_floor")]
    golden = load(tmp_path / "config", [site], tmp_path / "none")
    assert told(judged(run, golden)) == [("FAIL", "below_floor")]
    socket = metric(42.0, name="h2d_pinned", unit="GB/s")
    far = replace(run, tests=(replace(tests[0], metrics=(socket, *tests[0].metrics[1:])),))
    assert told(judged(far, golden)) == [("WARN", "below_reference")]


def test_a_reference_without_a_method_is_of_the_current_one(tmp_path: Path) -> None:
    """It held for nothing, and nobody was told."""
    (tmp_path / "baselines.yaml").write_text(SITE.replace("method_version: 2\n", ""))
    own = load(tmp_path, [], tmp_path / "none")

    assert told(judged(of_rates(590), own)) == [("PASS", "")]


@pytest.mark.parametrize("status", [Status.WARN, Status.PASS])
def test_a_rate_that_is_the_hosts_is_not_judged(builtin: Baselines, status: Status) -> None:
    """Where the payload warns that the GPU waited for it: neither slow nor missing, and no history."""
    code = "jitter" if status is Status.WARN else ""
    waited = outcome("cuda:0", metric(100.0, direction=""), status=status, code=code)
    result = run_of([waited], [gpu(0)], status=status)
    expected = [("WARN", "jitter")] if code else [("PASS", ""), ("ERROR", "metric_missing")]
    assert told(judged(result, builtin)) == expected
    assert list(measurements(result, "r", "c", 0.0)) == []


def test_metric_with_a_reference_that_is_missing_is_an_error(builtin: Baselines) -> None:
    """A test that passed without its number is no pass."""
    result = judged(run_of([outcome("cuda:0")], [gpu(0)]), builtin)

    assert ("ERROR", "metric_missing") in told(result)
    assert result.status is Status.ERROR
    skipped = outcome("cuda:0", status=Status.SKIP)
    assert judged(run_of([skipped], [gpu(0)], status=Status.SKIP), builtin).status is Status.SKIP


@pytest.mark.parametrize(
    ("slow", "count", "expected"),
    [
        (96, 3, ("PASS", "")),
        (94, 3, ("WARN", "peer_outlier")),
        (89, 3, ("FAIL", "peer_outlier")),
        (89, 2, ("PASS", "")),
        (94, 6, ("FAIL", "peer_outlier")),
    ],
)
def test_a_slow_gpu_among_its_peers_is_named(slow: float, count: int, expected: Any) -> None:
    """From three on, by the median; from six on an outlier fails sooner; others are not blamed."""
    rates = [slow, *(100 + 0.1 * i for i in range(count - 1))]

    found = told(judged(of_rates(*rates, name="Other GPU")))

    assert found[0] == expected
    assert set(found[1:]) == {("PASS", "")}


def test_peers_of_other_models_and_shapes_are_none() -> None:
    """A V100 beside two H200 is not slow."""
    tests = [outcome(f"cuda:{i}", metric(rate)) for i, rate in enumerate((100, 700, 700))]
    devices = [gpu(0, "Tesla V100"), gpu(1, "X"), gpu(2, "X")]

    assert set(told(judged(run_of(tests, devices)))) == {("PASS", "")}


def test_peers_are_compared_over_the_nodes_of_a_run() -> None:
    """Four nodes of one GPU each: the slow one fails."""
    results = [
        of_rates(rate, name="Other GPU", hostname=f"n{i}")
        for i, rate in enumerate((100, 101, 80, 99))
    ]
    results = [
        replace(r, tests=tuple(replace(t, host=r.hostname) for t in r.tests)) for r in results
    ]

    found = Judge(baselines=NO_BASELINES, past=lambda _: ()).judge(results)

    assert [str(result.status) for result in found] == ["PASS", "PASS", "FAIL", "PASS"]
    assert "n2 cuda:0" in found[2].tests[0].reason


def history(*values: float, software: str = "torch 2.13.0 cuda 13.0 driver 580") -> list[Point]:
    return [Point(time=t, value=v, fingerprint=software) for t, v in enumerate(values)]


STEADY = history(700, 702, 698, 701, 699, 700, 703)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(700, "PASS"), (670, "PASS"), (650, "WARN"), (590, "FAIL"), (800, "PASS")],
)
def test_a_drop_against_its_own_history(rate: float, expected: str) -> None:
    """7 % is a warning, 16 % a failure, 4 % and a rise are nothing."""
    result = judged(of_rates(rate, name="Other GPU"), past=STEADY)

    assert str(result.status) == expected
    assert (result.tests[0].code == "regression") == (expected != "PASS")


def test_a_drop_with_other_software_is_a_warning() -> None:
    """Of one GPU alone nothing says which it is."""
    older = history(700, 702, 698, 701, 699, software="torch 2.11.0 cuda 12.8 driver 570")

    result = judged(of_rates(600, name="Other GPU"), past=older)

    assert told(result) == [("WARN", "regression")]
    assert "since the software changed" in result.tests[0].reason


SLOW_TWICE = [
    *STEADY,
    *(replace(point, time=point.time + 9, standing=FAULTY) for point in history(560, 561)),
]
SHAKY = {"median": 700.0, "p05": 595.0, "p95": 805.0}


@pytest.mark.parametrize("own", ["", "throttled_power", "peer_outlier"])
def test_a_gpu_at_its_old_level_for_one_run_heals_behind_no_other_warning(own: str) -> None:
    """Rates that vary, or a warning of the payload's own; both reasons are kept."""
    verdict = {"status": Status.WARN, "code": own, "reason": "the payload's"} if own else {}
    test = outcome("cuda:0", metric(700, **SHAKY), **verdict)
    result = judged(run_of([test], [gpu(0, "Other GPU")]), past=SLOW_TWICE)

    (found, *_) = result.tests
    assert (result.status, found.code, found.fault_class) == (
        Status.WARN, "regression", "HARDWARE",
    )  # fmt: skip
    assert "not yet for three runs (and 1 more)" in found.reason
    assert found.reason.endswith("; the payload's" if own else "(and 1 more)")
    assert cleared([result]) == frozenset()


def test_a_gpu_that_is_below_its_reference_and_its_past_is_told_of_both(builtin: Baselines) -> None:
    """641 of 720 TFLOPS under a limit of power is its sound level; 583 is a warning by both."""
    past = history(641, 642, 640, 641, 643, 641, 640)
    said = {"status": Status.WARN, "code": "below_reference", "reason": "0.81 of the reference"}

    for verdict in ({}, said):
        (test,) = judged(
            run_of([outcome("cuda:0", metric(583), **verdict)], [gpu(0)]), builtin, past
        ).tests
        assert (test.status, test.code) == (Status.WARN, "regression")
        assert "earlier sound runs" in test.reason


def test_a_warning_is_told_behind_an_equal_one_of_the_payload_once() -> None:
    """The payload's code stays, and so does what it said itself."""
    for own, reason in (("throttled_power", "hot; tflops varies"), ("jitter", "hot")):
        test = outcome("cuda:0", metric(700, **SHAKY), status=Status.WARN, code=own, reason="hot")
        (found, *_) = judged(run_of([test], [gpu(0, "Other GPU")])).tests
        assert (found.code, found.reason.partition(":")[0]) == (own, reason)


def test_a_failure_keeps_the_code_that_says_whose_fault_it_is(builtin: Baselines) -> None:
    """Far below the reference and its past; and wrong, too."""
    slow = outcome("cuda:0", metric(500))
    wrong = replace(slow, status=Status.FAIL, code="wrong_result", reason="bits")

    for test, code in ((slow, "below_floor"), (wrong, "wrong_result")):
        (found,) = judged(run_of([test], [gpu(0)], status=test.status), builtin, STEADY).tests
        assert (found.status, found.code) == (Status.FAIL, code)


def one_of(count: int, rate: float) -> dict[str, Any]:
    """The figures of so many iterations at 100, one of them slower."""
    samples = [100.0] * (count - 1) + [rate]
    median, p05, p95 = (percentile(samples, percent) for percent in (50, 5, 95))
    return {"n": count, "median": median, "p05": p05, "p95": p95}


def test_rates_that_vary_are_a_warning_but_not_in_quick_runs() -> None:
    """By the slower half; latencies may, and one iteration may be late."""
    shaky = outcome("cuda:0", metric(100, median=100.0, p05=85.0, p95=115.0))
    slow = outcome("cuda:0", metric(100, median=100.0, p05=60.0, p95=70.0))
    slowed = outcome("cuda:0", metric(400, median=400.0, p05=400.0, p95=700.0))
    late_once = Metric(
        value=100, name="tflops", unit="TFLOPS", direction="higher", **one_of(20, 40)
    )
    one_of_few = Metric(
        value=100, name="tflops", unit="TFLOPS", direction="higher", **one_of(10, 80)
    )
    fast_at_first = metric(641, median=641.5, p05=620.9, p95=744.3)  # a cool H200
    latency = outcome("cuda:0", metric(9, direction="lower", name="latency_us"))

    assert told(judged(run_of([shaky], [gpu(0)]))) == [("WARN", "jitter")]
    assert told(judged(run_of([slow], [gpu(0)]))) == [("WARN", "jitter")]
    assert told(judged(run_of([slowed], [gpu(0)]))) == [("WARN", "jitter")]
    assert told(judged(run_of([outcome("cuda:0", late_once)], [gpu(0)]))) == [("PASS", "")]
    assert told(judged(run_of([outcome("cuda:0", one_of_few)], [gpu(0)]))) == [("PASS", "")]
    assert told(judged(run_of([outcome("cuda:0", fast_at_first)], [gpu(0)]))) == [("PASS", "")]
    assert told(judged(run_of([latency], [gpu(0)]))) == [("PASS", "")]
    assert told(judged(run_of([shaky], [gpu(0)], quick=True))) == [("PASS", "")]


def test_what_is_slow_beside_another_program_makes_no_node_bad(builtin: Baselines) -> None:
    """Half of the reference on a GPU that is shared: it fails, as contention, and nobody is avoided.

    Another GPU of the node that is as slow, and that nobody shares, is.
    """
    busy = outcome("cuda:0", name="contention", status=Status.FAIL, code="gpu_busy", reason="bob's")
    slow = [outcome(f"cuda:{index}", metric(360.0)) for index in (0, 1)]

    shared = judged(run_of([busy, slow[0]], [gpu(0)], status=Status.FAIL), builtin)
    both = judged(run_of([busy, *slow], [gpu(0), gpu(1)], status=Status.FAIL), builtin)

    assert [(t.code, t.fault_class) for t in shared.tests] == [
        ("gpu_busy", "CONTENTION"), ("below_floor", "CONTENTION"),
    ]  # fmt: skip
    assert bad_nodes([shared], "r1", 0.0, 7) == ()
    assert [entry.uuids for entry in bad_nodes([both], "r1", 0.0, 7)] == [("GPU-1",)]


def test_a_contended_rate_stays_contention_below_a_reference(builtin: Baselines) -> None:
    """What the payload saw explains what rv finds."""
    seen = outcome("cuda:0", metric(360.0), status=Status.WARN, code="contended", reason="0.85")
    (test,) = judged(run_of([seen], [gpu(0)]), builtin).tests

    assert (test.status, test.code, test.fault_class) == (Status.FAIL, "contended", "CONTENTION")


def test_an_all_reduce_below_its_reference_is_the_fabrics_fault(builtin: Baselines) -> None:
    """Of two H200 without peer access."""
    (found,) = judged(two_reduced(23.5, link_share=1.0), builtin).tests

    assert (found.status, found.code, found.fault_class) == (Status.FAIL, "slow_fabric", "FABRIC")


def two_reduced(rate: float, **links: float) -> RunResult:
    """An all-reduce of two H200, 4 GiB, by its busbw."""
    more = {"bytes": 4 << 30, "dtype": "", "shape": None, **links}
    value = metric(rate, name="busbw_4GiB", unit="GB/s", more=more)
    del value.more["dtype"], value.more["shape"]  # type: ignore[attr-defined]
    test = outcome("", value, name="allreduce.all_reduce")
    return run_of([test], [gpu(0), gpu(1)], test_type="allreduce", world_size=2, backend="nccl")


@pytest.mark.parametrize(
    ("rate", "links", "status"),
    [
        (110.0, {"link_share": 1 / 3}, Status.PASS),
        (80.0, {"link_share": 1 / 3}, Status.FAIL),
        (80.0, {"link_share": 1e-9}, Status.FAIL),
        (110.0, {}, Status.WARN),
        (80.0, {}, Status.FAIL),
        (110.0, {"link_share": 0}, Status.WARN),
        (330.0, {}, Status.PASS),
    ],
)
def test_a_reference_over_nvlink_holds_for_the_links_that_there_are(
    builtin: Baselines, rate: float, links: dict[str, float], status: Status
) -> None:
    """Two GPUs of a board of four without a switch have a third; less fails, told or untold."""
    assert judged(two_reduced(rate, **links), builtin).status is status


def test_gpus_without_a_switch_are_no_peers_of_those_with_one(builtin: Baselines) -> None:
    switched = [two_reduced(336.0, link_share=1.0) for _ in range(3)]
    runs = [*switched, two_reduced(112.0, link_share=1 / 3)]
    runs = [replace(run, hostname=f"n{at}") for at, run in enumerate(runs)]

    found = Judge(baselines=builtin, past=lambda _: (), time_s=1e12).judge(runs)

    assert {each.status for each in found} == {Status.PASS}


def test_a_payloads_own_verdict_is_never_made_better() -> None:
    """A wrong result at full speed stays a failure, with its own words."""
    wrong = outcome("cuda:0", metric(750), status=Status.FAIL, code="wrong_result", reason="bits")
    result = judged(run_of([wrong], [gpu(0)], status=Status.FAIL), past=STEADY)

    assert (result.status, result.tests[0].code, result.tests[0].reason) == (
        Status.FAIL, "wrong_result", "bits",
    )  # fmt: skip


SITE = """
method_version: 2
references:
  ours:
    of: {payload: check, test: matmul.bf16, metric: tflops, unit: TFLOPS}
    values:
      h200: {value: 600, source: measured here}
"""


def test_the_users_file_wins_over_the_sites_and_that_over_builtin(tmp_path: Path) -> None:
    """Layer by layer, value by value."""
    site, user = tmp_path / "site.yaml", tmp_path / "config"
    user.mkdir()
    site.write_text(SITE)
    by_site = load(user, [], site)
    (user / "baselines.yaml").write_text(SITE.replace("600", "500"))
    by_user = load(user, [], site)

    def reference(baselines: Baselines) -> tuple[float, str]:
        found = judged(of_rates(590), baselines).tests[0].metrics[0].reference
        assert found is not None
        return found.value, found.kind

    assert (reference(by_site), reference(by_user)) == ((600, "site"), (500, "user"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("value: 600", "value: fast"),
        ("value: 600", "value: .inf"),
        ("payload: check, ", ""),
        ("references:", "refrences:"),
    ],
)
def test_a_wrong_file_of_baselines_is_named_with_its_line(
    tmp_path: Path, wrong: str, said: str
) -> None:
    """One line that names the file."""
    (tmp_path / "baselines.yaml").write_text(SITE.replace(wrong, said))

    with pytest.raises(RvError, match=r"baselines\.yaml:\d+: ") as caught:
        load(tmp_path, [], Path("/nonexistent"))
    assert caught.value.kind == "config"


def test_judging_codes_have_a_meaning_and_agree_with_the_payloads() -> None:
    """The same code is the same fault on both sides: there is one table."""
    used = "below_floor below_reference above_peak peer_outlier regression jitter too_hot"
    assert set(used.split()) | {"throttled_thermal", "metric_missing"} <= set(CODES)
    assert meaning("made_up").fault == "UNKNOWN"


def keys(result: RunResult) -> list[Measurement]:
    return list(measurements(result, "r1", "c", 0.0))


def test_measurements_know_what_they_are_of() -> None:
    """Node, GPU, type, size and software."""
    (one,) = keys(of_rates(700))

    assert (one.gpu_uuid, one.node, one.dtype, one.shape) == (
        "GPU-0",
        "n1",
        "bf16",
        "8192x8192x8192",
    )
    assert one.fingerprint == "torch 2.13.0 cuda 13.0 driver 580"
    assert not keys(run_of([outcome("cuda:0", metric(None), metric(1, direction=""))], [gpu(0)]))
    assert keys(of_rates(700, quick=True))[0].key != one.key


def test_only_rates_of_gpus_are_held_against_peers_and_the_past() -> None:
    """A slow disk, a latency or a ratio makes no node bad; nor a run of many nodes one of them."""
    slow, peers = 10.0, (100.0, 100.0, 100.0)
    disk = [metric(v, name="write", unit="MB/s", more={}) for v in (slow, *peers)]
    nodes = [run_of([outcome("", m)], [gpu(0)], hostname=f"n{i}") for i, m in enumerate(disk)]
    late = [metric(v, direction="lower", name="latency_us", unit="us") for v in (99.0, 1, 1, 1)]
    ratio = [metric(v, name="bare_ratio", unit="ratio") for v in (0.1, 1, 1, 1)]
    judge = Judge(baselines=NO_BASELINES, past=lambda _: STEADY, time_s=1e12)

    assert {str(r.status) for r in judge.judge(nodes)} == {"PASS"}
    for metrics in (late, ratio):
        tests = [outcome(f"cuda:{i}", m) for i, m in enumerate(metrics)]
        assert told(judged(run_of(tests, [gpu(i) for i in range(4)]))) == [("PASS", "")] * 4
    together = outcome("", metric(300.0), name="allreduce.all_reduce")
    two = run_of([together], [gpu(0)], world_size=8, nnodes=2, backend="nccl")
    assert told(judged(two, past=STEADY)) == [("PASS", "")]
    one = replace(two, nnodes=1)
    assert told(judged(one, past=STEADY)) == [("FAIL", "regression")]


def test_devices_of_one_index_on_two_hosts_are_two() -> None:
    """A merged result has a cuda:0 of each host."""
    devices = [gpu(0, host="n1", uuid="GPU-a"), gpu(0, host="n2", uuid="GPU-b")]
    tests = [outcome("cuda:0", metric(1), host="n1"), outcome("cuda:0", metric(2), host="n2")]

    assert [m.gpu_uuid for m in keys(run_of(tests, devices))] == ["GPU-a", "GPU-b"]


def test_a_number_of_a_whole_world_is_its_nodes() -> None:
    """Bus bandwidth is no single GPU's."""
    sum_ = TestResult(
        name="allreduce.all_reduce", status=Status.PASS, host="n1", metrics=(metric(363),)
    )
    (one,) = keys(run_of([sum_], [gpu(0), gpu(1)], world_size=2, backend="nccl"))

    assert (one.gpu_uuid, one.gpu, one.world) == ("", "NVIDIA H200", 2)


@pytest.mark.parametrize(
    ("test", "name", "unit"),
    [
        ("membw.host", "h2d_pageable", "GB/s"),
        ("membw.host", "duplex_pinned", "GB/s"),
        ("membw.host_all_at_once", "h2d_pinned", "GB/s"),
        ("ddp.train", "samples_per_s", "1/s"),
        ("ddp.train", "model_tflops", "TFLOPS"),
    ],
)
def test_rates_that_the_host_or_all_ranks_decide_blame_no_gpu(
    test: str, name: str, unit: str
) -> None:
    """As four sound H200s gave them: a fifth apart, and a tenth."""
    tests = [
        outcome(f"cuda:{index}", metric(value, name=name, unit=unit), name=test)
        for index, value in enumerate((100.0, 99.0, 101.0, 80.0))
    ]

    assert judged(run_of(tests, [gpu(index) for index in range(4)])).status is Status.PASS


def reduced(nodes: int, rate: float) -> RunResult:
    """An all-reduce of eight GPUs, 4 GiB, by its busbw."""
    value = metric(
        rate, name="busbw_4GiB", unit="GB/s", more={"dtype": "float32", "shape": "4294967296"}
    )
    test = outcome("world", value, name="allreduce.all_reduce")
    return run_of(
        [test], [gpu(i) for i in range(8)], test_type="allreduce", world_size=8, nnodes=nodes
    )


def test_a_reference_of_gpus_together_is_of_one_node(builtin: Baselines) -> None:
    """Between nodes the network is measured, which is slower and nobody's fault."""
    (within,) = measurements(reduced(1, 200.0), "r", "c", 0.0)
    (between,) = measurements(reduced(2, 200.0), "r", "c", 0.0)
    assert builtin.find(within, None) is not None
    assert builtin.find(between, None) is None


def copied(*rates: float, number: int = 0, node: str = "n1") -> RunResult:
    """Copies from pinned memory of the host to the GPUs of a node."""
    tests = [
        outcome(f"cuda:{i}", metric(rate, name=name, unit="GB/s"), name="membw.host", host=node)
        for i, rate in enumerate(rates)
        for name in ("h2d_pinned", "d2h_pinned")
    ]
    devices = [gpu(i, A40, uuid=f"GPU-{node}-{i}") for i in range(len(rates))]
    about: dict[str, Any] = {"test_type": "membw", "hostname": node}
    return run_of(tests, devices, began=1e6 + 3600.0 * number, **about)


NEAR, FAR, HALF = 25.5, 20.5, 12.6


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((NEAR,) * 4 + (FAR,) * 4, ("WARN", "peers_disagree")),
        ((NEAR,) * 3 + (FAR,), ("WARN", "peer_outlier")),
        ((NEAR,) * 3 + (HALF,), ("FAIL", "peer_outlier")),
    ],
)
def test_a_gpu_of_the_other_socket_is_no_failure_and_one_with_half_its_lanes_is(
    rates: tuple[float, ...], expected: tuple[str, str]
) -> None:
    """The process is on one socket: copies to the GPUs of the other are slower."""
    result = judged(copied(*rates))

    assert {t for t in told(result) if t[1]} == {expected}
    assert [bad.node for bad in bad_nodes([result], "r", 2e6, 7)] == ["n1"] * (HALF in rates)
    standing = {m.standing for t in result.tests for m in t.metrics}
    assert standing == ({FAULTY, SOUND} if HALF in rates else {SOUND})


def test_a_process_on_the_other_socket_is_no_regression_and_lost_lanes_are(tmp_path: Path) -> None:
    """It warns, and is part of what is usual; half the rate is a failure."""
    rates = [NEAR] * 6 + [FAR, NEAR, FAR, NEAR, FAR, HALF]
    runs = [copied(rate, number=number) for number, rate in enumerate(rates)]
    *found, last = in_turn(tmp_path, runs, NO_BASELINES)

    assert {each.status for each in found} <= {Status.PASS, Status.WARN}
    assert bad_nodes(found, "r", 2e6, 7) == ()
    assert last.tests[0].code == "regression"
    assert last.status is Status.FAIL


A40 = "NVIDIA A40"


def on_pair(number: int, first: int, rate: float, node: str = "n1", name: str = A40) -> RunResult:
    """An all-reduce of two GPUs of a node; the pairs 0 and 1, 2 and 3 have an NVLink bridge."""
    value = metric(rate, name="busbw_4GiB", unit="GB/s", more={"dtype": "float32", "shape": "4"})
    test = outcome("", value, name="allreduce.all_reduce", host=node)
    devices = [gpu(i, name, uuid=f"GPU-{node}-{i}") for i in (first, first + 1)]
    about: dict[str, Any] = {"test_type": "allreduce", "world_size": 2, "backend": "nccl"}
    return run_of([test], devices, hostname=node, began=1e6 + 3600.0 * number, **about)


def in_turn(tmp_path: Path, runs: Sequence[RunResult], baselines: Baselines) -> list[RunResult]:
    """Judge runs of one cluster, each with those before it as history."""
    kept, found = History(tmp_path / "h.sqlite"), []
    for number, result in enumerate(runs):
        name = f"r{number}"
        judge = Judge(
            baselines=baselines, past=earlier(kept, name), others=others(kept, name), run=name,
            cluster="c", time_s=result.began,
        )  # fmt: skip
        found += judge.judge([result])
        kept.add(measurements(found[-1], name, "c", result.began))
    return found


def test_a_pair_of_gpus_is_not_held_against_one_that_is_linked_otherwise(
    builtin: Baselines, tmp_path: Path
) -> None:
    """A40s have bridges in twos: two that have none between them are slower, and sound."""
    runs = [on_pair(n, 0, 48.0) for n in range(6)]
    runs += [on_pair(6, 1, 18.0), on_pair(7, 0, 48.0, "n2"), on_pair(8, 0, 18.0, "n3")]
    found = in_turn(tmp_path, runs, builtin)

    assert {code for each in found for _, code in told(each)} == {"", "no_reference"}
    assert bad_nodes(found, "r", 2e6, 7) == ()
    last = in_turn(tmp_path / "2", [*runs[:6], on_pair(9, 0, 18.0)], builtin)[-1]
    assert ("FAIL", "regression") in told(last)


def test_pairs_that_a_switch_joins_are_held_against_each_other(
    builtin: Baselines, tmp_path: Path
) -> None:
    """Of models whose GPUs NVLink joins all; of others in one sweep it is a warning."""
    h200 = [on_pair(n, 2 * n, 300.0, name="NVIDIA A100-SXM4-80GB") for n in range(3)]
    slow = on_pair(4, 6, 200.0, name="NVIDIA A100-SXM4-80GB")
    assert ("FAIL", "peer_outlier") in told(in_turn(tmp_path, [*h200, slow], builtin)[-1])

    swept = [on_pair(0, 0, rate, f"n{n}") for n, rate in enumerate((48.0, 48.0, 48.0, 18.0))]
    judged = Judge(baselines=builtin, past=lambda _: (), time_s=1e12).judge(swept)
    assert [t for each in judged for t in told(each) if t[1]] == [("WARN", "peer_outlier")]
    assert judged[-1].tests[0].metrics[0].standing == SOUND


@pytest.mark.parametrize("name", ["NVIDIA H20", "NVIDIA L40S"])
def test_a_node_far_below_its_peers_is_no_question_of_wiring(builtin: Baselines, name: str) -> None:
    """Of eight GPUs each; a fifth may be another socket's, a tenth of the rate is not."""

    def swept(last: float) -> list[RunResult]:
        runs = [on_pair(0, 0, rate, f"n{n}", name) for n, rate in enumerate((300.0,) * 4 + (last,))]
        runs = [replace(run, world_size=8) for run in runs]
        return Judge(baselines=builtin, past=lambda _: (), time_s=1e12).judge(runs)

    assert ("FAIL", "peer_outlier") in told(swept(30.0)[-1])
    assert ("WARN", "peer_outlier") in told(swept(240.0)[-1])


def test_a_slow_gpu_without_a_uuid_is_no_question_of_wiring(builtin: Baselines) -> None:
    """An old torch tells none; its images a second are its own all the same."""
    rates = (1000.0, 1000.0, 1000.0, 500.0)
    tests = [
        outcome(f"cuda:{at}", metric(rate, name="images", unit="images/s"), name="inference.x")
        for at, rate in enumerate(rates)
    ]
    devices = [gpu(at, A40, uuid="") for at in range(4)]
    run = run_of(tests, devices, test_type="inference", world_size=4, backend="nccl")

    assert ("FAIL", "peer_outlier") in told(judged(run, builtin))


def test_collectives_of_an_older_history_accuse_nobody(builtin: Baselines, tmp_path: Path) -> None:
    """They do not tell which GPUs they were of: of these, perhaps."""
    name = "NVIDIA A100-SXM4-80GB"
    kept = History(tmp_path / "h.sqlite")
    for number in range(8):
        run = on_pair(number, 0, 230.0, name=name)
        old = [replace(m, members="") for m in measurements(run, f"r{number}", "c", run.began)]
        kept.add(old)
    new = on_pair(9, 0, 150.0, name=name)
    judge = Judge(
        baselines=builtin, past=earlier(kept, "r9"), others=others(kept, "r9"), run="r9",
        cluster="c", time_s=new.began,
    )  # fmt: skip

    assert "peers_disagree" not in {code for _, code in told(judge.judge([new])[0])}


def test_two_pairs_of_one_node_are_two_histories(tmp_path: Path) -> None:
    kept = History(tmp_path / "h.sqlite")
    every = [m for at in (0, 2) for m in measurements(on_pair(0, at, 48.0), "r", "c", 1e6)]

    kept.add(every)

    assert len({each.members for each in kept.all()}) == 2


def test_own_values_hold_for_gpus_of_another_size(builtin: Baselines, tmp_path: Path) -> None:
    """The built-in ones do not; whoever has such GPUs has values of their own for them."""
    (tmp_path / "baselines.yaml").write_text(SITE)
    own = load(tmp_path, [], tmp_path / "none")
    small = [gpu(0, "NVIDIA H200", memory_bytes=64 << 30)]
    run = run_of([outcome("cuda:0", metric(300.0))], small)

    assert ("FAIL", "below_floor") not in told(judged(run, builtin))
    assert ("FAIL", "below_floor") in told(judged(run, own))


def golden_of(tmp_path: Path, **of: Any) -> Baselines:
    """The cluster's own value of something that no run here reports."""
    about = {"payload": "check", "test": "matmul.bf16", "metric": "other", "unit": "TFLOPS", **of}
    values = {"h200": {"value": 700, "source": "here"}}
    document = {"method_version": 2, "references": {"x": {"of": about, "values": values}}}
    path = tmp_path / "golden.yaml"
    path.write_text(json.dumps(document))
    return load(Path("/nonexistent"), [path], Path("/nonexistent"))


@pytest.mark.parametrize(
    ("of", "quick", "is_missing"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"world": 8}, False, False),
        ({"shape": "9x9x9"}, False, False),
    ],
    ids=["expected", "quick", "other-world", "other-shape"],
)
def test_only_what_a_run_could_report_is_missed(
    tmp_path: Path, of: dict[str, Any], quick: bool, is_missing: bool
) -> None:
    """A short run has not all sizes, and one GPU no figures of eight."""
    result = judged(of_rates(720, quick=quick), golden_of(tmp_path, **of))
    assert (("ERROR", "metric_missing") in told(result)) == is_missing
