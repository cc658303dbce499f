"""The transport for another machine: each operation is one script there, one round trip."""

import io
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from rv.errors import ErrorKind, RvError
from rv.transport import FINISH_S, LOST, FinishError, ScriptResult, why_unknown
from rv.transport.remote_shell import Answer, RemoteShell, Stream, as_result
from rv.transport.storage_errors import why_not_written_there

_FILES_S: Final = 60.0
_MOST_WAIT_S: Final = 5.0
_NO_FILE: Final = 44
_UNSAFE: Final = 45
_NOT_FINISHED: Final = 46

_PATTERN: Final = r"[\w./*?\[\]-]+"


class Connection(Protocol):
    """What opens programs on another machine."""

    def terminal(self, line: str) -> int:
        """Run a bash line there on this terminal, and return its exit code."""

    def open_stream(self, line: str) -> Stream:
        """Start a bash line there, its input and output the stream's."""


class RemoteTransport:
    """Runs bash on another machine, by `shell`; `connection` starts what has a channel of its own.

    Reading waits for a connection that was lost, `patience_s` seconds at most: no answer must not
    be taken for an absence.
    """

    def __init__(
        self, shell: RemoteShell, connection: Connection, patience_s: float = 60.0
    ) -> None:
        self._shell = shell
        self._connection = connection
        self._patience_s = patience_s

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        """Run bash text in the login environment there; one that was cut off has code `LOST`."""
        return as_result(self._shell.run(script, timeout_s=timeout_s))

    def create_tree(
        self,
        root: str,
        files: Mapping[str, bytes],
        directories: Sequence[str] = (),
        finish: str = "",
    ) -> None:
        """Send the tree as one archive, unpack it beside `root` and rename it into place."""
        archive = _archive(files, directories)
        code, out, err = self._do("create_tree", root, finish, data=archive, timeout_s=FINISH_S)
        if code == _NOT_FINISHED:
            own_code, _, text = (
                err.decode("utf-8", "replace").rpartition("\nrv-finish ")[2].partition(" ")
            )
            raise FinishError(int(own_code or 1), text)
        if code == _UNSAFE:
            why = out.decode("utf-8", "replace").strip()
            raise RvError(
                ErrorKind.STAGE,
                f"another user could change your races there: {why}",
                hint="name a directory of your own with RV_RACE_ROOT=/path there",
            )
        _require(code, err, root)

    def write(self, path: str, contents: bytes) -> None:
        """Replace a file by a temporary one; again where the connection was just ending."""
        code, _, err = self._do("write_file", path, data=contents)
        if code == LOST:
            code, _, err = self._do("write_file", path, data=contents)
        _require(code, err, path)

    def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes | None:
        """Read a file from `offset` on."""
        code, out, _ = self._ask("read_file", path, offset, limit)
        return None if code == _NO_FILE else out

    def read_tree(self, root: str, names: Sequence[str]) -> dict[str, bytes]:
        """Read the small files that match the patterns, as one archive."""
        _require_patterns(names)
        _, out, _ = self._ask("read_tree", root, *names)
        return unpacked(out)

    def read_new(
        self, root: str, names: Sequence[str], offsets: Mapping[str, int], limit: int
    ) -> dict[str, bytes]:
        """Read on in all of them, as one answer."""
        _require_patterns(names)
        already_read = [f"{offset}/{name}" for name, offset in offsets.items()]
        _, out, _ = self._ask("read_new", root, limit, *already_read, "--", *names)
        return _pieces(out)

    def names(self, directory: str) -> tuple[str, ...]:
        """Name the files in a directory."""
        return separate(self._ask("list_names", directory)[1])

    def directories(self, root: str) -> tuple[str, ...]:
        """Name the user's own directories in `root` that are not hidden."""
        return separate(self._ask("list_directories", root)[1])

    def remove(self, root: str) -> None:
        """Delete a tree of the user's own."""
        self._do("remove_tree", root)

    def interactive(self, argv: Sequence[str]) -> int:
        """Run a program there on this terminal."""
        return self._connection.terminal(self._shell.environment + shlex.join(argv))

    def open_stream(self, line: str) -> Stream:
        """Start a bash line there in a channel of its own."""
        return self._connection.open_stream(self._shell.environment + line)

    def _ask(self, operation: str, *arguments: object) -> Answer:
        """Call a function that only reads, again where the connection is lost or it was killed.

        Raises `RvError(UNREACHABLE)` where it stays so.
        """
        began_s = time.monotonic()
        wait_s = 0.0
        while why := _why_unknown(answer := self._do(operation, *arguments)):
            if time.monotonic() - began_s > self._patience_s:
                raise RvError(
                    ErrorKind.UNREACHABLE,
                    why,
                    hint="what was submitted goes on; rv ps shows it when the connection is back",
                )
            time.sleep(wait_s)
            wait_s = min(wait_s + 0.5, _MOST_WAIT_S)
        return answer

    def _do(
        self,
        operation: str,
        *arguments: object,
        data: bytes = b"",
        timeout_s: float = _FILES_S,
    ) -> Answer:
        """Call a function of scripts/files.sh, with `data` as its input."""
        words = shlex.join(map(str, arguments))
        return self._shell.run(f'. "$RV_FILES"\n{operation} {words}', data, timeout_s=timeout_s)


def _why_unknown(answer: Answer) -> str:
    code, _, err = answer
    return why_unknown(code, err.decode("utf-8", "replace"))


def _require_patterns(names: Sequence[str]) -> None:
    """Raise `ValueError` for what a shell would not read as a pattern of names."""
    unfit = [name for name in names if not re.fullmatch(_PATTERN, name, re.ASCII)]
    if unfit:
        raise ValueError(f"no pattern for a shell: {unfit[0]!r}")


def _pieces(data: bytes) -> dict[str, bytes]:
    """Read pieces of files, each after a line with its size and name; one cut short is no piece."""
    pieces: dict[str, bytes] = {}
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        size, _, name = data[at:end].partition(b" ")
        if not size.isdigit():
            break
        at = end + 1 + int(size)
        if at <= len(data):
            pieces[name.decode("utf-8", "surrogateescape")] = data[end + 1 : at]
    return pieces


def separate(out: bytes) -> tuple[str, ...]:
    """Read names that a NUL ends each, in order."""
    names = out.decode("utf-8", "surrogateescape").split("\0")
    return tuple(sorted(name for name in names if name))


def _archive(files: Mapping[str, bytes], directories: Sequence[str]) -> bytes:
    """Pack files (0600) and directories (0700), those above them too."""
    import tarfile

    buffer = io.BytesIO()
    above = {parent for name in files for parent in _parents(name)}
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in sorted({*directories, *above, *_all_parents(directories)}):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o700
            tar.addfile(entry)
        for name, contents in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(contents), 0o600
            tar.addfile(entry, io.BytesIO(contents))
    return buffer.getvalue()


def _all_parents(names: Sequence[str]) -> set[str]:
    return {parent for name in names for parent in _parents(name)}


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def unpacked(data: bytes) -> dict[str, bytes]:
    """Read the regular files of an archive; one that was cut off is empty."""
    import tarfile  # here and below: questions are sent sooner without

    if not data:
        return {}
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for entry in tar:
                stream = tar.extractfile(entry) if entry.isreg() else None
                if stream:
                    files[entry.name] = stream.read()
    except tarfile.TarError:
        return {}
    return files


def _require(code: int, err: bytes, path: str) -> None:
    """Raise `RvError` where a file could not be written, with the last line that said why."""
    if code == 0:
        return
    if why := why_unknown(code, err.decode("utf-8", "replace")):
        raise RvError(ErrorKind.UNREACHABLE, why, hint="the same command again")
    text = err.decode("utf-8", "replace").strip()
    said = text.rpartition("\n")[2].rpartition(": ")[2] or "I/O error"
    raise RvError(
        ErrorKind.STAGE,
        f"cannot write the race directory: {why_not_written_there(text) or said}, on {path}",
        hint="name a writable shared directory with RV_RACE_ROOT=/path there",
    )
