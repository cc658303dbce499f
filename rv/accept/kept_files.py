"""The files of runs and sweeps on this machine: written whole, and not over sounder ones."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rv.accept.result_files import MAX_BYTES, parse
from rv.accept.results import ResultError
from rv.errors import ErrorKind, RvError
from rv.files import locked, read_regular, write_atomically


def write_all(folder: Path, files: Mapping[str, bytes], hint: str = "") -> None:
    """Write files by name. Raises `RvError(STAGE)` where this machine's disk does not take them."""
    try:
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, data, mode=0o600)
    except OSError as error:
        why = error.strerror or str(error)
        problem = f"cannot keep the results: {why}, on {folder}"
        raise RvError(ErrorKind.STAGE, problem, hint=hint) from error


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file while `what`, a sweep, is run: two that ran it would lose jobs of it.

    Raises `RvError(USAGE)` where another process holds it.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(path, 0))
        except TimeoutError as error:
            hint = "wait for it, or end it, and then --resume"
            raise RvError(ErrorKind.USAGE, f"another rv runs {what}", hint=hint) from error
        yield


def without_damaged(folder: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Leave out what is empty, or no result, where what is kept of it in the folder is not so."""
    return {
        name: data for name, data in files.items() if not _is_damaged_since(folder / name, data)
    }


def _is_damaged_since(kept: Path, data: bytes) -> bool:
    """Whether a file says nothing, where what is kept of it does."""
    if _says_something(kept.name, data):
        return False
    try:
        return _says_something(kept.name, read_regular(kept, MAX_BYTES))
    except OSError:
        return False


def _says_something(name: str, data: bytes) -> bool:
    """Whether it can be read as a result, be it one that is refused; of a note whether it has any.

    Results of older formats are known by their names too.
    """
    if not name.endswith(".json"):
        return bool(data.strip())
    try:
        return bool(parse(data, name))
    except ResultError:
        return False
