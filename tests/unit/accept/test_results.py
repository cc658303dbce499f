"""Result files as they come from a cluster: of every known format, cut short, and hostile."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rv.accept.result_files import MAX_BYTES, parse, read_file, read_folder
from rv.accept.results import ResultError, RunResult, Status
from rv.payloads.contract.schema import verdict_of

CURRENT: dict[str, Any] = {
    "schema": "rv.accept/1",
    "test_info": {
        "hostname": "node1",
        "timestamp": "2026-11-22T10:00:00Z",
        "test_type": "matmul",
        "run_id": "abc",
        "method_version": 2,
        "slurm": {"job_id": "17", "restart_count": "1"},
        "world": {"size": 4, "nnodes": 2, "backend": "gloo"},
        "requested_gpu": "v100",
    },
    "env": {"torch": "2.13.0", "vars": {"OMP_NUM_THREADS": "1"}},
    "devices": [
        {"index": 0, "name": "NVIDIA H200", "uuid": "GPU-1", "mig": False, "sm_count": 132},
        {"index": 1, "mig": {"profile": "1g.10gb", "parent_uuid": "GPU-1"}, "power_limit_w": 700},
    ],
    "tests": [
        {
            "name": "matmul.bf16",
            "status": "PASS",
            "device": "cuda:0",
            "rank": 0,
            "details": {"size": 8192},
            "metrics": [
                {"name": "tflops", "value": 781.2, "unit": "TFLOPS", "dir": "higher", "cv": 0.01}
            ],
        },
        {"name": "matmul.fp8", "status": "SKIP", "reason": "no fp8", "code": "unsupported"},
    ],
    "summary": {"status": "PASS"},
}


def read(document: object, name: str = "result.json") -> RunResult:
    return parse(json.dumps(document), name)


def test_current_result_is_read_whole() -> None:
    """Every part of the schema arrives where it belongs."""
    result = read(CURRENT)

    assert (result.test_type, result.status, result.hostname) == ("matmul", Status.PASS, "node1")
    assert result.timestamp == datetime(2026, 11, 22, 10, tzinfo=UTC)
    assert (result.job_id, result.restart_count, result.method_version) == ("17", 1, 2)
    assert (result.world_size, result.nnodes, result.backend) == (4, 2, "gloo")
    assert [device.mig for device in result.devices] == ["", "1g.10gb"]
    assert result.devices[1].more == {"power_limit_w": 700}
    metric = result.tests[0].metric("tflops")
    assert metric is not None
    assert (metric.value, metric.direction, metric.more) == (781.2, "higher", {"cv": 0.01})


def test_what_check_writes_is_read(tmp_path: Path) -> None:
    """The bundled check's own file has a verdict, a job and metrics."""
    document = {
        **CURRENT,
        "tests": [
            {"name": "device", "status": "SKIP", "code": "fake_gpu", "reason": "2 fake"},
            {"name": "environment", "status": "PASS"},
        ],
        "summary": {"status": "PASS"},
    }
    (tmp_path / "check_result.json").write_text(json.dumps(document))

    result = read_file(tmp_path / "check_result.json")

    assert (result.status, result.code) == (Status.PASS, "")
    assert result.reason == "without device: 2 fake"


NOT_ASKED = {"name": "x", "status": "SKIP", "code": "not_asked", "reason": "another rank's"}
STOPPED = {"name": "x", "status": "ERROR", "code": "interrupted", "reason": "interrupted"}
BROKEN = {"name": "x", "status": "ERROR", "code": "could_not_run", "reason": "boom"}
FINE = {"name": "y", "status": "PASS"}


@pytest.mark.parametrize(
    ("tests", "status", "code", "reason"),
    [
        ([NOT_ASKED, FINE], "PASS", "", ""),
        ([NOT_ASKED, NOT_ASKED], "SKIP", "not_asked", "another rank's"),
        ([STOPPED, BROKEN, FINE], "ERROR", "could_not_run", "boom"),
        ([STOPPED, FINE], "ERROR", "interrupted", "interrupted"),
    ],
)
def test_the_reason_is_that_of_the_cause(
    tests: list[dict[str, str]], status: str, code: str, reason: str
) -> None:
    """Not of a rank that was stopped for it, nor of what nobody asked for; there as here."""
    result = read({**CURRENT, "tests": tests, "summary": {"status": status}})

    assert (str(result.status), result.code, result.reason) == (status, code, reason)
    said, why = verdict_of(tests)
    assert (said, why.partition(" (and ")[0]) == (status, reason)


@pytest.mark.parametrize("head", ["server_info", "client_info", "test_info"])
@pytest.mark.parametrize("details", [{"op": "relu"}, '{"op": "relu"}', "{'op': 'relu'}"])
def test_service_results_with_details_of_any_writing(head: str, details: object) -> None:
    """An object, JSON in a text, and Python's own writing are the same details."""
    test = {"name": "relu", "status": "PASS", "details": details, "timing_ms": 1.5}
    result = read({head: {"hostname": "n1"}, "tests": [test]})

    assert (result.hostname, result.status, result.is_legacy) == ("n1", Status.PASS, True)
    assert result.tests[0].details == {"op": "relu"}
    assert result.tests[0].timing_ms == 1.5


@pytest.mark.parametrize("text", ["64 bytes from n2", "{[]: 1}"])
def test_details_that_are_just_text_are_kept(text: str) -> None:
    """Text that is neither JSON nor Python stays a text."""
    test = {"name": "ping", "status": "pass", "details": text}

    assert read({"server_info": {}, "tests": [test]}).tests[0].details == {"text": text}


OLDER = [
    (
        "ddp_tests_result.json",
        {"world": 2, "iters": 4, "numel": 8, "time": 0.1, "ok": True},
        "PASS",
    ),
    ("ddp_tests_result.json", {"world": 2, "ok": False}, "FAIL"),
    ("ddp_training_result.json", {"world": 2, "loss_start": 1.0, "improved": True}, "PASS"),
    ("gpu_tests_result.json", {"env": {}, "compute": True, "training": True}, "PASS"),
    ("gpu_tests_result.json", {"env": {}, "failures": ["compute cuda:0"]}, "FAIL"),
    ("gpu_tests_skipped.json", {"skipped": True, "reason": "no_gpu"}, "SKIP"),
    ("ddp_tests_skipped.json", {"skipped": True, "reason": "no_gpu"}, "SKIP"),
    ("summary.json", {"env": {}, "gpu_tests": {"returncode": 0}}, "PASS"),
    ("summary.json", {"gpu_tests": {"returncode": 0}, "ddp_train": {"returncode": 3}}, "FAIL"),
]


@pytest.mark.parametrize(("name", "document", "status"), OLDER)
def test_older_results_have_verdicts(name: str, document: object, status: str) -> None:
    """Each older file becomes a run with the verdict it told."""
    result = read(document, name)

    assert result.status == status
    assert result.is_legacy


def test_skipped_file_names_what_was_skipped() -> None:
    """Only the file's name tells which test was skipped."""
    assert read({"skipped": True, "reason": "no_gpu"}, "x/ddp_tests_skipped.json").test_type == (
        "ddp_tests"
    )


@pytest.mark.parametrize(
    "text",
    ["", "{", json.dumps(CURRENT)[:200], "[]", "1", "{}", '{"schema": "rv.accept/9"}', b"\xff"],
)
def test_no_result_is_a_result_error(text: str | bytes) -> None:
    """What is cut short, or something else, is named and is no verdict."""
    with pytest.raises(ResultError, match=r"x\.json"):
        parse(text, "x.json")


def test_too_large_a_file_is_refused_unread(tmp_path: Path) -> None:
    """A sparse file of any size costs nothing."""
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(MAX_BYTES + 1)

    with pytest.raises(ResultError, match="too many"):
        read_file(tmp_path / "big.json")


def test_deep_nesting_is_a_result_error() -> None:
    """A hundred thousand brackets do not end the reader."""
    with pytest.raises(ResultError):
        parse('{"schema": "rv.accept/1", "tests": ' + "[" * 100_000)


def test_numbers_that_are_none_are_none() -> None:
    """NaN, infinities, booleans and texts are no measurements."""
    for value in ("NaN", "Infinity", "1e999", "true", '"9"', "null", "9" * 400):
        metrics = f'[{{"name": "m", "value": {value}}}]'
        tests = f'[{{"name": "t", "status": "PASS", "metrics": {metrics}}}]'
        result = parse(f'{{"schema": "rv.accept/1", "tests": {tests}}}')
        assert result.tests[0].metrics[0].value is None, value


def test_unknown_status_is_an_error_never_a_pass() -> None:
    """A word that is no verdict cannot pass."""
    result = read({"schema": "rv.accept/1", "tests": [{"name": "t", "status": "GREAT"}]})

    assert result.status is Status.ERROR
    assert "GREAT" in result.tests[0].reason


@pytest.mark.parametrize("said", ["PASS", "WARN", None])
def test_nothing_tested_is_an_error_whatever_the_summary_says(said: str | None) -> None:
    """An empty list of tests passes nothing."""
    assert read({"schema": "rv.accept/1", "tests": [], "summary": {"status": said}}).status is (
        Status.ERROR
    )


def test_a_summary_cannot_hide_a_failed_test() -> None:
    """A summary that says PASS over a test that failed is overruled."""
    tests = [{"name": "t", "status": "FAIL", "reason": "wrong"}]
    result = read({"schema": "rv.accept/1", "tests": tests, "summary": {"status": "PASS"}})

    assert (result.status, result.reason) == (Status.FAIL, "wrong")


def test_terminal_escapes_do_not_survive() -> None:
    """Names, reasons and details are printable."""
    evil = "\x1b]0;owned\x07\x1b[31mred\u202e\n"
    test = {"name": evil, "status": "FAIL", "reason": evil, "details": {evil: [evil]}}
    result = read({"schema": "rv.accept/1", "test_info": {"hostname": evil}, "tests": [test]})

    shown = [result.hostname, result.tests[0].name, result.reason, *result.tests[0].details]
    assert all(text.isprintable() and "red" in text for text in shown)


def test_folder_gives_results_and_faults_and_leaves_aliases_out(tmp_path: Path) -> None:
    """The older names beside current results are the same results again."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rank-00000.json").write_text(json.dumps(CURRENT))
    (tmp_path / "a" / "gpu_tests_result.json").write_text('{"compute": true}')
    (tmp_path / "a" / ".draft.json").write_text("{")
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "ddp_tests_result.json").write_text('{"world": 2, "ok": true}')

    results, faults = read_folder(tmp_path)

    assert [result.test_type for result in results] == ["matmul", "ddp_tests"]
    assert len(faults) == 1
    assert "b.json" in faults[0]


def test_what_of_a_folder_cannot_be_read_may_have_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that is too large, one of a rank, and what a bound cut off; no file of others."""
    (tmp_path / "matmul_result.json").write_text(json.dumps(CURRENT))
    (tmp_path / "allreduce_result.ranks").mkdir()
    for name in ("check_result.json", "allreduce_result.ranks/rank-00001.json", "beat.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(MAX_BYTES + 1)
    results, faults = read_folder(tmp_path)

    assert {each.code for each in results if each.status is Status.ERROR} == {"result_unreadable"}
    assert [each.test_type for each in results[1:]] == ["rank-00001.json", "check"]
    assert len(faults) == 3

    monkeypatch.setattr("rv.accept.result_files.MAX_ITEMS", 4)
    reasons = [each.reason for each in read_folder(tmp_path)[0] if each.status is Status.ERROR]
    assert any("more than 4 files and folders" in reason for reason in reasons)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text() | st.sampled_from(["name", "status", "metrics"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [*CURRENT, "server_info", "world", "ok", "failures", "skipped", "gpu_tests"]
)


@settings(max_examples=200)
@given(changed=st.dictionaries(FIELDS, JSON, max_size=5), tests=JSON, info=JSON)
def test_any_json_is_a_result_or_a_result_error(
    changed: dict[str, Any], tests: object, info: object
) -> None:
    """Whatever stands in any field, nothing but the documented error is raised."""
    for document in (
        {**CURRENT, **changed},
        {**CURRENT, "tests": [tests], "test_info": info},
        changed,
    ):
        try:
            result = parse(json.dumps(document))
        except ResultError:
            continue
        assert result.tests or result.status not in (Status.PASS, Status.WARN)


def test_a_newer_schema_is_refused() -> None:
    """It may say what this rv does not know, and is not taken for an older format."""
    document = {"schema": "rv.accept/2", "world": 2, "loss_start": 1.0, "improved": True}

    with pytest.raises(ResultError, match=r"not a result of rv\.accept/1"):
        parse(json.dumps(document), "ddp_training_result.json")
