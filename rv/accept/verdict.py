"""What a whole run comes to: its verdict, and the exit code that says it. Pure."""

from collections.abc import Sequence
from typing import Final

from rv.accept.results import RunResult, Status, worst

EXIT_FAIL: Final = 1
EXIT_PREEMPTED: Final = 75
EXIT_ERROR: Final = 99
EXIT_TIMEOUT: Final = 124

_OF_ERRORS: Final = {"timeout": EXIT_TIMEOUT, "preempted": EXIT_PREEMPTED}


def verdict(results: Sequence[RunResult]) -> Status:
    """The worst of all results; ERROR where there are none."""
    return worst([result.status for result in results])


def exit_code(results: Sequence[RunResult], *, strict: bool, skip: int) -> int:
    """The exit code of a run.

    0 for PASS and WARN (1 for WARN where `strict`), 1 for FAIL, `skip` where all was skipped. ERROR
    is 99, or 124 or 75 where every error is a payload out of time, or preempted, to be run again.
    """
    status = verdict(results)
    if status is Status.ERROR:
        codes = {result.code for result in results if result.status is Status.ERROR}
        return _OF_ERRORS.get(codes.pop(), EXIT_ERROR) if len(codes) == 1 else EXIT_ERROR
    by_status = {
        Status.FAIL: EXIT_FAIL,
        Status.WARN: int(strict),
        Status.SKIP: skip,
    }
    return by_status.get(status, 0)
