"""What a whole run comes to: its verdict, and the exit code that says it. Pure."""

from collections.abc import Sequence

from rv.accept.results import RunResult, Status, worst
from rv.payloads.contract import verdicts


def verdict(results: Sequence[RunResult]) -> Status:
    """Return the worst status of all results; ERROR where there are none."""
    return worst([result.status for result in results])


def exit_code(results: Sequence[RunResult], *, strict: bool, skip: int) -> int:
    """Return the exit code of a run.

    0 for PASS and WARN (1 for WARN where `strict`), 1 for FAIL, `skip` where all was skipped. ERROR
    is 99, or 124 or 75 where every error is a payload out of time, or preempted, to be run again.
    """
    errors = {result.code for result in results if result.status is Status.ERROR}
    return verdicts.exit_code(verdict(results), strict=strict, skip=skip, error_codes=errors)
