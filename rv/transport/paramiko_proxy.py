"""The user's ProxyCommand, for paramiko: a program whose input and output are the way to a host."""

import os
import socket
import subprocess
import tempfile
from typing import Final

from rv.transport.terminal_questions import printable

_LAST_BYTES: Final = 4096
_END_S: Final = 5


class ProxyCommand:
    """A program that runs behind `way`; Ctrl-C is not for it. `last_words` are there at its end."""

    last_words = ""

    def __init__(self, command: str) -> None:
        self.way, far = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        with far:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f'trap "" INT; exec {command}'],
                stdin=far.fileno(), stdout=far.fileno(), stderr=self._errors,
            )  # fmt: skip

    def close(self) -> None:
        """End it."""
        self.way.close()
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _LAST_BYTES))
        text = self._errors.read().decode("utf-8", "replace").strip()
        self.last_words = printable(text.rpartition("\n")[2])
        self._errors.close()
