"""What run_all.py decides: which payloads, whether each may run, and what its result file says."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contract.catalogue import PAYLOADS, SMOKE
from contract.schema import SCHEMA
from contract.verdicts import WORST_FIRST, worst

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from _processes.programs import Outcome
    from contract.catalogue import PayloadSpec, Step


@dataclass
class Ended:
    """How one payload ended; `summary` is its result's."""

    name: str
    status: str
    code: str = ""
    reason: str = ""
    seconds: float = 0.0
    returncode: int | None = None
    stdout: str = ""
    stderr: str = ""
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def may_be_built_on(self) -> bool:
        """Whether what needs this payload may run: a SKIP of its own is no failure."""
        was_blocked = self.status == "SKIP" and self.code == "not_run"
        return self.status in ("PASS", "WARN", "SKIP") and not was_blocked

    def as_legacy(self) -> dict[str, Any]:
        """Return the record that the first `summary.json` had for each program."""
        return {"returncode": self.returncode, "stdout": self.stdout, "stderr": self.stderr}


def chosen(profile: str, only: Collection[str]) -> list[PayloadSpec]:
    """Return the payloads of a profile, or those that were named, in the catalogue's order."""
    if only:
        return [payload for payload in PAYLOADS if payload.name in only]
    return [payload for payload in PAYLOADS if profile != SMOKE or not payload.extra]


def blocked(payload: PayloadSpec, ended: Mapping[str, Ended]) -> str | None:
    """Name the payload that this one needs and that failed or was blocked; None if it may run.

    What was not chosen blocks nothing. Siblings of a failed payload run: they may name another
    fault.
    """
    for need in payload.needs:
        if need in ended and not ended[need].may_be_built_on:
            return need
    return None


def time_for(step: Step, left_s: float) -> float | None:
    """Return the seconds a step may take; None where fewer are left than it should take."""
    return None if left_s < step.expected_s else min(left_s, step.timeout_s)


def judge(name: str, path: Path, outcome: Outcome) -> Ended:
    """Decide from the result file; without one nothing passed, whatever the exit code says."""
    document, why_not = _read(path)
    facts: dict[str, Any] = {"seconds": outcome.seconds, "returncode": outcome.returncode}
    if document is None:
        late = f" within {outcome.seconds:.0f} s" if outcome.timed_out else ""
        reason = f"{name}: {why_not}{late} (exit code {outcome.returncode})"
        code = "timeout" if outcome.timed_out else "no_result"
        return Ended(name, "ERROR", code, reason, **facts)
    summary = document["summary"]
    status, code = summary["status"], _code(document, summary["status"])
    reason = f"{name}: {summary['reason']}" if summary.get("reason") else ""
    if status in ("PASS", "SKIP") and (outcome.timed_out or outcome.returncode < 0):
        signal = f"died of signal {-outcome.returncode}"
        how = "had to be ended" if outcome.timed_out else signal
        status, code, reason = "WARN", "could_not_run", f"{name}: said {status}, and {how} after it"
    return Ended(name, status, code, reason, summary=summary, **facts)


def _read(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Read a result file; None and why for one that is no whole and honest result."""
    try:
        document = json.loads(path.read_text())
    except OSError:
        return None, "it wrote no result"
    except ValueError:
        return None, "its result file is cut short"
    wrong = _what_is_wrong(document)
    return (None, f"its result file {wrong}") if wrong else (document, "")


def _what_is_wrong(document: Any) -> str:
    """Say what makes a document no result whose summary follows from its tests; "" for nothing."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return f"is not of schema {SCHEMA}"
    summary, tests = document.get("summary"), document.get("tests")
    if not isinstance(summary, dict) or not isinstance(tests, list):
        return "lacks its tests or its summary"
    statuses = [test.get("status") for test in tests if isinstance(test, dict)]
    status = summary.get("status")
    if status not in WORST_FIRST or status != worst(statuses):
        return "has a summary that does not follow from its tests"
    return ""


def _code(document: dict[str, Any], status: str) -> str:
    """Return the code of the test whose reason the status has; a pass has none."""
    if status == "PASS":
        return ""
    codes = [test.get("code") or "" for test in document["tests"] if test.get("status") == status]
    return min(codes, key=lambda code: code == "interrupted", default="")
