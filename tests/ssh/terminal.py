"""A person at a terminal who is asked for passphrases, passwords and second factors."""

import errno
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence

PATIENCE_S = 60.0


class Terminal:
    """A program on a pseudo-terminal of its own; `said` is all that it showed."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], cwd: str = "/") -> None:
        self.said = ""
        self.code: int | None = None
        self._pid, self.handle = pty.fork()
        if self._pid == 0:
            os.chdir(cwd)
            os.execvpe(argv[0], list(argv), {**environment, "TERM": "dumb"})

    def read(self) -> str:
        """Take what is there to read, without waiting long."""
        while select.select([self.handle], [], [], 0.02)[0]:
            try:
                data = os.read(self.handle, 65536)
            except OSError as error:
                if error.errno != errno.EIO:  # the program is over
                    raise
                break
            if not data:
                break
            self.said += data.decode(errors="replace")
        return self.said

    def shows(self, text: str, times: int = 1) -> None:
        """Wait until it showed a text so often."""
        deadline = time.monotonic() + PATIENCE_S
        while self.read().count(text) < times:
            assert self.code is None, self.said
            assert time.monotonic() < deadline, self.said
            self._look()

    def types(self, line: str) -> None:
        """Type a line."""
        os.write(self.handle, f"{line}\n".encode())

    def presses(self, keys: bytes) -> None:
        """Type these bytes."""
        os.write(self.handle, keys)

    def resize(self, columns: int, lines: int) -> None:
        """Give it another size, as who drags a window does."""
        fcntl.ioctl(self.handle, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def settings(self) -> list[object]:
        """What the terminal does with what is typed."""
        return list(termios.tcgetattr(self.handle))

    def signal(self, number: int) -> None:
        """Send the program a signal."""
        os.kill(self._pid, number)

    def ends(self) -> int:
        """Wait for its end, and return its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.code is None:
            assert time.monotonic() < deadline, self.said
            self.read()
            self._look()
        self.read()
        return self.code

    def close(self) -> None:
        """End it, and the terminal."""
        if self.code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self.handle)

    def _look(self) -> None:
        if self.code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
