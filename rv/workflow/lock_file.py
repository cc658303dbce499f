"""The file that fixes a project's packages, from which its virtual environment is built."""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.files import read_regular

_MOST_BYTES: Final = 64 << 20
_UV: Final = "uv.lock"
_PYLOCK: Final = "pylock.toml"
_REQUIREMENTS: Final = "requirements.txt"
_PROJECT: Final = "pyproject.toml"
_POETRY: Final = "poetry.lock"
_WANTED: Final = ".python-version"
_PYTHON: Final = re.compile(r"[0-9A-Za-z.,<>=!~*@+ -]{1,64}", re.ASCII)
_ELSEWHERE: Final = re.compile(
    r"\s*(?:(?P<flag>-[rce](?!\w*-)|--requirement|--constraint|--editable)"
    r"|(?:[\w.\[\],-]+\s*@\s*)?(?:\.{1,2}(?:/|$)|/|file:))"
)
_LOCKED: Final = "uv lock, or: pip freeze > requirements.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class LockFile:
    """What fixes the packages: `kind` is uv, pylock, hashed or plain; `files` are those to send.

    `python` is the version that the project asks for, "" for any.
    """

    name: str
    kind: str
    files: Mapping[str, bytes]
    python: str = ""

    @property
    def digest(self) -> str:
        """The hash of what decides which packages are installed."""
        data = b"\0".join([self.kind.encode(), self.python.encode(), self.files[self.name]])
        return hashlib.sha256(data).hexdigest()


def find_lock_file(directory: str) -> LockFile:
    """Read the lock file of a folder, or of the one above it that has one, within its work tree.

    Raises `RvError(CONFIG)` where there is none, or one that rv cannot build from.
    """
    here = Path(directory)
    for folder in (here, *here.parents):
        if lock := _read(folder):
            return lock
        if (folder / ".git").exists() or folder == Path.home():
            break
    raise RvError(
        ErrorKind.CONFIG,
        f"no lock file for --venv auto, in {here}",
        hint=f"it is built from {_UV}, {_PYLOCK} or {_REQUIREMENTS}: {_LOCKED}",
    )


def _read(folder: Path) -> LockFile | None:
    """Read the lock file of one folder; None where nothing of a project lies there."""
    python = _contents(folder / _WANTED) or b""
    wanted = python.decode("utf-8", "replace").strip().partition("\n")[0].strip()
    if (lock := _contents(folder / _UV)) is not None:
        return _uv_lock(folder, lock, wanted)
    if (lock := _contents(folder / _PYLOCK)) is not None:
        python_of_lock = wanted or _requires(lock, folder / _PYLOCK)
        return _made(_PYLOCK, "pylock", {_PYLOCK: lock}, python_of_lock)
    if (lock := _contents(folder / _REQUIREMENTS)) is not None:
        kind = requirements_kind(lock.decode("utf-8", "replace"), str(folder / _REQUIREMENTS))
        return _made(_REQUIREMENTS, kind, {_REQUIREMENTS: lock}, wanted)
    _refuse_unlocked(folder)
    return None


def _uv_lock(folder: Path, lock: bytes, wanted: str) -> LockFile:
    project = _contents(folder / _PROJECT)
    if project is None:
        raise RvError(
            ErrorKind.CONFIG, f"{folder / _UV}: its {_PROJECT} is not there", hint="uv init"
        )
    requires = wanted or _requires(lock, folder / _UV)
    return _made(_UV, "uv", {_UV: lock, _PROJECT: project}, requires)


def _made(name: str, kind: str, files: Mapping[str, bytes], python: str) -> LockFile:
    if python and not _PYTHON.fullmatch(python):
        raise RvError(
            ErrorKind.CONFIG, f"{python!r} is no version of Python", hint=f"see {_WANTED}"
        )
    return LockFile(name=name, kind=kind, files=files, python=python)


def requirements_kind(text: str, name: str) -> str:
    """Tell requirements with hashes from plain ones.

    Raises `RvError(CONFIG)` where they name another file: the key of the environment, and the
    cluster, would know nothing of it.
    """
    for line in text.splitlines():
        if reference := _ELSEWHERE.match(line):
            what = f"{reference['flag']} …" if reference["flag"] else "a path"
            raise RvError(
                ErrorKind.CONFIG,
                f"{name}: {what} leads to other files, which the cluster does not have",
                hint="write all packages into one file: pip freeze, or uv pip compile",
            )
    return "hashed" if "--hash=" in text else "plain"


def _refuse_unlocked(folder: Path) -> None:
    if (folder / _POETRY).exists():
        raise RvError(
            ErrorKind.CONFIG,
            f"{folder / _POETRY} is read by poetry alone",
            hint="poetry export -f requirements.txt -o requirements.txt",
        )
    if (folder / _PROJECT).exists():
        raise RvError(
            ErrorKind.CONFIG,
            f"{folder / _PROJECT} does not fix the versions of packages",
            hint=f"write a lock file beside it: {_LOCKED}",
        )


def _requires(lock: bytes, path: Path) -> str:
    try:
        return str(tomllib.loads(lock.decode("utf-8")).get("requires-python", ""))
    except (ValueError, RecursionError) as error:
        raise RvError(
            ErrorKind.CONFIG, f"{path}: {error}", hint="write it anew: uv lock"
        ) from error


def _contents(path: Path) -> bytes | None:
    try:
        return read_regular(path, _MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RvError(ErrorKind.CONFIG, f"{path}: {error.strerror}") from error
