"""A side's tests: each run once, timed, told on the console, and kept in both result formats."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING, Any

from _harness import files
from contract.verdicts import NotPassed

from .client import Unreachable
from .wire import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _harness.main import Session

MARKS = {"PASS": "\u2705", "SKIP": "\u23ed", "WARN": "\u26a0"}


TOLERANCE = 1e-5  # absolute, as float32 allows


def require(right: bool, reason: str) -> None:  # noqa: FBT001 - it reads as a sentence
    """Raise NotPassed(FAIL, wrong_answer) unless it is right."""
    if not right:
        raise NotPassed("FAIL", "wrong_answer", reason)


def close_to(torch: Any, result: Any, expected: Any, sums: int = 1) -> bool:
    """Compare with what another device may round otherwise, in a sum of so many products."""
    off = TOLERANCE * max(1.0, sums**0.5)
    return result.shape == expected.shape and bool(
        torch.allclose(result, expected, atol=off, rtol=TOLERANCE)
    )


class Suite:
    """The tests of one side, `server` or `client`."""

    def __init__(self, session: Session, side: str) -> None:
        self.session, self.side = session, side
        self.tests: list[dict[str, Any]] = []

    def run(self, name: str, test: Callable[[], dict[str, Any]]) -> bool:
        """Run a test, which gives its details or raises; say whether it passed."""
        start = time.perf_counter()
        status, code, reason = "PASS", "", ""
        details: dict[str, Any] = {}
        try:
            details = test()
        except NotPassed as outcome:
            status, code, reason = outcome.status, outcome.code, outcome.reason
        except Unreachable as error:
            status, code, reason = "FAIL", "server_unreachable", str(error)
        except Refused as refusal:
            status, code = "FAIL", "wrong_answer"
            reason = f"refused with {refusal.status}: {refusal.reason}"
        milliseconds = round((time.perf_counter() - start) * 1e3, 3)
        self._keep(name, status, code, reason, details, milliseconds)
        return status == "PASS"

    def _keep(
        self, name: str, status: str, code: str, reason: str, details: dict[str, Any], ms: float
    ) -> None:
        metrics = details.pop("metrics", [])
        self.session.report.add(
            f"tensor_service.{self.side}.{name}", status, code=code, reason=reason,
            details={**details, "test_ms": ms}, metrics=metrics,
        )  # fmt: skip
        self.tests.append(
            {
                "name": name,
                "status": status,
                "details": details or reason,
                "timing_ms": ms,
                "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S"),
            }
        )
        self.session.say("SERVICE", f"{MARKS.get(status, chr(0x274C))} {name} {reason}".rstrip())
        if details:
            self.session.say("SERVICE", f"   Details: {json.dumps(details, default=str)[:300]}")

    def write(self, folder: Path) -> Path:
        """Write `SIDE_test_results_YYYYmmdd_HHMMSS.json`, and say how all of it went."""
        info = {
            "hostname": socket.gethostname(),
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "test_type": f"{self.side}_side",
        }
        target = folder / f"{self.side}_test_results_{time.strftime('%Y%m%d_%H%M%S')}.json"
        files.write(target, {"test_info": info, "tests": self.tests})
        bad = [test["name"] for test in self.tests if test["status"] not in ("PASS", "SKIP")]
        passed = f"All {self.side} tests passed!"
        self.session.say("SERVICE", f"not passed: {', '.join(bad)}" if bad else passed)
        return target
