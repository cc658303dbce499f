"""What a step's result file says, and what it means when it says nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from _harness.report import SCHEMA
from _harness.verdict import WORST_FIRST, worst

if TYPE_CHECKING:
    from pathlib import Path

    from _processes.child import Outcome

TEXT = 8000  # characters of a step's output that go into the summary


@dataclass
class Ended:
    """How one step ended."""

    name: str
    status: str
    code: str = ""
    reason: str = ""
    seconds: float = 0.0
    returncode: int | None = None
    stdout: str = ""
    stderr: str = ""
    summary: dict[str, Any] = field(default_factory=dict)

    def as_seed(self) -> dict[str, Any]:
        """Give the record that the first `summary.json` had for each program."""
        return {"returncode": self.returncode, "stdout": self.stdout, "stderr": self.stderr}


def read(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Read a result file; None and why for one that is no whole and honest result."""
    try:
        document = json.loads(path.read_text())
    except OSError:
        return None, "it wrote no result"
    except ValueError:
        return None, "its result file is cut short"
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return None, f"its result file is not of schema {SCHEMA}"
    summary, tests = document.get("summary"), document.get("tests")
    if not isinstance(summary, dict) or not isinstance(tests, list):
        return None, "its result file lacks its tests or its summary"
    statuses = [test.get("status") for test in tests if isinstance(test, dict)]
    if summary.get("status") not in WORST_FIRST or summary["status"] != worst(statuses):
        return None, "its result file's summary does not follow from its tests"
    return document, ""


def judge(name: str, path: Path, ended: Outcome) -> Ended:
    """Decide from the result file; without one nothing passed, whatever the exit code says."""
    document, why_not = read(path)
    facts: dict[str, Any] = {"seconds": ended.seconds, "returncode": ended.returncode}
    if document is None:
        late = f" within {ended.seconds:.0f} s" if ended.timed_out else ""
        reason = f"{name}: {why_not}{late} (exit code {ended.returncode})"
        code = "timeout" if ended.timed_out else "no_result"
        return Ended(name, "ERROR", code, reason, **facts)
    summary = document["summary"]
    status, code = summary["status"], _code(document, summary["status"])
    reason = f"{name}: {summary['reason']}" if summary.get("reason") else ""
    if status in ("PASS", "SKIP") and (ended.timed_out or ended.returncode < 0):
        how = "had to be ended" if ended.timed_out else f"died of signal {-ended.returncode}"
        status, code, reason = "WARN", "could_not_run", f"{name}: said {status}, and {how} after it"
    return Ended(name, status, code, reason, summary=summary, **facts)


def _code(document: dict[str, Any], status: str) -> str:
    """Give the code of the test whose reason the status has; a pass has none."""
    if status == "PASS":
        return ""
    codes = [test.get("code") or "" for test in document["tests"] if test.get("status") == status]
    return min(codes, key=lambda code: code == "interrupted", default="")
