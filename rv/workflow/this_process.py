"""What a process that uses rv has: its current directory and its umask."""

import os
from contextlib import suppress
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
    with suppress(OSError, ValueError, IndexError):
        # Without setting it, which threads that write files at that moment would notice.
        text = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
        return text[text.index("\nUmask:") :].split()[1]
    mask = os.umask(0o077)
    os.umask(mask)
    return f"{mask:04o}"
