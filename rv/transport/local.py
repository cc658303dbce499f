"""The transport for a login node or the sandbox: Slurm's commands run on this machine."""

import fnmatch
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from rv.errors import ErrorKind, RvError
from rv.files import open_regular, write_atomically
from rv.transport import FINISH_S, TIMED_OUT, FinishError, ScriptResult
from rv.transport.own_folder import is_own
from rv.transport.private_directories import (
    make_private,
    require_private,
    require_safe_root,
)
from rv.transport.storage_errors import why_not_written

if TYPE_CHECKING:
    from io import BufferedReader

_KILLED_OUTPUT_TIMEOUT_S = 5.0
_PRIVATE = 0o600
_WILD = re.compile(r"[*?[]")


class LocalTransport:
    """Runs bash here, with `environment` as the whole environment of every Slurm command."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        """Run bash text in a session of its own, so that a timeout ends all that it started.

        What it writes is for this user alone, whatever the caller's umask.
        """
        process = subprocess.Popen(
            ["/bin/bash", "--noprofile", "--norc", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
            umask=0o077,
        )
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return self._kill(process)
        return _result(process.returncode, out, err, timed_out=False)

    def _kill(self, process: "subprocess.Popen[bytes]") -> ScriptResult:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            out, err = process.communicate(timeout=_KILLED_OUTPUT_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # stuck in the kernel: its output is lost
            out, err = b"", b""
        return _result(TIMED_OUT, out, err, timed_out=True)

    def create_tree(
        self,
        root: str,
        files: Mapping[str, bytes],
        directories: Sequence[str] = (),
        finish: str = "",
    ) -> None:
        """Build the tree beside `root` and rename it into place, so that nobody sees half of it."""
        import shutil  # here and below: questions, which most commands only ask, begin sooner
        import tempfile

        final = Path(root)
        with _storage_errors(final):
            make_private(final.parent)
            require_safe_root(final.parent)
            building = Path(
                tempfile.mkdtemp(prefix=f".{final.name}.{time.time():.0f}.", dir=final.parent)
            )
            try:
                require_private(building)
                for name in directories:
                    make_private(building / name)
                for name, contents in files.items():
                    _write_new(building / name, contents)
                if finish:
                    self._finish(finish, building, final.name)
                building.rename(final)
            except BaseException:
                shutil.rmtree(building, ignore_errors=True)
                raise

    def _finish(self, script: str, directory: Path, name: str) -> None:
        """Run a script in a directory that is being made. Raises `FinishError`."""
        head = f"cd {shlex.quote(str(directory))} && RV_NAME={shlex.quote(name)}"
        done = self.run(f"{head} || exit\n{script}", timeout_s=FINISH_S)
        if done.returncode:
            raise FinishError(done.returncode, done.stderr)

    def write(self, path: str, contents: bytes) -> None:
        """Replace a file by a temporary one beside it."""
        final = Path(path)
        with _storage_errors(final):
            write_atomically(final, contents, mode=_PRIVATE)

    def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes | None:
        """Open and read: on NFS an open fetches what other nodes wrote, a stat may not."""
        try:
            with open_regular(Path(path)) as file:
                file.seek(offset)
                return file.read(limit)
        except OSError:
            return None

    def read_tree(self, root: str, names: Sequence[str]) -> dict[str, bytes]:
        """Open what matches the patterns, whatever a stat would say; what vanishes is left out."""
        read = ((name, self.read(f"{root}/{name}")) for name in self._matching(root, names))
        return {name: contents for name, contents in read if contents is not None}

    def read_new(
        self, root: str, names: Sequence[str], offsets: Mapping[str, int], limit: int
    ) -> dict[str, bytes]:
        """Open each, as `read` does, and read on."""
        files: dict[str, bytes] = {}
        for name in self._matching(root, names):
            contents = self.read(f"{root}/{name}", offset=offsets.get(name, 0), limit=limit)
            if contents:
                files[name] = contents
                limit -= len(contents)
        return files

    def _matching(self, root: str, patterns: Sequence[str]) -> Iterator[str]:
        for pattern in patterns:
            folder, _, last = pattern.rpartition("/")
            listed = self.names(f"{root}/{folder}") if _WILD.search(last) else (last,)
            for name in fnmatch.filter(listed, last):
                yield f"{folder}/{name}" if folder else name

    def names(self, directory: str) -> tuple[str, ...]:
        """Name the files in a directory."""
        try:
            return tuple(sorted(os.listdir(directory)))  # noqa: PTH208 - a Path for each is slow
        except OSError:
            return ()

    def directories(self, root: str) -> tuple[str, ...]:
        """Name the directories in `root` that are not hidden; other users' are not followed."""
        names = (name for name in self.names(root) if not name.startswith("."))
        return tuple(name for name in names if is_own(f"{root}/{name}"))

    def remove(self, root: str) -> None:
        """Delete a tree of our own making; what another user put there stays."""
        import shutil

        if is_own(root):
            shutil.rmtree(root, ignore_errors=True)

    def open_stream(self, line: str) -> "LocalStream":
        """Start a bash line here."""
        return LocalStream(line, self._environment)

    def interactive(self, argv: Sequence[str]) -> int:
        """Hand the terminal to a program; it gets Ctrl-C, rv only waits for it."""
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return subprocess.run(
                list(argv),
                env={**self._environment, "TERM": os.environ.get("TERM", "dumb")},
                check=False,
                preexec_fn=_default_interrupt,
            ).returncode
        finally:
            signal.signal(signal.SIGINT, previous)


class LocalStream:
    """A bash line that runs here: bytes to its input and from its output."""

    def __init__(self, line: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["/bin/bash", "--noprofile", "--norc", "-c", line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
        pipes = (self._process.stdin, self._process.stdout)
        self._in, self._out = cast("tuple[IO[bytes], BufferedReader]", pipes)

    def write(self, data: bytes) -> None:
        """Send all of it. Raises `OSError`."""
        self._in.write(data)
        self._in.flush()

    def read_line(self) -> bytes:
        """Read up to and with a newline, less where it ended."""
        return self._out.readline()

    def read(self, size: int) -> bytes:
        """Read so many bytes, fewer where it ended."""
        return self._out.read(size)

    def read_some(self, size: int) -> bytes:
        """Read what is there, so many bytes at most."""
        return self._out.read1(size)

    def close_write(self) -> None:
        """Say that no more comes."""
        self._in.close()

    def close(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()
        self._out.close()
        with suppress(BrokenPipeError):
            self._in.close()


def _default_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _result(code: int, out: bytes, err: bytes, *, timed_out: bool) -> ScriptResult:
    texts = [each.decode("utf-8", errors="replace") for each in (out, err)]
    return ScriptResult(
        returncode=code, stdout=texts[0], stderr=texts[1], timed_out=timed_out, raw=(out, err)
    )


def _write_new(path: Path, contents: bytes) -> None:
    make_private(path.parent)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    with os.fdopen(handle, "wb") as stream:
        stream.write(contents)
        os.fchmod(handle, _PRIVATE)  # whatever the umask


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    """Turn an error of the race directory's disk into one line."""
    try:
        yield
    except OSError as error:
        why = why_not_written(error)
        raise RvError(
            ErrorKind.STAGE,
            f"cannot write the race directory: {why}, on {path}",
            hint="name a writable shared directory with RV_RACE_ROOT=/path",
        ) from error
