"""Connections that rv makes itself, where there is no ssh whose connections can be shared.

One connection serves many shells; where the server allows no more sessions on it, another is made.
"""

import atexit
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import paramiko

from rv.transport.login_shell import login_command, stream_command
from rv.transport.paramiko_errors import FAILURES, explained
from rv.transport.paramiko_link import Link, open_link
from rv.transport.ssh_config_file import read_settings

_PIECE_BYTES: Final = 1 << 16
_LOOK_S: Final = 1.0


class Paramiko:
    """Opens shells and terminals on `host`: [USER@]NAME[:PORT], or an alias of ~/.ssh/config."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._links: list[Link] = []
        self._lock = threading.Lock()
        atexit.register(self.close)

    @property
    def description(self) -> str:
        """Say how this connects."""
        return "paramiko, a login for each command"

    def connect(self, command: str) -> "ChannelStream":
        """Start a command there. Raises `RvError(UNREACHABLE)` where that fails."""
        with explained(self._host):
            channel = self._session()
            channel.exec_command(command)
            return ChannelStream(channel, self._host)

    def open_stream(self, line: str) -> "ChannelStream":
        """Run a bash line there, in a login shell. Raises `RvError(UNREACHABLE)`."""
        return self.connect(stream_command(line))

    def terminal(self, line: str) -> int:
        """Run a bash line there on this terminal, and return its exit code."""
        from rv.transport.paramiko_terminal import run_on_terminal

        with explained(self._host):
            return run_on_terminal(self._session(), login_command(line))

    def close(self) -> None:
        """End all connections."""
        while self._links:
            self._links.pop().close()

    def _session(self) -> paramiko.Channel:
        with self._lock:
            for link in list(self._links):
                try:
                    return link.session()
                except paramiko.ChannelException:  # it has as many sessions as it may have
                    continue
                except (paramiko.SSHException, EOFError, OSError):
                    self._links.remove(link)
                    link.close()
            home = Path.home()
            self._links.append(open_link(read_settings(self._host, home), home))
            return self._links[-1].session()


class ChannelStream:
    """A program there: bytes to its standard input and from its standard output."""

    def __init__(self, channel: paramiko.Channel, host: str) -> None:
        self._channel = channel
        self._host = host
        self._unread = b""
        channel.settimeout(_LOOK_S)

    def write(self, data: bytes) -> None:
        """Send all of it. Raises `OSError`."""
        view = memoryview(data)
        while view:
            self._pass_over_errors()
            try:
                sent = self._channel.send(view[:_PIECE_BYTES].tobytes())
            except TimeoutError:
                continue
            except FAILURES as error:
                raise self._lost() from error
            if not sent:
                raise self._lost()
            view = view[sent:]

    def read_line(self) -> bytes:
        """Read up to and with a newline, less where it ended. Raises `OSError`."""
        pieces = [self._unread]
        while b"\n" not in pieces[-1] and (more := self._more()):
            pieces.append(more)
        line, newline, self._unread = b"".join(pieces).partition(b"\n")
        return line + newline

    def read(self, size: int) -> bytes:
        """Read so many bytes, fewer where it ended. Raises `OSError`."""
        pieces, count = [self._unread], len(self._unread)
        while count < size and (more := self._more()):
            pieces.append(more)
            count += len(more)
        data = b"".join(pieces)
        self._unread = data[size:]
        return data[:size]

    def read_some(self, size: int) -> bytes:
        """Read what is there, so many bytes at most. Raises `OSError`."""
        data = self._unread or self._more()
        self._unread = data[size:]
        return data[:size]

    def close_write(self) -> None:
        """Say that no more comes. Raises `OSError`."""
        try:
            self._channel.shutdown_write()
        except FAILURES as error:
            raise self._lost() from error

    def close(self) -> None:
        """End it."""
        with suppress(*FAILURES):
            self._channel.close()

    def _more(self) -> bytes:
        """Wait for bytes, none at the end of the program. Raises `OSError` at the connection's."""
        while True:
            self._pass_over_errors()
            try:
                data = self._channel.recv(_PIECE_BYTES)
            except TimeoutError:
                continue
            transport = self._channel.get_transport()
            if not data and not transport.is_active():
                raise self._lost()
            return data

    def _pass_over_errors(self) -> None:
        """Make room for what comes: outputs and errors have one window."""
        with suppress(TimeoutError):  # another thread took them
            while self._channel.recv_stderr_ready():
                self._channel.recv_stderr(_PIECE_BYTES)

    def _lost(self) -> ConnectionError:
        return ConnectionError(f"{self._host} closed the connection")
