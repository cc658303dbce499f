"""Run bash where Slurm's commands are, and write and read files there."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from rv.errors import ErrorKind, RvError

if TYPE_CHECKING:
    from rv.transport.remote_shell import Stream


class ScriptResult(NamedTuple):
    """A script's exit code and output: untrusted text, undecodable bytes replaced.

    `raw` are the bytes of both, for whoever passes them on.
    """

    returncode: int
    stdout: str
    stderr: str
    timed_out: bool = False
    raw: tuple[bytes, bytes] = (b"", b"")


LOST: Final = 256
"""The exit code of a script whose connection was lost: one that no program can end with."""

FINISH_S: Final = 900.0
"""How long the script that finishes a tree may take: it may copy much."""


class FinishError(Exception):
    """The script that finishes a tree failed; `code` is its exit code, `text` its errors."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Transport(Protocol):
    """Where Slurm's commands run. All paths are absolute paths on that machine."""

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        """Run bash text with Slurm's environment scrubbed; a timeout is reported, not raised.

        What it writes is the user's alone (umask 077).
        """

    def create_tree(
        self,
        root: str,
        files: Mapping[str, bytes],
        directories: Sequence[str] = (),
        finish: str = "",
    ) -> None:
        """Create `root` (0700, it must not exist) with `files` by relative path; all or nothing.

        `finish` is bash text that runs in the directory before it gets its name, which RV_NAME is.
        Raises `FinishError` where that fails.
        Raises `RvError(STAGE)` where it cannot be written, or another user could change it.
        """

    def write(self, path: str, contents: bytes) -> None:
        """Replace one file atomically."""

    def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes | None:
        """Read a file from `offset` on, `limit` bytes at most; None where there is none."""

    def read_tree(self, root: str, names: Sequence[str]) -> dict[str, bytes]:
        """Read the small files under `root` that match `names`; only a last part has wildcards."""

    def read_new(
        self, root: str, names: Sequence[str], offsets: Mapping[str, int], limit: int
    ) -> dict[str, bytes]:
        """Read on, each from its offset (else 0), in the files under `root` that match `names`.

        `limit` bytes at most are read in all; files with nothing new are left out.
        """

    def names(self, directory: str) -> tuple[str, ...]:
        """Name the files in a directory, none where it does not exist."""

    def directories(self, root: str) -> tuple[str, ...]:
        """Name the user's own directories in `root`, none where it does not exist."""

    def remove(self, root: str) -> None:
        """Delete a tree of the user's own; no error where it is gone."""

    def open_stream(self, line: str) -> "Stream":
        """Start a bash line there: bytes to its standard input and from its standard output.

        Raises `RvError(UNREACHABLE)`, and so do the stream's operations where it is lost.
        """

    def interactive(self, argv: Sequence[str]) -> int:
        """Run a program on the user's terminal and return its exit code."""


def require_answer(result: ScriptResult) -> None:
    """Raise `RvError(UNREACHABLE)` where the connection was lost, and the code says nothing."""
    if result.returncode == LOST:
        raise RvError(
            ErrorKind.UNREACHABLE,
            result.stderr.strip() or "the connection was lost",
            hint="the same command again; rv ps shows what was submitted",
        )


TIMED_OUT: Final = 124
_MOST_OWN_CODE: Final = 128
"""What is killed has a code above it, or a negative one."""


def why_unknown(code: int, said: str) -> str:
    """Say why nobody knows what a script of rv's own came to, "" where it came to its end."""
    if code == LOST:
        return said or "the connection was lost"
    if code == TIMED_OUT:
        return "the login node took too long"
    is_own = 0 <= code <= _MOST_OWN_CODE
    return "" if is_own else "a program of rv's was killed on the login node"


def require_end(result: ScriptResult, failed: str) -> None:
    """Raise `RvError(UNREACHABLE)` where a script was cut off: its code says nothing of its work.

    `failed` is what could not be done.
    """
    require_answer(result)
    if why := why_unknown(result.returncode, result.stderr):
        raise RvError(ErrorKind.UNREACHABLE, f"{failed}: {why}", hint="the same command again")
