"""The user's own variables for every job: one file of this machine, for this user alone (0600)."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from rv import bundle
from rv.errors import ErrorKind, RvError
from rv.files import read_regular, write_atomically

LONGEST_VALUE: Final = 128 << 10
"""Bytes. Linux takes 128 KiB for one variable, with its name and what ends it."""

_MOST_BYTES: Final = 8 << 20
_PRIVATE: Final = 0o600
_LOCK_S: Final = 20.0
_QUOTED: Final = re.compile(
    r"""(?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)")(?:\s*|\s*\#.*)"""
)
_ESCAPES: Final = {"n": "\n", '"': '"', "\\": "\\"}
_ESCAPED: Final = re.compile(r'\\([n"\\])')


def variables_file() -> Path:
    """Return where they are kept."""
    return bundle.user_config_dir() / "environment.json"


def load_variables() -> dict[str, str]:
    """Read them. Raises `RvError(CONFIG)` for a file that others may read, or that is none."""
    path = variables_file()
    try:
        mode = path.stat().st_mode
        data = read_regular(path, _MOST_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RvError(ErrorKind.CONFIG, f"{path}: cannot be read: {error.strerror}") from error
    if mode & 0o077:
        raise RvError(
            ErrorKind.CONFIG,
            f"{path}: others may read what it holds (mode {mode & 0o777:04o})",
            hint=f"chmod 600 {path}",
        )
    return _parsed(data, path)


def change_variables(change: Callable[[dict[str, str]], Mapping[str, str]]) -> None:
    """Replace them by what `change` makes of them, one process at a time.

    Raises `RvError(CONFIG)` where the file cannot be written.
    """
    import filelock

    path = variables_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with filelock.FileLock(path.with_suffix(".lock"), timeout=_LOCK_S):
            text = json.dumps(change(load_variables()), indent=1)
            write_atomically(path, text + "\n", mode=_PRIVATE, durable=True)
    except filelock.Timeout as error:
        raise RvError(ErrorKind.CONFIG, f"{path}: another rv has it open", hint="again") from error
    except OSError as error:
        why = f"{path}: cannot be written: {error.strerror}"
        raise RvError(ErrorKind.CONFIG, why, hint="XDG_CONFIG_HOME names another folder") from error


def why_unfit(value: str) -> str:
    """Return why no program can have this value, "" where one can. The value is not quoted."""
    if "\0" in value:
        return "its value holds a NUL byte"
    if len(value.encode("utf-8", "surrogateescape")) > LONGEST_VALUE - 256:
        return f"its value is longer than {LONGEST_VALUE >> 10} KiB, which no program can take"
    return ""


def parse_dotenv(lines: Iterable[str]) -> dict[str, str]:
    """Read the lines of a `.env` file: `NAME=VALUE`, quoted or not, with `export` before or not.

    Nothing in it is expanded. Raises `ValueError` with the number of a line that is none of these,
    never with what it holds.
    """
    variables = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"line {number} is no NAME=VALUE")
        variables[name.strip()] = _unquoted(value.strip(), number)
    return variables


def _unquoted(value: str, number: int) -> str:
    quote = value[:1]
    if quote not in ("'", '"'):
        return value.partition(" #")[0].rstrip()
    quoted = _QUOTED.fullmatch(value)
    if not quoted:
        raise ValueError(f"line {number} has a quote that does not end")
    if quote == "'":
        return quoted["single"]
    return _ESCAPED.sub(lambda escaped: _ESCAPES[escaped[1]], quoted["double"])


def _parsed(data: bytes, path: Path) -> dict[str, str]:
    try:
        held = json.loads(data)
    except ValueError:
        held = None
    if not isinstance(held, dict) or not all(isinstance(value, str) for value in held.values()):
        raise RvError(
            ErrorKind.CONFIG, f"{path}: rv did not write this", hint="rename it to do without"
        )
    return held
