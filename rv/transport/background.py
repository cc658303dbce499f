"""A command that goes on in the background once it works, as `ssh -f` does."""

import os
import sys
from dataclasses import dataclass
from typing import Final

_READY: Final = b"."


@dataclass(frozen=True, slots=True)
class Background:
    """The process that goes on; who typed the command waits for it until it is ready."""

    _pipe: int

    def leave_terminal(self) -> None:
        """Ask nothing more, and outlive the terminal: errors are still shown there."""
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, sys.stdin.fileno())
        os.close(null)

    def is_ready(self) -> None:
        """Let who typed the command go on; nothing more is shown."""
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(null, stream.fileno())
        os.close(null)
        os.write(self._pipe, _READY)
        os.close(self._pipe)


def go_to_background() -> Background | int:
    """Go on in another process. Where that is ready or has ended, the first one gets an exit code.

    Call it before there are threads or connections.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        return Background(writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        if pipe.read(1) == _READY:
            return 0
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
