"""The ssh command of the next `rv ps`, written down by the one before and started first of all.

To load rv, read the configuration and ask ssh for its settings takes 0.1 s, in which the network
could be under way: a third of a `rv ps` where a round trip takes as long. What was started is used
where rv then comes to the same command, word for word, and is ended otherwise. So a command is kept
whole, with the marks that were drawn for it; it serves once.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from typing import IO, Final, NamedTuple

from rv import __version__
from rv.transport.own_folder import connections_folder, is_own

RACES_AND_QUEUE: Final = "ps"
"""The only name yet: what other commands ask first depends on what is kept of a cluster."""

_VARIABLES: Final = ("HOME", "PATH", "SSH_AUTH_SOCK", "USER")
_FORMS: Final = ("RV_", "XDG_")
"""What the environment says of which cluster is meant, and of how ssh reaches it."""

_MOST_BYTES: Final = 256 << 10
_FIELD, _WORD = "\0\0", "\0"


class Program(NamedTuple):
    """An ssh that was started, with pipes to it and from it, and the file of what it says."""

    process: "subprocess.Popen[bytes]"
    said: IO[bytes]


class Kept:
    """A command that was started ahead, and the marks that it was made with."""

    def __init__(self, command: Sequence[str], marks: Sequence[str]) -> None:
        """Start it. Raises `OSError`."""
        self.marks = tuple(marks)
        self._command = list(command)
        self._program: Program | None = open_program(command)

    def adopt(self, command: Sequence[str]) -> Program:
        """Return the program of a command: what was started ahead, where that is the same.

        Raises `OSError` where another cannot be started.
        """
        if self._program and self._command == list(command):
            program, self._program = self._program, None
            return program
        self.end()
        return open_program(command)

    def end(self) -> None:
        """End it, unless it was adopted."""
        if self._program:
            end(self._program)
        self._program = None


def open_program(command: Sequence[str]) -> Program:
    """Start ssh. Raises `OSError`."""
    has_terminal = sys.stdin.isatty()
    batch = [] if has_terminal else ["-o", "BatchMode=yes"]
    # A shared connection outlives this: it would hold a pipe open.
    said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
    # Ctrl-C is for rv, which has jobs to cancel over this connection. In a session of its own
    # ssh could ask for no second factor; where it only uses a shared connection, it ends all
    # the same, and is started again.
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh", command[0], *batch, *command[1:]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
        start_new_session=not has_terminal,
    )  # fmt: skip
    return Program(process, said)


def end(program: Program) -> None:
    """End it, if it has not ended."""
    process, said = program
    process.terminate()
    process.wait()
    said.close()
    for pipe in (process.stdout, process.stdin):
        try:
            if pipe:
                pipe.close()
        except BrokenPipeError:
            pass  # it held what could not be sent


def start_kept(name: str) -> Kept | None:
    """Start the command that is kept by a name; None where none is, or things are not as then."""
    try:
        fields = _take(name).split(_FIELD)
        files, then, marks, command = (field.split(_WORD) for field in fields)
        if then == _circumstances(files):
            return Kept(command, marks)
    except (OSError, ValueError):  # it is gone, or was damaged
        pass
    return None


def keep(name: str, command: Sequence[str], marks: Sequence[str], files: Iterable[str]) -> None:
    """Keep a command by a name; `files` are those that say which it is. Raises `OSError`.

    It is not kept where the folder of connections is not this user's alone.
    """
    folder = connections_folder()
    if not is_own(folder):
        return
    paths = list(files)
    fields = (paths, _circumstances(paths), marks, command)
    text = _FIELD.join(_WORD.join(words) for words in fields)
    new = f"{folder}/.{name}.{os.getpid()}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.replace(new, f"{folder}/{name}")  # noqa: PTH105 - no pathlib is loaded here


def _take(name: str) -> str:
    """Read what is kept, and delete it: of two that read it, one alone may use it."""
    folder = connections_folder()
    if not is_own(folder):
        raise FileNotFoundError(folder)
    path = f"{folder}/{name}"
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(_MOST_BYTES)
    os.unlink(path)  # noqa: PTH108
    return data.decode("utf-8", "surrogateescape")


def _circumstances(files: Sequence[str]) -> list[str]:
    """Return what tells that the command would be the same: no proof, which `adopt` waits for."""
    variables = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name in _VARIABLES or name.startswith(_FORMS)
    ]
    return [__version__, os.getcwd(), *variables, *map(_changed_at, files)]  # noqa: PTH109


def _changed_at(path: str) -> str:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return "-"
    return f"{status.st_mtime_ns} {status.st_size} {status.st_ino}"
