"""Which ssh reaches a login node: the user's own program, or connections that rv makes itself."""

import shutil
from pathlib import Path
from typing import Final, Protocol

from rv.errors import ErrorKind, RvError
from rv.transport.openssh import OpenSsh
from rv.transport.remote_shell import Stream
from rv.transport.ssh_config_file import forbids_sharing

AUTO: Final = "auto"
KINDS: Final = (AUTO, "openssh", "paramiko")


class Ssh(Protocol):
    """Opens shells, programs and terminals on one machine."""

    @property
    def description(self) -> str:
        """Say how this connects, once it has."""

    def connect(self, command: str) -> Stream:
        """Start a command there, for any login shell. Raises `RvError(UNREACHABLE)`."""

    def terminal(self, line: str) -> int:
        """Run a bash line there on this terminal, and return its exit code."""

    def open_stream(self, line: str) -> Stream:
        """Run a bash line there, its input and output the stream's."""


def choose_ssh(host: str, kind: str) -> Ssh:
    """Return what reaches `host`; `kind` is one of `KINDS`, or "" for AUTO.

    AUTO is the user's own ssh where there is one and its connections may be shared: it knows more.
    Raises `RvError(CONFIG)` for another kind, `RvError(UNREACHABLE)` for an ssh that is not there.
    """
    kind = kind or AUTO
    if kind not in KINDS:
        raise RvError(
            ErrorKind.CONFIG, f"no ssh {kind!r} is known", hint=f"one of {', '.join(KINDS)}"
        )
    program = shutil.which("ssh")
    if kind == "openssh" and program is None:
        raise RvError(
            ErrorKind.UNREACHABLE,
            "there is no ssh here",
            hint="install an OpenSSH client, or RV_SSH=paramiko",
        )
    is_forbidden = kind == AUTO and forbids_sharing(host, Path.home())
    if kind == "paramiko" or program is None or is_forbidden:
        from rv.transport.paramiko_connection import Paramiko

        return Paramiko(host)
    return OpenSsh(host, program)
