"""Text that came from a cluster or a user, made safe to show on a terminal."""

import re
from typing import Final

_ESCAPES: Final = (
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC: titles, clipboard
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)


def printable(text: str) -> str:
    """Return `text` on one line without terminal escapes, control characters or bidi overrides."""
    if text.isprintable():
        return text
    return "".join(_visible(char) for char in re.sub(_ESCAPES, "", text))


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    return " " if char.isspace() else ""


def last_line(text: str) -> str:
    """Return the last line with something on it, made printable; "" where there is none."""
    lines = (printable(line).strip() for line in reversed(text.split("\n")))
    return next((line for line in lines if line), "")
