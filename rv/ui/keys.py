"""Single keys from the terminal, without Enter and without an echo."""

import os
import select
import sys
from contextlib import suppress
from typing import Any


class Keys:
    """The keyboard between `open` and `close`; Ctrl-C and Ctrl-Z keep their meaning.

    Where stdin is no terminal, or rv runs in its background, there are no keys.
    """

    def __init__(self) -> None:
        self._settings: list[Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a keyboard to read from."""
        return self._settings is not None

    def open(self) -> None:
        """Turn off line editing and echo."""
        if self.is_open or not sys.stdin.isatty() or not _is_in_foreground():
            return
        import termios
        import tty

        with suppress(termios.error):
            settings = termios.tcgetattr(0)
            tty.setcbreak(0, termios.TCSADRAIN)
            self._settings = settings

    def pressed(self) -> str:
        """Return what was typed since the last call, "" for nothing; never waits."""
        typed = b""
        while self.is_open and _is_in_foreground() and select.select([0], [], [], 0)[0]:
            data = _read()
            if not data:
                break
            typed += data
        return typed.decode("ascii", errors="ignore")

    def close(self) -> None:
        """Put the terminal back as it was."""
        if self._settings is None:
            return
        import termios

        settings, self._settings = self._settings, None
        if _is_in_foreground():  # from the background, this would stop the process
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, settings)


def _read() -> bytes:
    """Return what was typed, nothing where the terminal is gone."""
    try:
        return os.read(0, 64)
    except OSError:
        return b""


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
