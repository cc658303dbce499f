"""run_all.py: each step resting on those before it, and nothing passed that says nothing."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from contract.catalogue import PAYLOADS, PayloadSpec, Step
from contract.verdicts import EXIT_CODES
from run_all import Ended, blocked, chosen, judge, time_for, what_passed

from rv.payloads._processes import processes
from rv.payloads._processes.programs import Outcome
from tests.payloads.burning import by_name, codes, run, start
from tests.payloads.starting import Launcher
from tests.payloads.test_stress import beating, wait_for

PASSED = {"name": "x", "status": "PASS", "code": None}
FAILED = {"name": "x", "status": "FAIL", "code": "wrong_result"}
STOPPED = {"name": "x", "status": "ERROR", "code": "interrupted"}
BROKEN = {"name": "x", "status": "ERROR", "code": "could_not_run"}
SLOWER = {"name": "x", "status": "WARN", "code": "no_reference"}


def result(status: str, *tests: dict[str, Any]) -> str:
    reason = "a reason" if status != "PASS" else None
    summary = {"status": status, "reason": reason, "exit_code": EXIT_CODES[status]}
    return json.dumps({"schema": "rv.accept/1", "tests": list(tests), "summary": summary})


def judged(
    path: Path, text: str | None, returncode: int = 0, *, late: bool = False
) -> tuple[str, str]:
    if text is not None:
        path.write_text(text)
    done = judge("x", path, Outcome(returncode, 1.0, late))
    return done.status, done.code


@pytest.mark.parametrize(
    ("text", "returncode", "wanted"),
    [
        (result("PASS", PASSED), 0, ("PASS", "")),
        (result("FAIL", PASSED, FAILED), 1, ("FAIL", "wrong_result")),
        (result("FAIL", FAILED), 0, ("FAIL", "wrong_result")),
        (result("ERROR", STOPPED, BROKEN), 99, ("ERROR", "could_not_run")),
        (result("PASS", PASSED), 1, ("ERROR", "crashed")),  # a rank died under torchrun
        (result("PASS", PASSED), -11, ("ERROR", "crashed")),
        (result("WARN", SLOWER), 0, ("WARN", "no_reference")),
        (result("WARN", SLOWER), -11, ("ERROR", "crashed")),
        (None, 0, ("ERROR", "no_result")),
        (result("PASS", PASSED)[:-9], 0, ("ERROR", "no_result")),
        ("[]", 0, ("ERROR", "no_result")),
        ("{}", 0, ("ERROR", "no_result")),
        (result("PASS"), 0, ("ERROR", "no_result")),
        (result("PASS", PASSED).replace("exit_code", "other"), 0, ("ERROR", "no_result")),
        (result("PASS", FAILED), 0, ("ERROR", "no_result")),
        (result("PASS", PASSED).replace("rv.accept/1", "other/9"), 0, ("ERROR", "no_result")),
    ],
    ids=[
        "good",
        "bad",
        "file-wins",
        "interrupted-for-another",
        "rank",
        "signal",
        "warned",
        "warned-signal",
        "absent",
        "cut",
        "list",
        "empty",
        "untested",
        "no-exit-code",
        "false",
        "other",
    ],
)
def test_the_result_file_decides_and_without_one_nothing_passes(
    text: str | None, returncode: int, wanted: tuple[str, str], tmp_path: Path
) -> None:
    assert judged(tmp_path / "x.json", text, returncode) == wanted


def test_a_step_that_took_too_long_says_so(tmp_path: Path) -> None:
    assert judged(tmp_path / "x.json", None, -9, late=True) == ("ERROR", "timeout")
    assert judged(tmp_path / "x.json", result("PASS", PASSED), -9, late=True)[0] == "ERROR"


def test_what_a_failed_step_was_needed_for_is_not_run_and_the_others_are() -> None:
    ended = {"check": Ended("check", "FAIL"), "membw": Ended("membw", "PASS")}
    stopped = {payload.name for payload in PAYLOADS if blocked(payload, ended)}
    train = PayloadSpec("train", "", needs=("allreduce",))

    of_check = {"allreduce", "nccl_tests", "inference", "stress", "alloc_stress", "tensor_service"}
    assert of_check == stopped
    assert blocked(train, {"allreduce": Ended("allreduce", "ERROR")}) == "allreduce"
    assert blocked(train, {"allreduce": Ended("allreduce", "SKIP", "not_run")}) == "allreduce"
    assert blocked(train, {"allreduce": Ended("allreduce", "WARN")}) is None
    assert blocked(train, {"allreduce": Ended("allreduce", "WARN", "not_run")}) is None
    assert blocked(train, {}) is None  # not chosen


def test_each_payload_needs_only_what_comes_before_it() -> None:
    names = [payload.name for payload in PAYLOADS]

    for number, payload in enumerate(PAYLOADS):
        assert set(payload.needs) <= set(names[:number])


def test_profiles_choose_and_names_choose_better() -> None:
    smoke = [step.name for step in chosen("smoke", [])]

    assert smoke == [
        "check", "membw", "allreduce", "train", "train_fsdp", "dataload", "ckpt_cycle", "stress",
    ]  # fmt: skip
    assert [step.name for step in chosen("accept", [])] == [payload.name for payload in PAYLOADS]
    assert [step.name for step in chosen("smoke", ["stress", "check"])] == ["check", "stress"]


def test_a_step_starts_only_with_the_time_it_is_expected_to_take() -> None:
    smoke, accept = Step((), 10.0, 90), Step((), 60.0, 180)

    assert time_for(smoke, 9.0) is None
    assert time_for(smoke, 20.0) == 20.0
    assert time_for(smoke, 1000.0) == 90.0
    assert time_for(accept, 1000.0) == 180.0


def test_a_pass_names_what_ran_and_what_that_could_not_test() -> None:
    lacking = Ended("membw", "PASS", reason="membw: without membw.peer: one device has no peer")
    ended = [Ended("check", "PASS"), lacking, Ended("stress", "WARN", reason="stress: jitter")]

    said = what_passed(ended)

    assert said == "check, membw; membw: without membw.peer: one device has no peer"


def test_results_that_are_lost_or_cut_short_are_errors(tmp_path: Path, launch: Launcher) -> None:
    """Both programs ended with 0; the summary has the old names and says what was not run."""
    faults = ("--inject", "lost-result:step=check", "--inject", "cut-short:step=storage_net")
    code, text, summary = run(
        "run_all", tmp_path, "--only", "check,train,storage_net", *faults, launch=launch
    )

    assert code == 99, text
    assert codes(summary, "ERROR") == {"no_result"}
    assert by_name(summary, "run_all.check")["details"]["returncode"] == 0
    assert by_name(summary, "run_all.storage_net")["code"] == "no_result"
    assert summary["gpu_tests"]["returncode"] == 0
    assert "[RESULT]" in summary["gpu_tests"]["stdout"]
    assert {"returncode", "stdout", "stderr"} == set(summary["ddp_train"])
    assert {"cuda_available", "cuda_device_count", "torch"} <= set(summary["env"])
    assert "[SUMMARY] gpu_tests rc=0; ddp_tests rc=None; ddp_train rc=" in text


def test_a_failed_step_stops_its_dependants_and_is_the_verdict(
    tmp_path: Path, launch: Launcher
) -> None:
    faults = ("--inject", "child:step=check,fault=wrong-product", "--budget", 600)
    code, text, summary = run(
        "run_all", tmp_path, "--only", "check,allreduce,train,storage_net", *faults, launch=launch
    )

    assert code == 1, text
    statuses = {test["name"]: test["status"] for test in summary["tests"]}
    assert statuses["run_all.check"] == "FAIL"
    assert statuses["run_all.allreduce"] == statuses["run_all.train"] == "SKIP"
    assert statuses["run_all.storage_net"] == "PASS"
    assert summary["not_run"] == ["allreduce", "train"]
    assert "[SUMMARY] not run: allreduce, train" in text


def test_a_budget_that_is_too_short_is_told_and_no_clean_pass(
    tmp_path: Path, launch: Launcher
) -> None:
    code, text, summary = run(
        "run_all", tmp_path, "--only", "check,stress", "--budget", 1, launch=launch
    )

    assert code == 0, text
    assert summary["summary"]["status"] == "WARN"
    assert summary["not_run"] == ["check", "stress"]


def test_a_signal_ends_all_of_it_and_leaves_a_summary(tmp_path: Path) -> None:
    """The step that runs ends with it, and its workers."""
    words = ("--only", "stress", "--profile", "accept", "--device", "cpu", "--report-dir", tmp_path)
    with start("run_all", *words) as process:
        wait_for(lambda: beating(tmp_path), process)
        below = processes.below(process.pid)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=120)

    assert len(below) > 1
    wait_for(lambda: not any(processes.is_alive(child) for child in below))
    assert process.returncode in (130, 143), text
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert "interrupted" in codes(summary, "ERROR")


def test_unknown_payloads_are_usage_errors(tmp_path: Path, launch: Launcher) -> None:
    code, text, _ = run("run_all", tmp_path, "--only", "chekc", launch=launch)

    assert (code, "no such payload: chekc" in text) == (2, True)
