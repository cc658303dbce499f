"""check.py --dcgm: this job's GPUs alone are diagnosed, and a DCGM that is not there is a note."""

import types
from pathlib import Path
from typing import Any

import pytest
from _harness.inject import Faults
from _harness.ranks import Ranks
from _harness.report import Report
from _telemetry.diagnosis import diagnose

from rv.payloads.contract import codes as table
from tests.payloads.burning import by_name, run

DATA = Path(__file__).parents[1] / "data" / "dcgm"
UUID = "8c5ad8d4-2b2a-6c1f-1c5a-1f0f3f6e7a0"
DCGMI = f"""#!/bin/sh
echo "$@" >>"$0.asked"
case "$1" in
discovery) cat {DATA}/documented.discovery.txt ;;
diag) cat {DATA}/documented.$VERSION.json; exit 226 ;;
esac
"""


@pytest.fixture
def dcgmi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dcgmi that prints what such versions do; its exit code is that of a failure."""
    program = tmp_path / "bin" / "dcgmi"
    program.parent.mkdir()
    program.write_text(DCGMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def told(folder: Path, *gpus: int) -> list[dict[str, Any]]:
    """What the report says of a node with these GPUs, by their index and DCGM's number."""
    report = Report("check", Ranks())
    report.devices = [{"index": i, "uuid": f"{UUID}{4 + gpu}"} for i, gpu in enumerate(gpus)]
    session: Any = types.SimpleNamespace(
        report=report, faults=Faults([], 0), ranks=Ranks(), say=lambda *_: None,
        options=types.SimpleNamespace(report_dir=str(folder)),
    )  # fmt: skip
    diagnose(session, 2)
    return report.tests


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_a_failing_gpu_is_named(
    dcgmi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """By this job's name of it, which is another than DCGM's."""
    monkeypatch.setenv("VERSION", version)
    found = told(tmp_path, 1, 0)
    failed = [(each["code"], each["device"]) for each in found if each["status"] == "FAIL"]
    assert failed == [("dcgm_failed", "cuda:0")]
    assert table.CODES["dcgm_failed"].fault == "HARDWARE"
    assert "diag -r 2 -i 0,1 -j" in Path(f"{dcgmi}.asked").read_text()


def test_only_this_jobs_gpus_are_asked_for(
    dcgmi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none where DCGM does not know one of them."""
    monkeypatch.setenv("VERSION", "v4")
    told(tmp_path, 1)
    assert "diag -r 2 -i 1 -j" in Path(f"{dcgmi}.asked").read_text()
    Path(f"{dcgmi}.asked").unlink()
    (found,) = told(tmp_path, 0, 5)
    assert (found["status"], found["code"]) == ("WARN", "dcgm_unavailable")
    assert "diag" not in Path(f"{dcgmi}.asked").read_text()


def test_a_missing_dcgm_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = told(tmp_path, 0)
    assert (found["status"], found["code"]) == ("SKIP", "dcgm_absent")


def test_the_program_diagnoses_first(tmp_path: Path) -> None:
    """A planted failure is found; on a CPU there is nothing to diagnose, which is no failure."""
    words = ("--quick", "--size", 64, "--dtypes", "fp32", "--dcgm", 1)
    code, _, result = run("check", tmp_path, *words)
    assert (code, by_name(result, "dcgm")["code"]) == (0, "dcgm_absent")
    code, _, result = run("check", tmp_path, *words, "--inject", "dcgm")
    assert (code, by_name(result, "dcgm")["code"]) == (1, "dcgm_failed")
