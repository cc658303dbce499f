"""The user's own `ssh`: their configuration, agents, jump hosts and second factor.

Where the user's configuration has no connection sharing, rv shares one of its own for ten minutes,
so that a second factor is asked once for several commands.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from rv.errors import ErrorKind, RvError
from rv.transport.ahead import Ahead
from rv.transport.kept_command import Kept, Program, end, keep, open_program
from rv.transport.login_shell import login_command, stream_command
from rv.transport.own_folder import connections_folder, is_own
from rv.transport.private_directories import make_private
from rv.transport.ssh_config_file import (
    ALIVE_COUNT,
    ALIVE_INTERVAL_S,
    CONNECT_TIMEOUT_S,
    config_files,
    forbids_sharing,
)
from rv.transport.terminal_questions import printable

if TYPE_CHECKING:
    from io import BufferedReader

_SHARED_S: Final = 600
_LAST_BYTES: Final = 20_000
_ASK_S: Final = 20
_END_S: Final = 5
_FAILED: Final = 255

# Ports that the user's file forwards would be rv's for as long as its connection is kept.
_OPTIONS: Final = (
    "-o", "StrictHostKeyChecking=yes", "-o", "ClearAllForwardings=yes", "-o", "LogLevel=ERROR",
)  # fmt: skip
_NO_COMMAND: Final = ("-o", "RemoteCommand=none")
"""Where the user's file names a command: ssh takes no other then. OpenSSH 7.4 has no such word."""

_UNSET: Final = {
    ("connecttimeout", "none"): ("-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}"),
    ("serveraliveinterval", "0"): (
        "-o", f"ServerAliveInterval={ALIVE_INTERVAL_S}", "-o", f"ServerAliveCountMax={ALIVE_COUNT}",
    ),
}  # fmt: skip
"""What rv sets where `ssh -G` says that the user's configuration does not."""

_OWN_MASTER: Final = "ControlMaster=auto"
_KEEP: Final = ("-o", f"ControlPersist={_SHARED_S}")
_USE_ONLY: Final = ("-o", "ControlMaster=no")
"""Either keeps rv's end from being that of the user's sessions, which might share its connection.

One that is kept goes on without rv. With `ask` or `autoask` ssh would ask for leave to use its own
then, and fail where nobody can be asked; with `yes` it would be in the way of the user's own.
"""

_NO_LOGIN: Final = "Permission denied"
_UNKNOWN_KEY: Final = r"host key is known for|Host key verification failed"
_ASKS: Final = r"Permission denied \(.*(keyboard-interactive|password)"
_PROXY_ENDED: Final = r"UNKNOWN port|_exchange_identification: "
"""How ssh says that its proxy or jump host is gone: which of these depends on who was faster."""
_WAYS: Final = {"proxycommand": "ProxyCommand", "proxyjump": "jump host"}
_REVOKED_KEY: Final = "REVOKED HOST KEY"
_CHANGED_KEY: Final = "HOST IDENTIFICATION HAS CHANGED"
_SERVER_KEY: Final = r"Server host key: (\S+ SHA256:\S+)"


class OpenSsh:
    """Opens shells and terminals on `host`: any name of ssh's, such as user@login or an alias."""

    def __init__(self, host: str, program: str) -> None:
        self._host = host
        self._program = program
        self._adopted: Program | None = None
        self._settings = Ahead(self._ask_settings)  # while rv prepares its first question
        self._own_options: list[str] | None = None

    def connect(self, command: str) -> "SshStream":
        """Start a command there, its input and output the stream's.

        Raises `RvError(UNREACHABLE)` where ssh cannot be started. That ssh cannot connect shows
        when the stream is first read from.
        """
        program, self._adopted = self._adopted, None
        try:
            return SshStream(program or self._open(command), self._explain)
        except OSError as error:
            raise RvError(ErrorKind.UNREACHABLE, f"cannot start ssh: {error}") from error

    def adopt(self, kept: Kept, command: str) -> bool:
        """Take what was started ahead for the next `connect`, where that would start the same."""
        self._adopted = kept.adopt(self._words(command))
        return self._adopted is not None

    def keep_command(self, command: str, marks: Sequence[str], files: Iterable[Path]) -> None:
        """Keep what `connect` would start, where connections are rv's to share.

        `files` and ssh's own say what it is. Raises `OSError`, `ValueError` for an unreadable one.
        """
        if _OWN_MASTER in (self._own_options or ()):
            every = (*files, *config_files(Path.home()))
            keep(self._words(command), marks, map(str, every))

    def terminal(self, line: str) -> int:
        """Run a bash line there on this terminal, and return its exit code."""
        return subprocess.run(self._command("-t", login_command(line)), check=False).returncode

    def open_stream(self, line: str) -> "SshStream":
        """Start a bash line there, its input and output the stream's."""
        return self.connect(stream_command(line))

    @property
    def description(self) -> str:
        """Say how this connects, once it has: whether one login serves several commands."""
        is_shared = _OWN_MASTER in (self._own_options or ())
        return "openssh, shared" if is_shared else "openssh, as your ssh configuration says"

    def _open(self, command: str) -> Program:
        # A file: a shared connection outlives this, and would hold a pipe open.
        said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        return open_program(self._words(command), said)

    def _words(self, command: str) -> list[str]:
        """Return what `connect` starts."""
        return self._command("-T", command)

    def _command(self, terminal: str, line: str) -> list[str]:
        if self._own_options is None:
            self._own_options = self._add_options()
        return [self._program, *_OPTIONS, *self._own_options, terminal, "--", self._host, line]

    def _ask_settings(self) -> dict[str, str] | None:
        """Return the user's settings, None where ssh does not tell them."""
        try:
            asked = subprocess.run(
                [self._program, "-G", "--", self._host],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        lines = asked.stdout.decode("utf-8", "replace").splitlines()
        return dict(line.partition(" ")[::2] for line in lines)

    def _add_options(self) -> list[str]:
        """Return what rv adds to the user's configuration: limits of time, and sharing."""
        settings = self._settings.answer()
        if settings is None:
            return []
        commands = _NO_COMMAND if settings.get("remotecommand", "none") != "none" else ()
        return [*_limits(settings), *commands, *self._share(settings)]

    def _share(self, settings: Mapping[str, str]) -> Sequence[str]:
        """Return the options of shared connections, few where the user's file says how they are."""
        control_master = settings.get("controlmaster", "false")
        if control_master != "false":
            if settings.get("controlpersist", "no") != "no":
                return ()
            return _KEEP if control_master == "auto" else _USE_ONLY
        folder = _socket_folder()
        if folder is None or forbids_sharing(self._host, Path.home()):
            return ()
        return ("-o", _OWN_MASTER, *_KEEP, "-o", f"ControlPath={folder}/%C")

    def _explain(self, text: str) -> RvError | OSError:
        """Return the error for what ssh said when it failed.

        One that said nothing was using a shared connection that ended: it may be tried again.
        """
        text = text.strip() or self._unsaid()
        if not text:
            return ConnectionResetError("ssh ended without a word")
        if about_key := self._about_key(text):
            return about_key
        last = printable(self._reason(text))
        if re.search(_ASKS, last) and not sys.stdin.isatty():
            last = f"{last.removesuffix('.')}: it asks, and there is no terminal to answer on"
        return RvError(
            ErrorKind.UNREACHABLE,
            f"cannot connect to {self._host}: {last}",
            hint=f"try: ssh {self._host}",
        )

    def _reason(self, text: str) -> str:
        """Return ssh's last line, or what failed on the way, with its words where ssh has them."""
        *others, last = map(str.strip, text.splitlines())
        way = self._failed_on_the_way(text)
        if not way:
            return last
        told = [line for line in others if line[:1].isalnum() and not re.search(_PROXY_ENDED, line)]
        return ": ".join([f"its {way} failed", *told[-1:]])

    def _about_key(self, text: str) -> RvError | None:
        """Return the error for a host key that ssh refused, None where it refused none."""
        if _REVOKED_KEY in text:
            problem = "is revoked here"
            hint = "do not connect: ask its administrators for its new key"
        elif _CHANGED_KEY in text:
            problem = "has changed"
            hint = "ask its administrators; if it is right: ssh-keygen -R HOST, then ssh HOST"
        elif re.search(_UNKNOWN_KEY, text):
            problem = "is not known here"
            hint = f"compare it with what the site publishes, once: ssh {self._host}"
        else:
            return None
        if self._failed_on_the_way(text):
            message = f"the host key of {self._host}'s jump host {problem}"
        else:
            message = f"the host key of {self._host} {problem}: {self._server_key()}"
        return RvError(ErrorKind.UNREACHABLE, message, hint=hint)

    def _failed_on_the_way(self, text: str) -> str:
        """Return what led to the login node, where that failed and not the node; else ""."""
        settings = self._settings.answer() or {}
        ways = [name for key, name in _WAYS.items() if key in settings]
        return ways[0] if ways and re.search(_PROXY_ENDED, text.splitlines()[-1]) else ""

    def _unsaid(self) -> str:
        """Return why no connection can be made, "" where one can, or only nobody is asked here.

        From OpenSSH 10 on, that a proxy or the server closed it is said at the level INFO alone.
        """
        asked = self._try_alone("INFO")
        if asked is None:
            return f"no answer within {_ASK_S} s"
        if asked.returncode != _FAILED:
            return ""
        said = asked.stderr.decode("utf-8", "replace").strip()
        return "" if _NO_LOGIN in said else said

    def _server_key(self) -> str:
        """Ask for the server's key, its kind and fingerprint."""
        asked = self._try_alone("DEBUG1")
        said = asked.stderr.decode("utf-8", "replace") if asked else ""
        keys: list[str] = re.findall(_SERVER_KEY, said)
        return keys[-1] if keys else "it shows none"  # after those of jump hosts

    def _try_alone(self, log_level: str) -> "subprocess.CompletedProcess[bytes] | None":
        """Connect without sharing and without a question; None where that takes too long."""
        commands = _NO_COMMAND if _NO_COMMAND[1] in (self._own_options or ()) else ()
        command = [
            self._program, *_OPTIONS[:-1], f"LogLevel={log_level}", *commands,
            *_limits(self._settings.answer() or {}),
            "-o", "BatchMode=yes", "-o", "ControlPath=none",
        ]  # fmt: skip
        try:
            return subprocess.run(
                [*command, "--", self._host, "true"],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None


def _limits(settings: Mapping[str, str]) -> list[str]:
    """Return the options for the limits of time that the user's configuration does not set."""
    unset = (words for (key, value), words in _UNSET.items() if settings.get(key) == value)
    return [word for words in unset for word in words]


def _socket_folder() -> Path | None:
    """Make the folder of shared connections, None where none of this user's can be made."""
    folder = Path(connections_folder())
    try:
        make_private(folder)
    except OSError:
        return None
    return folder if is_own(folder) else None


class SshStream:
    """One `ssh` that runs a shell: bytes to its input and from its output."""

    def __init__(self, program: Program, explain: Callable[[str], RvError | OSError]) -> None:
        self._explain = explain
        self._has_answered = False
        self._program = program
        self._process, self._said = program
        pipes = (self._process.stdin, self._process.stdout)
        self._in, self._out = cast("tuple[IO[bytes], BufferedReader]", pipes)

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
        self._has_answered = self._has_answered or bool(line)
        failure = None if line else self._failure()
        if failure:
            raise failure
        return line

    def read(self, size: int) -> bytes:
        """Read so many bytes, fewer where the connection ended."""
        return self._out.read(size)

    def read_some(self, size: int) -> bytes:
        """Read what is there, so many bytes at most. Raises `RvError(UNREACHABLE)`."""
        data = self._out.read1(size)
        failure = None if data else self._failure()
        if failure:
            raise failure
        return data

    def close_write(self) -> None:
        """Say that no more comes."""
        self._in.close()

    def close(self) -> None:
        """End it."""
        end(self._program)

    def _failure(self) -> RvError | OSError | None:
        """Return what ssh failed with, None where it ended with what it ran."""
        try:
            code = self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            return None
        if code != _FAILED:
            return None
        if self._has_answered:  # it was connected: what was said since is what runs there said
            return ConnectionResetError("ssh ended, or the shell there was killed")
        self._said.seek(max(0, self._said.tell() - _LAST_BYTES))
        return self._explain(self._said.read().decode("utf-8", "replace"))
