"""What every payload shares: verdicts, exit codes and the result file `rv.accept/1`.

Stdlib only; lies beside the payloads, which import it from their own folder.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

METHOD_VERSION = 1
EXIT_CODES = {"PASS": 0, "WARN": 0, "FAIL": 1, "ERROR": 99}
WORST_FIRST = ("FAIL", "ERROR", "WARN", "PASS")


class NotPassed(Exception):  # noqa: N818 - a verdict; only ERROR is an error
    """A test that did not pass: its status, a stable code and what was seen."""

    def __init__(self, status: str, code: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.code, self.reason = status, code, reason


class Report:
    """What was tested, as it becomes known; written to disk as `rv.accept/1`."""

    def __init__(self, test_type: str, *, quick: bool) -> None:
        self.test_type, self.quick = test_type, quick
        self.started = time.monotonic()
        self.env: dict[str, Any] = {}
        self.devices: list[dict[str, Any]] = []
        self.tests: list[dict[str, Any]] = []

    def add(self, name: str, status: str, code: str = "", reason: str = "", **more: object) -> None:
        """Add one test's outcome; `more` are `device`, `details` and `metrics`."""
        outcome = {"status": status, "code": code or None, "reason": reason or None}
        self.tests.append({"name": name, **outcome, "timestamp": now(), **more})

    def verdict(self) -> tuple[str, str]:
        """Give the worst status and its first reason; nothing tested is an error, never a pass."""
        for status in WORST_FIRST:
            found = [test for test in self.tests if test["status"] == status]
            if found:
                more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
                return status, (found[0]["reason"] or "") + more
        return "ERROR", "nothing was tested"

    def as_json(self) -> dict[str, Any]:
        """Lay the report out as the schema says."""
        count = {s: sum(t["status"] == s for t in self.tests) for s in WORST_FIRST}
        variables = os.environ
        info = {
            "hostname": socket.gethostname(),
            "timestamp": now(),
            "test_type": self.test_type,
            "run_id": str(uuid.uuid4()),
            "method_version": METHOD_VERSION,
            "argv": sys.argv[1:],
            "duration_s": round(time.monotonic() - self.started, 3),
            "quick": self.quick,
            "slurm": {
                "job_id": variables.get("SLURM_JOB_ID"),
                "partition": variables.get("SLURM_JOB_PARTITION"),
                "nodelist": variables.get("SLURM_JOB_NODELIST"),
                "restart_count": variables.get("SLURM_RESTART_COUNT"),
            },
        }
        summary = {
            "status": self.verdict()[0],
            "passed": count["PASS"],
            "warned": count["WARN"],
            "failed": count["FAIL"],
            "skipped": 0,
            "errors": count["ERROR"],
        }
        body = {"env": self.env, "devices": self.devices, "tests": self.tests, "summary": summary}
        return {"schema": "rv.accept/1", "test_info": info, **body}

    def write(self, target: Path) -> None:
        """Write the result whole or not at all: a reader never sees half a file."""
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        with draft.open("w") as file:
            json.dump(self.as_json(), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)


def now() -> str:
    """Give the time as RFC 3339, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
