"""What paramiko and sockets fail with, as one line."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import paramiko

from rv.errors import ErrorKind, RvError
from rv.transport.terminal_questions import printable

FAILURES = (paramiko.SSHException, EOFError, OSError, UnicodeError)


@contextmanager
def explained(host: str, role: str = "") -> Iterator[None]:
    """Turn what paramiko and sockets fail with into one line about `host`, which has a `role`."""
    try:
        yield
    except FAILURES as error:
        raise RvError(
            ErrorKind.UNREACHABLE,
            f"cannot connect to {host}{role}: {_reason(error)}",
            hint=what_to_try(host),
        ) from error


def what_to_try(host: str) -> str:
    """Return a hint for who cannot connect; ssh itself knows more, and says more."""
    if shutil.which("ssh"):
        return f"try: ssh {host}; if that works: RV_SSH=openssh"
    return "look at HostName, User, Port and IdentityFile in ~/.ssh/config"


def _reason(error: Exception) -> str:
    """Say why in words that ssh has too."""
    context = error.__context__
    if isinstance(error, paramiko.ProxyCommandFailure):
        return f"its ProxyCommand: {error.error}"
    if isinstance(error, socket.gaierror):
        return f"could not resolve its name: {error.strerror}"
    if isinstance(error, TimeoutError) or isinstance(context, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, EOFError) or isinstance(context, EOFError | ConnectionResetError):
        return "it closed the connection"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return printable(str(error)) or type(error).__name__
