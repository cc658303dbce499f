"""What was tested, as it becomes known: one rank's part of a result of schema `rv.accept/1`."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from . import codes
from .ranks import node_name
from .verdict import WORST_FIRST, exit_code, worst

if TYPE_CHECKING:
    from .ranks import Ranks

SCHEMA, METHOD_VERSION = "rv.accept/1", 2
SLURM = {
    "job_id": "SLURM_JOB_ID",
    "step_id": "SLURM_STEP_ID",
    "partition": "SLURM_JOB_PARTITION",
    "nodelist": "SLURM_JOB_NODELIST",
    "cpus_per_task": "SLURM_CPUS_PER_TASK",
    "gpus": "SLURM_GPUS_ON_NODE",
    "array_task_id": "SLURM_ARRAY_TASK_ID",
    "restart_count": "SLURM_RESTART_COUNT",
}


class Report:
    """One rank's tests. Threads may add to it: the watchdog writes it when time is up."""

    def __init__(self, test_type: str, ranks: Ranks, *, quick: bool = False) -> None:
        self.test_type, self.ranks, self.quick = test_type, ranks, quick
        self.started, self.started_at = time.monotonic(), time.time()
        self.run_id = str(uuid.uuid4())
        self.env: dict[str, Any] = {}
        self.devices: list[dict[str, Any]] = []
        self.tests: list[dict[str, Any]] = []
        self.extra: dict[str, Any] = {}
        self.requested_gpu = ""
        self.backend = ""
        self.strict, self.skip_exit_code = False, None
        self._last = self.started
        self._lock = threading.Lock()

    def add(
        self,
        name: str,
        status: str,
        *,
        code: str = "",
        reason: str = "",
        device: str = "",
        details: dict[str, Any] | None = None,
        metrics: list[dict[str, Any]] | None = None,
        **more: Any,
    ) -> None:
        """Add one test's outcome.

        Anything but PASS has a `code` of `codes.py` and a `reason` that a person understands.
        Raises KeyError for an unknown code, ValueError for an unknown status.
        """
        if status not in WORST_FIRST:
            raise ValueError(f"unknown status {status}")
        fault = codes.CODES[code] if code else None
        now = time.monotonic()
        test = {
            "name": name,
            "status": status,
            "code": code or None,
            "class": fault.kind if fault else None,
            "action": fault.action if fault else None,
            "reason": reason or None,
            "device": device or None,
            "rank": self.ranks.rank,
            "host": node_name(),
            "timing_ms": round((now - self._last) * 1e3, 3),
            "timestamp": stamp(time.time()),
            "details": details or {},
            "metrics": metrics or [],
            **more,
        }
        with self._lock:
            self._last = now
            self.tests.append(test)

    def verdict(self) -> tuple[str, str]:
        """Give the worst status and its first reason."""
        return verdict_of(self.tests)

    def as_json(self) -> dict[str, Any]:
        """Lay the report out as the schema says."""
        with self._lock:
            tests = list(self.tests)
        body = {"env": self.env, "devices": self.devices, "tests": tests}
        summary = summary_of(tests, strict=self.strict, skip_exit_code=self.skip_exit_code)
        return {
            "schema": SCHEMA,
            "test_info": self._info(),
            **body,
            "summary": summary,
            **self.extra,
        }

    def _info(self) -> dict[str, Any]:
        world = {"size": self.ranks.world, "nnodes": self.ranks.nodes, "backend": self.backend}
        return {
            "hostname": socket.gethostname(),
            "node": node_name(),
            "timestamp": stamp(self.started_at),
            "test_type": self.test_type,
            "run_id": self.run_id,
            "launch": self.ranks.launch,
            "payload_version": METHOD_VERSION,
            "method_version": METHOD_VERSION,
            "argv": sys.argv[1:],
            "duration_s": round(time.monotonic() - self.started, 3),
            "quick": self.quick,
            "rank": self.ranks.rank,
            "slurm": {name: os.environ.get(variable) for name, variable in SLURM.items()},
            "requested_gpu": self.requested_gpu or None,
            "world": world,
        }


def verdict_of(tests: list[dict[str, Any]]) -> tuple[str, str]:
    """Give the worst status of tests and the reason of the first that has it.

    A PASS has none but what it could not test, though it was asked to. A rank that was interrupted
    comes last: it was so for another one's sake.
    """
    status = worst([test["status"] for test in tests])
    if status == "PASS":
        left = [t for t in tests if t["status"] == "SKIP" and t["code"] != "not_asked"]
        return status, f"without {left[0]['name']}: {_first_reason(left)}" if left else ""
    found = [test for test in tests if test["status"] == status]
    found.sort(key=lambda test: test["code"] == "interrupted")
    return status, _first_reason(found) if found else "nothing was tested"


def _first_reason(tests: list[dict[str, Any]]) -> str:
    reason = tests[0]["reason"] or ""
    return f"{reason} (and {len(tests) - 1} more)" if reason and len(tests) > 1 else reason


def summary_of(
    tests: list[dict[str, Any]], *, strict: bool = False, skip_exit_code: int | None = None
) -> dict[str, Any]:
    """Count tests by status, name the nodes to leave out, and give the exit code.

    `skip_exit_code` is what the user asked for; None leaves it to the job, which makes it 0.
    """
    count = {status: sum(test["status"] == status for test in tests) for status in WORST_FIRST}
    status, reason = verdict_of(tests)
    skip = 77 if skip_exit_code is None else skip_exit_code
    bad = {test["host"] for test in tests if test["action"] == codes.EXCLUDE}
    failed = {test["host"] for test in tests if test["status"] == "FAIL"}
    return {
        "status": status,
        "reason": reason or None,
        "codes": sorted({test["code"] for test in tests if test["status"] in ("FAIL", "ERROR")}),
        "exit_code": exit_code(status, strict=strict, skip=skip),
        "strict": strict,
        "skip_exit_code": skip_exit_code,
        "passed": count["PASS"],
        "warned": count["WARN"],
        "failed": count["FAIL"],
        "skipped": count["SKIP"],
        "errors": count["ERROR"],
        "exclude_nodes": sorted(bad & failed),
    }


def stamp(seconds: float) -> str:
    """Give a time as RFC 3339, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
