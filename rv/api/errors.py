"""What a job's own failure raises; everything else that rv fails with is a plain `RvError`."""

from rv.errors import ErrorKind, RvError


class UncompletedJobError(RvError, RuntimeError):
    """A race is over and there is no result: cancelled, lost, timed out, killed. Kind `job`."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(ErrorKind.JOB, message, hint=hint)


class FailedJobError(UncompletedJobError):
    """The command ended with another exit code than 0, or the function raised an exception.

    The message has the traceback of the node; the exception itself, where it can be read here, is
    the `__cause__`.
    """
