"""The tests of one rank, added as they end: its part of a result of schema `rv.accept/1`."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from contract.codes import CODES
from contract.schema import METHOD_VERSION, SCHEMA, TOKEN, explained, summary_of, verdict_of
from contract.verdicts import PASS, WORST_FIRST

from .ranks import node_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from .ranks import Ranks

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
        is_first: bool = False,
        **more: Any,
    ) -> None:
        """Add one test's outcome, with `is_first` before the others.

        Anything but PASS has a `code` of `codes.py` and a `reason` that a person understands.
        Raises KeyError for an unknown code, ValueError for an unknown status.
        """
        if status not in WORST_FIRST:
            raise ValueError(f"unknown status {status}")
        fault = CODES[code] if code else None
        now = time.monotonic()
        test = {
            "name": name,
            "status": status,
            "code": code or None,
            "class": fault.fault if fault else None,
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
            self.tests.insert(len(self.tests) * (not is_first), test)

    def drop_passes(self, names: Collection[str]) -> None:
        """Remove the passed tests of these names: beside a SKIP they would make a PASS."""
        with self._lock:
            self.tests[:] = [
                test for test in self.tests if test["status"] != PASS or test["name"] not in names
            ]

    @property
    def models(self) -> dict[str, str]:
        """The products' names by device; none on a CPU."""
        return {f"cuda:{device['index']}": device["name"] for device in self.devices}

    def verdict(self) -> tuple[str, str]:
        """Return the worst status and its first reason."""
        return verdict_of(self.tests)

    def as_json(self) -> dict[str, Any]:
        """Lay the report out as the schema says."""
        with self._lock:
            tests = explained(self.tests)
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
            "token": os.environ.get(TOKEN),
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


def stamp(time_s: float) -> str:
    """Return seconds since the epoch as RFC 3339, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s))
