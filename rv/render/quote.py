"""The one place that quotes: for the shell, and for `#SBATCH` lines."""

import re
import shlex
from typing import Final

from rv.errors import Kind, RvError

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._@/+=:, -]")


def shell(value: object) -> str:
    """Quote for bash, one word whatever it holds.

    Raises `RvError(USAGE)` for a NUL, which no argument of a program can hold.
    """
    text = str(value)
    if "\0" in text:
        raise RvError(Kind.USAGE, "a value holds a NUL byte", hint="remove it")
    return shlex.quote(text)


def directive(value: object) -> str:
    r"""Quote for an `#SBATCH` line, where sbatch has its own small grammar.

    Inside double quotes sbatch takes everything but `\` and `"` as it is; a line cannot hold
    control characters, so those raise `RvError(USAGE)`.
    """
    text = str(value)
    if _CONTROL.search(text):
        raise RvError(
            Kind.USAGE,
            f"{text!r} holds a control character, which no sbatch option can",
            hint="remove the newline or tab",
        )
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def path_pattern(path: str) -> str:
    r"""Escape a path for --output of sbatch and srun, where `%` begins a replacement symbol.

    A backslash there turns the replacing off and is dropped itself, so it raises `RvError(STAGE)`.
    """
    if "\\" in path:
        raise RvError(
            Kind.STAGE,
            f"Slurm writes no output below {path!r}: it drops backslashes from paths",
            hint="set RV_RACE_ROOT to a directory without one",
        )
    return path.replace("%", "%%")


def comment(text: str) -> str:
    """Reduce text to what is harmless in a job's comment, which other tools print unquoted."""
    return _NOT_PLAIN.sub("_", text)[:200]
