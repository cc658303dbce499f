"""The user's own `ssh`: their configuration, agents, jump hosts and second factor.

Where the user's configuration has no connection sharing, rv shares one of its own for ten minutes,
so that a second factor is asked once for several commands.
"""

import base64
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, TypeAlias, cast

from rv.errors import ErrorKind, RvError
from rv.transport.private_directories import is_own, make_private
from rv.transport.remote_shell import START_COMMAND

_SHARED_S: Final = 600
_LAST_BYTES: Final = 20_000
_ASK_S: Final = 20
_END_S: Final = 5
_FAILED: Final = 255
_MOST_SOCKET_FOLDER: Final = 40
"""Characters: a socket's path has 104 at most, and ssh adds 58."""

_OPTIONS: Final = (
    "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=15",
    "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3", "-o", "LogLevel=ERROR",
)  # fmt: skip
_UNKNOWN_KEY: Final = re.compile(r"host key is known for|Host key verification failed")
_CHANGED_KEY: Final = "HOST IDENTIFICATION HAS CHANGED"
_Pipe: TypeAlias = IO[bytes]
_SERVER_KEY: Final = re.compile(r"Server host key: (\S+ SHA256:\S+)")


class OpenSsh:
    """Opens shells and terminals on `host`: any name of ssh's, such as user@login or an alias."""

    def __init__(self, host: str, program: str) -> None:
        self._host = host
        self._program = program
        self._sharing: list[str] | None = None

    def connect(self) -> "SshStream":
        """Start a shell there. Raises `RvError(UNREACHABLE)` where ssh cannot be started.

        That ssh cannot connect shows when the shell is first read from.
        """
        command = self._command("-T", START_COMMAND)
        try:
            return SshStream(command, self._explain)
        except OSError as error:
            raise RvError(ErrorKind.UNREACHABLE, f"cannot start ssh: {error}") from error

    def terminal(self, line: str) -> int:
        """Run a bash line there on this terminal, and return its exit code."""
        # Any login shell reads this alike; the line may hold quotes and newlines.
        packed = base64.b64encode(line.encode("utf-8", "surrogateescape")).decode()
        start = f"exec /bin/bash --login -c 'eval \"$(echo {packed} | base64 -d)\"'"
        return subprocess.run(self._command("-t", start), check=False).returncode

    @property
    def description(self) -> str:
        """Say how this connects, once it has: whether one login serves several commands."""
        return "openssh, shared" if self._sharing else "openssh, as your ssh configuration says"

    def _command(self, terminal: str, line: str) -> list[str]:
        if self._sharing is None:
            self._sharing = self._share()
        return [self._program, *_OPTIONS, *self._sharing, terminal, "--", self._host, line]

    def _share(self) -> list[str]:
        """Return the options that share a connection, none where the user's file says how."""
        try:
            asked = subprocess.run(
                [self._program, "-G", "--", self._host],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return []
        lines = asked.stdout.decode("utf-8", "replace").splitlines()
        settings = dict(line.partition(" ")[::2] for line in lines)
        folder = _socket_folder()
        if settings.get("controlmaster", "false") != "false" or folder is None:
            return []
        return [
            "-o", "ControlMaster=auto", "-o", f"ControlPersist={_SHARED_S}",
            "-o", f"ControlPath={folder}/%C",
        ]  # fmt: skip

    def _explain(self, text: str) -> RvError:
        """Return the error for what ssh said when it failed."""
        if _CHANGED_KEY in text:
            return RvError(
                ErrorKind.UNREACHABLE,
                f"the host key of {self._host} has changed, to {self._server_key()}",
                hint="ask its administrators; if it is right: ssh-keygen -R HOST, then ssh HOST",
            )
        if _UNKNOWN_KEY.search(text):
            return RvError(
                ErrorKind.UNREACHABLE,
                f"the host key of {self._host} is not known here: {self._server_key()}",
                hint=f"compare it with what the site publishes, once: ssh {self._host}",
            )
        last = text.strip().rpartition("\n")[2].strip() or "ssh ended without a word"
        return RvError(
            ErrorKind.UNREACHABLE,
            f"cannot connect to {self._host}: {last}",
            hint=f"try: ssh {self._host}",
        )

    def _server_key(self) -> str:
        """Ask for the server's key, its kind and fingerprint."""
        command = [self._program, *_OPTIONS[:-1], "LogLevel=DEBUG1", "-o", "BatchMode=yes"]
        try:
            asked = subprocess.run(
                [*command, "--", self._host, "true"],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "it shows none"
        match = _SERVER_KEY.search(asked.stderr.decode("utf-8", "replace"))
        return match[1] if match else "it shows none"


def _socket_folder() -> Path | None:
    """Make the folder of shared connections, None where none of this user's can be made."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(runtime) / "rv"
    if not runtime or len(str(folder)) > _MOST_SOCKET_FOLDER:
        folder = Path("/tmp") / f"rv-ssh-{os.getuid()}"  # noqa: S108 - made 0700, owner checked
    try:
        make_private(folder)
    except OSError:
        return None
    return folder if is_own(folder) else None


class SshStream:
    """One `ssh` that runs a shell: bytes to its input and from its output."""

    def __init__(self, command: list[str], explain: Callable[[str], RvError]) -> None:
        self._explain = explain
        has_terminal = sys.stdin.isatty()
        batch = [] if has_terminal else ["-o", "BatchMode=yes"]
        # A shared connection outlives this: it would hold a pipe open.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        # Ctrl-C is for rv, which has jobs to cancel over this connection. In a session of its own
        # ssh could ask for no second factor; where it only uses a shared connection, it ends all
        # the same, and is started again.
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh", command[0], *batch, *command[1:]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
            start_new_session=not has_terminal,
        )  # fmt: skip
        pipes = (self._process.stdin, self._process.stdout)
        self._in, self._out = cast("tuple[_Pipe, _Pipe]", pipes)

    def write(self, data: bytes) -> None:
        """Send all of it. Raises `RvError(UNREACHABLE)` where ssh failed."""
        try:
            self._in.write(data)
            self._in.flush()
        except OSError as error:
            raise self._failure() or error from error

    def read_line(self) -> bytes:
        """Read up to and with a newline. Raises `RvError(UNREACHABLE)` where ssh failed."""
        line = self._out.readline()
        failure = None if line else self._failure()
        if failure:
            raise failure
        return line

    def read(self, size: int) -> bytes:
        """Read so many bytes, fewer where the connection ended."""
        return self._out.read(size)

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
        self._out.close()
        self._said.close()
        self._in.close()  # may still hold what could not be sent

    def _failure(self) -> RvError | None:
        """Return what ssh failed with, None where it ended with what it ran."""
        try:
            code = self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            return None
        if code != _FAILED:
            return None
        self._said.seek(max(0, self._said.tell() - _LAST_BYTES))
        return self._explain(self._said.read().decode("utf-8", "replace"))
