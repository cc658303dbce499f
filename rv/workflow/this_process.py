"""What a process that uses rv has: its current directory and its umask."""

import os
from pathlib import Path

from rv.errors import ErrorKind, RvError


def working_directory() -> str:
    """The current directory. Raises `RvError(STAGE)` where it has been removed."""
    try:
        return str(Path.cwd())
    except OSError as error:
        raise RvError(
            ErrorKind.STAGE, "the current directory is gone", hint="cd to one that exists"
        ) from error


def umask() -> str:
    """The caller's umask, which the command is to have: rv itself writes for this user alone."""
    mask = os.umask(0o077)
    os.umask(mask)
    return f"{mask:04o}"
