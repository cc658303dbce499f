"""The shared parts of the payloads, without torch: verdicts, codes, numbers, files, ranks."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _harness import environment, files, for_job, inject, main, outcome, ranks
from _harness.devices import VECTOR_MATH, load_torch
from _harness.model_names import same_model
from _harness.report import Report
from _loading import cpus
from _matmul.speed import Reading, outliers, strange_digests
from _training import progress
from contract import codes, schema, stats, verdicts
from contract.schema import summary_of
from contract.verdicts import NotPassed

from tests.payloads.starting import PAYLOADS

ALONE = ranks.Ranks()
TWO = ranks.Ranks(rank=0, world=2, local_rank=0, local_world=1, launch="one")


def test_mkl_chooses_its_kernels_before_threads_ask_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four ranks of train.py on two busy CPUs: half of a first sqrt had the wrong last bits."""
    called: list[str] = []
    functions = {name: lambda _values, name=name: called.append(name) for name in VECTOR_MATH}
    torch = SimpleNamespace(ones=lambda count: [1.0] * count, **functions)
    monkeypatch.setitem(sys.modules, "torch", torch)

    assert load_torch() == (torch, "")
    assert "sqrt" in called
    assert called == [*VECTOR_MATH]


def report(*statuses: str, rank: int = 0, of: ranks.Ranks = TWO) -> Report:
    """A rank's report of tests with these outcomes."""
    made = Report("mine", ranks.Ranks(rank, of.world, 0, of.local_world, launch=of.launch))
    for status in statuses:
        made.add(
            "mine.test", status, code="" if status == "PASS" else "wrong_result", reason=status
        )
    return made


@pytest.mark.parametrize(
    ("statuses", "status", "code"),
    [
        ([], "ERROR", 99),
        (["PASS"], "PASS", 0),
        (["PASS", "SKIP"], "PASS", 0),
        (["SKIP", "SKIP"], "SKIP", 77),
        (["PASS", "WARN", "SKIP"], "WARN", 0),
        (["ERROR", "WARN"], "ERROR", 99),
        (["PASS", "ERROR", "FAIL"], "FAIL", 1),
    ],
)
def test_the_worst_test_is_the_verdict(statuses: list[str], status: str, code: int) -> None:
    """Could-not-run never becomes a pass, and nothing tested is could-not-run."""
    summary = report(*statuses).as_json()["summary"]

    assert (summary["status"], summary["exit_code"]) == (status, code)


@pytest.mark.parametrize(
    ("wear", "status", "left"),
    [("PASS", "SKIP", {"mine"}), ("WARN", "WARN", {"mine", "wear"})],
)
def test_a_payload_that_is_skipped_whole_has_not_passed(
    tmp_path: Path, wear: str, status: str, left: set[str]
) -> None:
    """A device that is there is no reason to vouch for what nobody tested; what is wrong stays."""

    def body(session: main.Session) -> None:
        for name in ("device", "contention"):
            session.report.add(name, "PASS", device="cuda:0")
        code, reason = ("", "") if wear == "PASS" else ("ecc_corrected", "5 errors")
        session.report.add("wear", wear, code=code, reason=reason)
        raise NotPassed("SKIP", "tool_absent", "a tool is not installed")

    payload = main.Payload("mine", "A payload.", body)
    options = main._options(payload, ["--report-dir", str(tmp_path)])
    session = main.Session(payload, options, ALONE, for_job.Run("mine", ALONE))
    session.execute()

    said = (
        "a tool is not installed" if wear == "PASS" else "; without mine: a tool is not installed"
    )
    assert session.report.verdict()[0] == status
    assert session.report.verdict()[1].endswith(said)
    assert {test["name"] for test in session.report.tests} == left


def test_what_the_user_asked_changes_the_exit_code() -> None:
    """--strict and --skip-exit-code."""
    assert summary_of(report("WARN").tests, strict=True)["exit_code"] == 1
    assert summary_of(report("SKIP").tests, skip_exit_code=0)["exit_code"] == 0


def test_a_test_without_a_known_code_cannot_be_reported() -> None:
    """Nor one with a status of its own."""
    with pytest.raises(KeyError):
        report().add("mine.test", "FAIL", code="made_up", reason="?")
    with pytest.raises(ValueError, match="unknown status"):
        report().add("mine.test", "OK")


@pytest.mark.parametrize("payload", ["train", "train_fsdp", "ckpt_cycle"])
def test_a_torch_without_numpy_is_named_before_the_ranks_meet(tmp_path: Path, payload: str) -> None:
    """Not a rank that is missing, nor a node that failed: the environment lacks a package."""
    pytest.importorskip("torch")
    (tmp_path / "numpy.py").write_text('raise ModuleNotFoundError("No module named numpy")\n')
    words = ["--quick", "--device", "cpu", "--report-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(PAYLOADS / f"{payload}.py"), *words],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip

    assert done.returncode == 99, done.stdout + done.stderr
    document = json.loads((tmp_path / f"{payload}_result.json").read_text())
    tests = [test for test in document["tests"] if test["status"] != "SKIP"]
    assert [(t["status"], t["code"], t["class"]) for t in tests] == [
        ("ERROR", "no_numpy", "CONFIG")
    ]
    assert "install numpy" in tests[0]["action"]


def test_payloads_use_known_codes_only() -> None:
    """Each code in a payload's text is in the table, with a class and something to do."""
    named = re.compile(r'NotPassed\(\s*"[A-Z]+",\s*"(\w+)"|code"?[=:]\s*"(\w+)"|_code = "(\w+)"')
    used = set()
    for path in PAYLOADS.rglob("*.py"):
        used |= {next(filter(None, groups)) for groups in named.findall(path.read_text())}

    assert len(used) > 15
    assert used <= set(codes.CODES)
    for code in codes.CODES.values():
        assert code.fault in {
            "HARDWARE", "FABRIC", "STORAGE", "SOFTWARE", "CONFIG", "CONTENTION", "UNKNOWN",
        }  # fmt: skip
        assert len(code.action) > 10


def test_schema_has_what_older_readers_look_for() -> None:
    """`test_info` and `tests` as seed 004 wrote them, and what is new."""
    document = report("PASS", "FAIL").as_json()

    assert document["schema"] == "rv.accept/1"
    assert {"hostname", "timestamp", "test_type"} <= set(document["test_info"])
    assert {"name", "status", "details", "timing_ms", "timestamp"} <= set(document["tests"][0])
    failed = document["tests"][1]
    assert (failed["class"], failed["action"]) == codes.CODES["wrong_result"]
    assert document["summary"]["exclude_nodes"] == [failed["host"]]
    assert document["summary"]["codes"] == ["wrong_result"]


def test_merging_keeps_every_ranks_tests_and_each_gpu_once() -> None:
    """Two ranks of one node see the same GPUs."""
    first, second = report("PASS"), report("WARN", rank=1)
    for made in (first, second):
        made.devices = [{"index": 0, "uuid": "a"}, {"index": 1, "uuid": "b"}]

    document = files.merged(first.as_json(), {1: second.as_json()}, TWO)

    assert [test["rank"] for test in document["tests"]] == [0, 1]
    assert [device["uuid"] for device in document["devices"]] == ["a", "b"]
    assert document["summary"]["status"] == "WARN"


def test_a_rank_without_a_result_is_a_failure_by_host() -> None:
    """Its neighbours on the node tell its name; alone on a node it has the node's number."""
    four = ranks.Ranks(rank=0, world=4, local_world=2, launch="one")
    first, third = report("PASS", of=four).as_json(), report("PASS", rank=2, of=four).as_json()
    third["test_info"]["node"] = "far"

    tests = files.merged(first, {2: third}, four)["tests"]

    assert [test["host"] for test in tests if test["status"] == "FAIL"] == [
        first["test_info"]["node"],
        "far",
    ]
    lonely = files.merged(first, {}, TWO)
    assert lonely["tests"][-1]["reason"] == "no results reported by rank 1 on node 1"
    assert lonely["summary"]["codes"] == ["rank_missing"]


def test_a_rank_that_began_later_than_one_whose_time_is_over_is_no_failure() -> None:
    """Its own time is over later; that says nothing of its node."""
    first = report("PASS")
    first.add("mine", "ERROR", code="timeout", reason="not done after 9 s")

    document = files.merged(first.as_json(), {}, TWO)

    assert document["summary"]["status"] == "ERROR"
    assert document["tests"][-1]["code"] == "rank_missing"
    assert document["summary"]["exclude_nodes"] == []


def test_files_of_another_launch_are_no_answer(tmp_path: Path) -> None:
    """What lies there from before, is cut short, or is no result, is not merged."""
    target = files.rank_file(tmp_path, "mine_result.json", 1)
    made = report("PASS", rank=1)

    def found() -> set[int]:
        got = files.collect(tmp_path, "mine_result.json", TWO, lambda: True)
        return set(got)

    assert found() == set()
    files.write(target, made.as_json())
    assert found() == {1}
    files.write(target, made.as_json() | {"test_info": {"launch": "another"}})
    assert found() == set()
    target.write_text(json.dumps(made.as_json())[:200])
    assert found() == set()


@pytest.mark.parametrize("ahead", [400, -400])
@pytest.mark.parametrize(
    ("written", "codes_found"),
    [("meanwhile", []), (-10, []), (-4000, ["rank_missing"]), ("never", ["rank_missing"])],
)
def test_what_rank_1_wrote_counts_whatever_rank_0s_clock_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ahead: float,
    written: Any,
    codes_found: list[str],
) -> None:
    """Meanwhile, or where it failed just before rank 0 began; not what an equal launch left there."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    here = ranks.from_environment()
    target = files.rank_file(tmp_path, "mine_result.json", 1)
    other = report("PASS", rank=1, of=here).as_json()
    if isinstance(written, int):
        files.write(target, other)
        at = target.stat().st_mtime + written
        os.utime(target, (at, at))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + ahead)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(main, "LATER", 0.0)

    def body(session: main.Session) -> None:
        session.report.add("mine.test", "PASS")
        if written == "meanwhile":
            files.write(target, other)

    with pytest.raises(SystemExit):
        main.run(
            main.Payload("mine", "A test.", body), [f"--report-dir={tmp_path}", "--timeout=1.5"]
        )

    result = json.loads((tmp_path / "mine_result.json").read_text())
    assert result["summary"]["codes"] == codes_found


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """What cannot be written leaves the old one, and nothing beside it."""
    target = tmp_path / "mine.json"
    files.write(target, {"summary": 1})
    loop: dict[str, Any] = {}
    loop["again"] = loop

    with pytest.raises(ValueError, match="Circular"):
        files.write(target, loop)

    assert json.loads(target.read_text()) == {"summary": 1}
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("text", "where", "struck"),
    [
        ("nan", {"step": 3}, True),
        ("nan:step=3", {"step": 3}, True),
        ("nan:step=4", {"step": 3}, False),
        ("nan:step=3,rank=1", {"step": 3}, True),
        ("nan:rank=0", {"step": 3}, False),
        ("other", {"step": 3}, False),
    ],
)
def test_a_fault_strikes_where_it_was_told_to(
    text: str, where: dict[str, int], *, struck: bool
) -> None:
    """By rank and by what the payload says of the place."""
    faults = inject.Faults([inject.fault(text)], rank=1)

    assert (faults.get("nan", **where) is not None) == struck


def test_numbers_are_summed_up_robustly() -> None:
    """The median is the value; percentiles as numpy has them."""
    made = schema.metric("x", [1.0, 2.0, 3.0, 4.0, 100.0], "ms", schema.LOWER)

    assert (made["value"], made["n"], made["min"], made["max"]) == (3.0, 5, 1.0, 100.0)
    assert made["p95"] == pytest.approx(80.8)
    assert made["p05"] == pytest.approx(1.2)
    with pytest.raises(ValueError, match="no samples"):
        schema.metric("x", [], "ms", schema.LOWER)
    assert stats.modified_z(50, [100, 101, 99, 100, 102, 50]) < -3.5
    assert stats.modified_z(100, [100, 100, 100]) == 0


@pytest.mark.parametrize(
    ("requested", "name", "same"),
    [
        ("a100-80", "NVIDIA A100-SXM4-80GB", True),
        ("a100_80", "NVIDIA A100 80GB PCIe", True),
        ("a100-40", "NVIDIA A100-SXM4-80GB", False),
        ("v100", "NVIDIA RTX A6000", False),
        ("a6000", "NVIDIA RTX A6000", True),
        ("rtx3090", "NVIDIA GeForce RTX 3090", True),
        ("h200", "NVIDIA H200", True),
        ("1g.10gb", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", True),
        ("mig", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", True),
        ("gpu", "NVIDIA L40S", True),
        ("l4", "NVIDIA L40S", False),
        ("l4", "NVIDIA L4", True),
        ("a10", "NVIDIA A100-SXM4-80GB", False),
        ("h20", "NVIDIA H200", False),
        ("h200", "NVIDIA GH200 480GB", False),
        ("a40", "NVIDIA RTX A4000", False),
        ("rtx6000", "NVIDIA RTX A6000", False),
        ("rtx6000", "Quadro RTX 6000", True),
        ("rtx_6000_ada", "Quadro RTX 6000", False),
        ("rtx6000ada", "NVIDIA RTX 6000 Ada Generation", True),
        ("gtx1080ti", "NVIDIA GeForce GTX 1080 Ti", True),
        ("geforce_gtx_1080_ti", "NVIDIA GeForce GTX 1080 Ti", True),
        ("rtx3080ti", "NVIDIA GeForce RTX 3080", False),
        ("rtx-3080-ti", "NVIDIA GeForce RTX 3080", False),
        ("rtxa6000", "NVIDIA RTX A6000", True),
        ("volta", "Tesla V100-SXM2-32GB", True),
        ("v100-32", "Tesla V100-SXM2-16GB", False),
        ("v100s", "Tesla V100-SXM2-32GB", False),
        ("v100l", "Tesla V100-SXM2-32GB", True),  # a site's own words
        ("a100pcie40", "NVIDIA A100-PCIE-40GB", True),
        ("l40s48", "NVIDIA L40S", True),
        ("gpu80g", "NVIDIA H100 80GB HBM3", True),
        ("node4", "NVIDIA L40S", True),
        ("h100-80", "NVIDIA H100 PCIe", True),
        ("h100_80gb", "NVIDIA H100 80GB HBM3", True),
        ("h100-sxm", "NVIDIA H100 80GB HBM3", True),
        ("h100-pcie", "NVIDIA H100 80GB HBM3", False),
        ("h100nvl", "NVIDIA H100 NVL", True),
        ("h100-sxm5", "NVIDIA H100 NVL", False),
        ("a100-sxm", "NVIDIA A100-SXM4-40GB", True),
        ("nvidia_a100-sxm4-40gb_1g.5gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", True),
        ("a100_3g.20gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", False),
        ("a100_1g_5gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", True),
        ("a100_1g_10gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", False),
        ("a100_mig_1g", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", True),
        ("a100_2g", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", False),
        ("a100-1", "NVIDIA A100-SXM4-40GB", True),
        ("h100sxm5", "NVIDIA H100 80GB HBM3", True),
        ("h200sxm", "NVIDIA H200", True),
        ("h100sxm", "NVIDIA H200", False),
        ("a100x4", "NVIDIA A100-SXM4-40GB", True),
        ("l4x4", "NVIDIA L40S", False),
        ("v100s32", "Tesla V100S-PCIE-32GB", True),
        ("gh200_96gb", "NVIDIA GH200 480GB", True),
        ("", "NVIDIA L40S", True),
    ],
)
def test_a_model_asked_for_is_found_in_the_drivers_name(
    requested: str, name: str, *, same: bool
) -> None:
    """Findings, test 6: a V100 was asked for and an A6000 came."""
    assert same_model(requested, name) == same


def test_secrets_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the families of variables that results keep."""
    for name in ("SLURM_JWT", "NCCL_API_KEY", "CUDA_TOKEN", "HOME_MADE"):
        monkeypatch.setenv(name, "hush")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")

    kept = environment.variables()

    assert kept["NCCL_DEBUG"] == "INFO"
    assert "hush" not in kept.values()


def outcome_of(folder: Path, code: int) -> tuple[int, str]:
    """Ask as the job's script does."""
    script = PAYLOADS / "_harness" / "outcome.py"
    command = [sys.executable, str(script), str(folder), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout), done.stderr.strip()


@pytest.mark.parametrize(
    ("statuses", "skip", "code", "told"),
    [
        (["SKIP"], None, 77, 0),
        (["SKIP"], 77, 77, 77),
        (["SKIP"], None, 1, 0),
        (["FAIL"], None, 1, 1),
        (["ERROR"], None, 1, 99),
        (["PASS"], None, 77, 77),
        (["PASS"], None, 3, 3),
        (["SKIP"], None, 0, 0),
        (["SKIP"], None, 3, 3),
        (["SKIP"], 77, 0, 77),
        (["FAIL"], None, 0, 1),
        (["PASS", "ERROR"], None, 0, 99),
        (["PASS"], None, 0, 0),
        (None, None, 77, 77),
    ],
)
def test_a_jobs_exit_code_comes_from_the_result(
    tmp_path: Path, statuses: list[str] | None, skip: int | None, code: int, told: int
) -> None:
    """torchrun makes 1 of every code, tee 0; one that no result explains stays the user's own."""
    if statuses is not None:
        made = report(*statuses)
        made.skip_exit_code = skip
        files.write(tmp_path / "mine_result.json", made.as_json())
    (tmp_path / "cut.json").write_text('{"schema": "rv.accept/1", "summ')
    (tmp_path / "other.json").write_text('{"schema": 1, "summary": {"status": "SKIP"}}')

    assert outcome_of(tmp_path, code)[0] == told
    assert outcome.main(str(tmp_path), code)[0] == told


@pytest.mark.parametrize(
    ("job", "restart", "code"), [("7", "", 1), ("8", "", 0), ("7", "1", 0), ("", "", 0)]
)
def test_a_result_of_another_segment_is_none_of_this_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, restart: str, code: int
) -> None:
    """One that was ended leaves an ERROR, which a later one of fewer ranks does not replace."""
    monkeypatch.setenv("RV_OUTPUT_DIR", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    for_job.Run("mine", ALONE).begin()
    files.write(tmp_path / "mine_result.json", report("FAIL").as_json())

    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_RESTART_COUNT", restart)
    for_job.Run("mine", ALONE).end(report("PASS").as_json()["summary"])

    assert outcome_of(tmp_path, 0)[0] == code


@pytest.mark.parametrize(
    ("runs", "code", "told", "said"),
    [
        ([None], 0, 99, "ERROR: mine on n1 began, and left no result (the command ended with 0)"),
        ([None], 137, 137, ""),
        (["FAIL", "PASS"], 0, 1, "FAIL: mine on n1: FAIL (the command ended with 0)"),
        (["PASS", "FAIL"], 0, 1, "FAIL: mine on n1: FAIL (the command ended with 0)"),
        (["PASS", None], 0, 99, "ERROR: mine on n1 began, and left no result"),
        (["FAIL", None], 0, 1, "FAIL: mine on n1: FAIL"),
        (["PASS", "PASS"], 0, 0, ""),
        ([], 0, 99, "ERROR: the payload left no result in "),
        ([], 3, 3, ""),
        (["excused"], 0, 0, ""),
        (["excused"], 1, 1, ""),
        (["excused", "FAIL"], 0, 1, "FAIL: mine on n1: FAIL"),
    ],
)
def test_a_run_hides_no_other_and_none_is_missed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    runs: list[str | None],
    code: int,
    told: int,
    said: str,
) -> None:
    """Killed before `| tee`; a FAIL before a PASS of the same payload, or on another node."""
    monkeypatch.setenv("RV_OUTPUT_DIR", str(tmp_path))
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    for status in runs:
        run = for_job.Run("mine", ALONE)
        run.begin()
        if status == "excused":
            run.excuse()
        elif status:
            made = report(status).as_json()
            files.write(tmp_path / "mine_result.json", made)  # the last one stands
            run.end(made["summary"])

    assert outcome_of(tmp_path, code)[0] == told
    assert outcome_of(tmp_path, code)[1].startswith(said) if said else True


@pytest.mark.parametrize(("option", "owes"), [("--no-such-option", True), ("--help", False)])
def test_a_run_with_wrong_options_owes_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, owes: bool
) -> None:
    """`check.py --no-such-option; train.py` is no PASS of both."""
    monkeypatch.setenv("RV_OUTPUT_DIR", str(tmp_path))
    with pytest.raises(SystemExit):
        main.run(main.Payload("mine", "A test.", lambda _: None), [option])
    files.write(tmp_path / "other_result.json", report("PASS").as_json())

    assert outcome_of(tmp_path, 0)[0] == (99 if owes else 0)


def test_of_two_warnings_the_strict_one_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their names are."""
    monkeypatch.setenv("RV_OUTPUT_DIR", str(tmp_path))
    for name, code in (("a", 0), ("b", 1), ("c", 0)):
        document = report("WARN").as_json()
        document["summary"]["exit_code"] = code
        files.write(tmp_path / f"{name}_result.json", document)

    assert outcome_of(tmp_path, 0)[0] == 1


def test_only_a_jobs_first_rank_notes_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of a job there is nothing to note."""
    monkeypatch.setenv("RV_OUTPUT_DIR", str(tmp_path))
    for_job.Run("mine", replace(TWO, rank=1)).begin()
    monkeypatch.delenv("RV_OUTPUT_DIR")
    for_job.Run("mine", ALONE).begin()

    assert list(tmp_path.iterdir()) == []


def test_the_seeds_files_have_the_seeds_keys() -> None:
    """B-09's names and keys."""
    made = report("PASS")
    details = {"world": 2, "epochs": 1, "batch_size": 256, "steps": 10, "improved": True}
    made.add("ddp.train", "PASS", details=details | {"loss_start": 2.0, "loss_end": 1.0})
    document = made.as_json()

    (found,) = files.training_aliases(document).values()
    assert found == details | {"loss_start": 2.0, "loss_end": 1.0}
    assert files.compute_aliases(document)["gpu_tests_result.json"]["compute"] is True
    failed = files.compute_aliases(report("FAIL").as_json())["gpu_tests_result.json"]
    assert failed["failures"] == ["mine.test: FAIL"]


def readings(*speeds: float, digests: str = "") -> list[Reading]:
    """One reading a GPU of one model."""
    letters = digests or "a" * len(speeds)
    return [
        Reading(f"cuda:{at}", "H200", "bf16", letters[at], speed, at, "n")
        for at, speed in enumerate(speeds)
    ]


@pytest.mark.parametrize(
    ("speeds", "found"),
    [
        ([100, 91], {}),
        ([100, 85], {1: "WARN"}),
        ([100, 79], {1: "FAIL"}),
        ([100, 96, 101], {}),
        ([100, 94, 101], {1: "WARN"}),
        ([100, 89, 101], {1: "FAIL"}),
        ([100, 100.1, 99.9, 100, 100.2, 94], {5: "FAIL"}),
    ],
)
def test_slow_gpus_stand_out_among_their_peers(speeds: list[float], found: dict[int, str]) -> None:
    """Of two 90 and 80 % of the faster; 95 and 90 % of the median from three on; from six on, far
    out is a failure already."""
    out = outliers(readings(*speeds))
    assert {each.rank: status for status, each, _ in out} == found


@pytest.mark.parametrize(("digests", "strange"), [("aaa", []), ("aba", [1]), ("ab", [0, 1])])
def test_other_bits_are_the_minoritys_fault(digests: str, strange: list[int]) -> None:
    """With two, nobody can say whose."""
    made = readings(*[1.0] * len(digests), digests=digests)
    assert [each.rank for each in strange_digests(made)] == strange


def test_a_loss_must_fall_within_one_epoch() -> None:
    """The seeds compared an epoch with itself, and could never pass one."""
    assert progress.judge_losses([3.0, 2.5, 2.0, 1.5, 1.0])["improved"]
    for bad, code in (([1.0, 1.0, 0.9], "loss_not_falling"), ([1.0, float("inf")], "nan_loss")):
        with pytest.raises(verdicts.NotPassed) as caught:
            progress.judge_losses(bad)
        assert caught.value.code == code


def test_cpus_of_a_cgroup_are_counted(tmp_path: Path) -> None:
    """Of the nearest limit and those above it, rounded up; none is no limit."""
    own = tmp_path / "fs" / "job" / "step"
    own.mkdir(parents=True)
    member = tmp_path / "cgroup"
    member.write_text("0::/job/step\n")
    root = tmp_path / "fs"

    assert cpus.quota(member, root) is None
    (own / "cpu.max").write_text("max 100000\n")
    (own.parent / "cpu.max").write_text("250000 100000\n")
    assert cpus.quota(member, root) == 3
    assert cpus.quota(tmp_path / "absent", root) is None
