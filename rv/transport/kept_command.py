"""The ssh command of the next `rv ps`, written down by the one before and started first of all.

To load rv, read the configuration and ask ssh for its settings takes 0.1 s, half of which is saved:
an eighth of a `rv ps` where a round trip takes 0.1 s. What was started is used where rv then comes
to the same command, word for word, and is ended otherwise. So a command is kept whole, with the
marks that were drawn for it; it serves once.
"""

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Final, NamedTuple

from rv import __version__
from rv.transport.own_folder import connections_folder, is_own, is_own_status

_FILE: Final = "ps"
_VARIABLES: Final = ("HOME", "PATH", "SSH_AUTH_SOCK", "USER")
_FORMS: Final = ("RV_", "XDG_")
"""What the environment says of which cluster is meant, and of how ssh reaches it."""

_MARK: Final = "rv[0-9a-f]{16,64}"
_MOST_BYTES: Final = 256 << 10
_FIELD, _WORD = "\0\0", "\0"


class Program(NamedTuple):
    """An ssh that was started, with pipes to it and from it, and the file of what it says."""

    process: "subprocess.Popen[bytes]"
    said: IO[bytes]


class Started(NamedTuple):
    """A command that was started ahead, and the marks that it was made with."""

    command: list[str]
    marks: tuple[str, ...]
    program: Program


class Kept:
    """For one `rv ps`: what the last one kept, if that was started, until somebody adopts it."""

    def __init__(self) -> None:
        self._started = _start()

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of what was started; none where nothing was."""
        return self._started.marks if self._started else ()

    def adopt(self, command: Sequence[str]) -> Program | None:
        """Return what was started ahead where that is this command; where not, it is ended."""
        started = self._started
        if started is None or started.command != list(command):
            self.end()
            return None
        self._started = None
        return started.program

    def end(self) -> None:
        """End what was started, unless somebody adopted it."""
        started, self._started = self._started, None
        if started:
            end(started.program)


def open_program(command: Sequence[str], said: IO[bytes]) -> Program:
    """Start ssh; what it says goes to a file. Raises `OSError`."""
    has_terminal = sys.stdin.isatty()
    batch = [] if has_terminal else ["-o", "BatchMode=yes"]
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


def keep(command: Sequence[str], marks: Sequence[str], files: Iterable[str]) -> None:
    """Keep a command; `files` are those that say which it is. Raises `OSError`.

    It is not kept where the folder of connections is not this user's alone.
    """
    from pathlib import Path  # not before ssh is started

    from rv.files import write_atomically

    folder = connections_folder()
    if not is_own(folder):
        return
    paths = list(files)
    fields = (paths, _circumstances(paths), marks, command)
    text = _FIELD.join(_WORD.join(words) for words in fields)
    data = text.encode("utf-8", "surrogateescape")
    write_atomically(Path(folder) / _FILE, data, mode=0o600)


def _start() -> Started | None:
    """Start the command that is kept; None where none is, or things are not as then."""
    try:
        fields = _take().decode("utf-8", "surrogateescape").split(_FIELD)
        files, then, marks, command = (field.split(_WORD) for field in fields)
        if then != _circumstances(files) or not all(re.fullmatch(_MARK, mark) for mark in marks):
            return None
        return Started(command, tuple(marks), open_program(command, _unnamed_file()))
    except (OSError, ValueError):  # it is gone, or was damaged
        return None


def _take() -> bytes:
    """Read what is kept, and delete it: of several, one alone may use it. Raises `OSError`.

    It names a program to run, so that both it and its folder have to be this user's alone.
    """
    own = f".{_FILE}.{os.getpid()}"
    with _opened(connections_folder(), os.O_DIRECTORY) as folder:
        if not is_own_status(os.fstat(folder)):
            raise PermissionError(_FILE)
        os.rename(_FILE, own, src_dir_fd=folder, dst_dir_fd=folder)
        try:
            with _opened(own, os.O_NONBLOCK, folder) as file:
                status = os.fstat(file)
                is_file = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
                if not is_file or status.st_mode & 0o077 or status.st_size > _MOST_BYTES:
                    raise PermissionError(_FILE)
                return os.read(file, _MOST_BYTES)
        finally:
            os.unlink(own, dir_fd=folder)


def _unnamed_file() -> IO[bytes]:
    """Return a new file, as the module tempfile does, which takes long to import."""
    path = f"{connections_folder()}/.said.{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    os.unlink(path)  # noqa: PTH108
    return os.fdopen(descriptor, "w+b")


@contextmanager
def _opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    """Open what is no link. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _circumstances(files: Sequence[str]) -> list[str]:
    """Return what tells that the command would be the same: no proof, which `adopt` waits for."""
    variables = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name in _VARIABLES or name.startswith(_FORMS)
    ]
    here = os.getcwd()  # noqa: PTH109 - pathlib is not loaded yet
    return [__version__, sys.version, sys.executable, here, *variables, *map(_changed_at, files)]


def _changed_at(path: str) -> str:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return "-"
    return f"{status.st_mtime_ns} {status.st_size} {status.st_ino}"
