"""DCGM's own diagnosis of this job's GPUs, where it is installed; and what it comes to in a report.

DCGM's host engine sees every GPU of the node: it is asked about this job's alone, by UUID, and
about none where their numbers are not known.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _processes import programs
from contract.dcgm import TIMES_S, Diagnosis, judged, parse_diag, parse_discovery, passed, untold

if TYPE_CHECKING:
    from _harness.main import Session

DISCOVERY_S = 30.0
PLANTED = json.dumps(
    {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [
        {"name": "memory", "results": [{"status": "Fail", "warnings": [
            {"warning": "a planted fault", "error_severity": 2}]}]}]}]}}
)  # fmt: skip


def diagnose(session: Session, level: int) -> None:
    """Run `dcgmi diag -r LEVEL -j` and add its findings; its absence is a note."""
    uuids = {str(each["uuid"]).lower(): f"cuda:{each['index']}" for each in session.report.devices}
    if session.faults.get("dcgm"):
        _add(session, parse_diag(PLANTED), {}, level)
        return
    program = shutil.which("dcgmi")
    if program is None or not uuids:
        missing = "dcgmi is not installed" if program is None else "there is no GPU to diagnose"
        session.report.add("dcgm", "SKIP", code="dcgm_absent", reason=missing)
        return
    if not session.ranks.alone:
        reason = "DCGM's diagnosis needs the GPUs to itself: run check.py without torchrun"
        session.report.add("dcgm", "SKIP", code="unsupported", reason=reason)
        return
    folder = Path(session.options.report_dir)
    session.say("DCGM", f"dcgmi diag -r {level}, at most {TIMES_S[level]:.0f} s …")
    numbers = _numbers(program, folder / "dcgm_discovery.log", uuids)
    if len(numbers) < len(uuids):
        reason = "DCGM does not know all GPUs of this job, or its host engine does not run"
        session.report.add("dcgm", "WARN", code="dcgm_unavailable", reason=reason)
        return
    asked = ",".join(map(str, sorted(numbers)))
    command = [program, "diag", "-r", str(level), "-i", asked, "-j"]
    _add(session, parse_diag(_run(command, folder / "dcgm.log", TIMES_S[level])), numbers, level)


def _numbers(program: str, log: Path, uuids: dict[str, str]) -> dict[int, str]:
    """Return the labels of this job's GPUs by their numbers in DCGM."""
    found = parse_discovery(_run([program, "discovery", "-l"], log, DISCOVERY_S))
    by_uuid = {uuid.removeprefix("GPU-").lower(): number for uuid, number in found.items()}
    own = {by_uuid.get(uuid.removeprefix("gpu-")): label for uuid, label in uuids.items()}
    return {number: label for number, label in own.items() if number is not None}


def _run(command: list[str], log: Path, timeout_s: float) -> str:
    """Return what a program prints; its exit code is no part of it: a FAIL has another one too."""
    try:
        ended = programs.run_limited(command, log=log, timeout=timeout_s)
    except OSError as error:
        return f"it does not start: {error}"
    text = log.read_text(errors="replace")
    return "it was not done in time" if ended.timed_out else text


def _add(session: Session, diagnosis: Diagnosis, labels: dict[int, str], level: int) -> None:
    """Add what was found, by device; what broke off is a warning, for it vouches for nothing."""
    details: dict[str, Any] = {
        "level": level,
        "version": diagnosis.version,
        "passed": passed(diagnosis),
        "results": [vars(each) for each in diagnosis.results if each.status != "pass"][:200],
    }
    bad = _add_findings(session, diagnosis, labels, details)
    nothing = "" if bad or details["passed"] else "it ran no test"
    broken = diagnosis.error or nothing or _silence(diagnosis, labels)
    if broken:
        reason = f"DCGM's diagnosis broke off: {broken}"
        session.report.add("dcgm", "WARN", code="dcgm_unavailable", reason=reason, details=details)
    elif not bad:
        session.report.add("dcgm", "PASS", details=details)


def _silence(diagnosis: Diagnosis, labels: dict[int, str]) -> str:
    """Say of which GPUs nothing was told; "" where all were spoken of."""
    missed = ", ".join(labels[number] for number in untold(diagnosis, labels))
    return f"it says nothing of {missed}" if missed else ""


def _add_findings(
    session: Session, diagnosis: Diagnosis, labels: dict[int, str], details: dict[str, Any]
) -> int:
    """Add what did not pass, each beside the GPU that it is of; return how much there is."""
    bad = judged(diagnosis)
    for result, (status, code, reason) in bad:
        device = labels.get(-1 if result.gpu is None else result.gpu, "")
        where = f"{device}: {reason}" if device else reason
        session.report.add("dcgm", status, code=code, reason=where, device=device, details=details)
    return len(bad)
