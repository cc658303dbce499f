"""Everything rv can fail with: a kind, what failed on what, and what to do next.

Foreign errors are translated at the door where they appear; `rv.cli.app` is the one place that
catches `RvError`, prints it and turns it into the exit code below.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final


class ErrorKind(StrEnum):
    """The documented kinds of `error[kind]: …` lines; JOB is raised in Python alone."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    INFEASIBLE = "infeasible"
    LIMIT = "limit"
    STAGE = "stage"
    CONFIG = "config"
    SANDBOX = "sandbox"
    USAGE = "usage"
    INTERNAL = "internal"
    JOB = "job"


EXIT_DONE: Final = 0
EXIT_USAGE: Final = 2
EXIT_GAVE_UP: Final = 124
EXIT_RV_FAILED: Final = 125
EXIT_INTERRUPTED: Final = 130


class RvError(Exception):
    """A failure to show to the user as one line, with a hint of what to type next."""

    def __init__(self, kind: ErrorKind, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint

    @property
    def exit_code(self) -> int:
        """2 for what the user typed, 125 (as `docker run` has it) for what rv could not do."""
        return EXIT_USAGE if self.kind is ErrorKind.USAGE else EXIT_RV_FAILED


class UnwritableError(RvError):
    """What rv says or passes on could not be written, such as to a full disk.

    To type the command again is right only where it has submitted nothing yet.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            ErrorKind.STAGE,
            f"the output could not be written: {why}",
            hint="see where it is sent to, then type it again",
        )


@contextmanager
def hint_if_unwritable(hint: str) -> Iterator[None]:
    """Have the error for what cannot be written in here say this instead of "type it again"."""
    try:
        yield
    except UnwritableError as failure:
        failure.hint = hint
        raise
