"""The words of a verdict, and the exit codes that they come to.

77 and 99 are Automake's (skip, hard error), 124 is timeout(1)'s, 75 is EX_TEMPFAIL. torchrun turns
every one of them into 1, so that the result file, not the exit code, is where a verdict is read.
"""

from __future__ import annotations

from typing import Any

WORST_FIRST = ("FAIL", "ERROR", "WARN", "PASS", "SKIP")
EXIT_CODES = {"PASS": 0, "WARN": 0, "FAIL": 1, "ERROR": 99, "SKIP": 77}
AGAIN, TIMEOUT, INTERRUPTED = 75, 124, 130


class NotPassed(Exception):  # noqa: N818 - a verdict; only ERROR is an error
    """A test that did not pass: its status, a stable code of `codes.py`, and what was seen.

    `more` goes into the test: `device`, `rank`, `details`, `metrics`.
    """

    def __init__(self, status: str, code: str, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.status, self.code, self.reason, self.more = status, code, reason, more


def worst(statuses: list[str]) -> str:
    """Give the worst of them; nothing tested is an error, never a pass."""
    return next((status for status in WORST_FIRST if status in statuses), "ERROR")


def exit_code(status: str, *, strict: bool = False, skip: int = 77) -> int:
    """Give the code a payload ends with; `strict` makes a warning a failure."""
    if status == "WARN" and strict:
        return 1
    return skip if status == "SKIP" else EXIT_CODES[status]
