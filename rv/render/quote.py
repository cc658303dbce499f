"""The one place that quotes: for the shell, and for `#SBATCH` lines.

What it returns is `Quoted`, and a template writes nothing else: see `written`.
"""

import re
import shlex
from collections.abc import Iterable
from typing import Final

from rv.errors import ErrorKind, RvError

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._@/+=:, -]")


class Quoted(str):
    """Text that may be written into a script as it is."""

    __slots__ = ()


def written(value: object) -> object:
    """Return what a template may write: quoted text, and whole numbers.

    Raises `TypeError` for anything else, so that no value is ever left unquoted by mistake.
    """
    if isinstance(value, Quoted) or type(value) is int:
        return value
    raise TypeError(f"{value!r} is written unquoted: pipe it through q, words, d or remark")


def shell(value: object) -> Quoted:
    """Quote for bash, one word whatever it holds.

    Raises `RvError(USAGE)` for a NUL, which no argument of a program can hold.
    """
    text = str(value)
    if "\0" in text:
        raise RvError(ErrorKind.USAGE, "a value holds a NUL byte", hint="remove it")
    return Quoted(shlex.quote(text))


def words(values: Iterable[object]) -> Quoted:
    """Quote each for bash, as so many words."""
    return Quoted(" ".join(map(shell, values)))


def remark(value: object) -> Quoted:
    """Reduce text to what a comment of a script can hold: one line."""
    return Quoted("".join(char if char.isprintable() else " " for char in str(value)))


def directive(value: object) -> Quoted:
    r"""Quote for an `#SBATCH` line, where sbatch has its own small grammar.

    Inside double quotes sbatch takes everything but `\` and `"` as it is; a line cannot hold
    control characters, so those raise `RvError(USAGE)`.
    """
    text = str(value)
    if _CONTROL.search(text):
        raise RvError(
            ErrorKind.USAGE,
            f"{text!r} holds a control character, which no sbatch option can",
            hint="remove the newline or tab",
        )
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return Quoted(f'"{escaped}"')


def path_pattern(path: str) -> str:
    r"""Escape a path for --output of sbatch and srun, where `%` begins a replacement symbol.

    A backslash there turns the replacing off and is dropped itself, so it raises `RvError(STAGE)`.
    """
    if "\\" in path:
        raise RvError(
            ErrorKind.STAGE,
            f"Slurm writes no output below {path!r}: it drops backslashes from paths",
            hint="set RV_RACE_ROOT to a directory without one",
        )
    return path.replace("%", "%%")


def comment(text: str) -> str:
    """Reduce text to what is harmless in a job's comment, which other tools print unquoted."""
    return _NOT_PLAIN.sub("_", text)[:200]
