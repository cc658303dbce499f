"""Verdicts, their order, and the exit codes that they become.

77 and 99 are Automake's codes (skip, hard error), 124 is that of timeout(1), 75 is EX_TEMPFAIL of
sysexits.h. torchrun turns every one of them into 1: the result file, not the exit code, is where a
verdict is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

PASS, WARN, FAIL, ERROR, SKIP = "PASS", "WARN", "FAIL", "ERROR", "SKIP"
WORST_FIRST = (FAIL, ERROR, WARN, PASS, SKIP)
"""FAIL: what was tested is bad. ERROR: it could not be tested. SKIP: there was no need to."""

EXIT_CODES = {PASS: 0, WARN: 0, FAIL: 1, ERROR: 99, SKIP: 77}
PREEMPTED, TIMEOUT, INTERRUPTED = 75, 124, 130
ERROR_EXIT_CODES = {"timeout": TIMEOUT, "preempted": PREEMPTED}
"""The exit codes of a whole run in which every error has this one fault code."""


class NotPassed(Exception):  # noqa: N818 - a verdict; only ERROR is an error
    """A test that did not pass: its status, a stable code of `codes.py`, and the reason.

    `more` goes into the test: `device`, `rank`, `details`, `metrics`.
    """

    def __init__(self, status: str, code: str, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.status, self.code, self.reason, self.more = status, code, reason, more


def worst(statuses: Collection[str]) -> str:
    """Return the worst status; ERROR where there is none, because nothing was tested."""
    return next((status for status in WORST_FIRST if status in statuses), ERROR)


def exit_code(
    status: str, *, strict: bool = False, skip: int = 77, error_codes: Collection[str] = ()
) -> int:
    """Return the exit code of a verdict.

    `strict` makes a warning a failure; `skip` is the code of SKIP. An ERROR ends with 124 or 75
    where `error_codes`, the fault codes of all errors, are one code that asks for it.
    """
    if status == WARN and strict:
        return EXIT_CODES[FAIL]
    if status == SKIP:
        return skip
    if status == ERROR and len(error_codes) == 1:
        return ERROR_EXIT_CODES.get(next(iter(error_codes)), EXIT_CODES[ERROR])
    return EXIT_CODES[status]
