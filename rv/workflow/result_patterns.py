"""Which paths the patterns of results can name. Pure.

The login node expands the patterns (bash, with globstar and dotglob), and its answer is not
believed: a path that no pattern can name is not written here. Of a bracket expression only the
length counts, since what is in it depends on the login node's locale.
"""

import os
import re
from collections.abc import Sequence
from typing import Final

_GIT: Final = b".git"
_PIECE: Final = re.compile(
    r"\\(?P<escaped>.)|(?P<any>\*+)|\?|\[[!^]?\]?(?:\[:\w+:\]|[^]])*\]|(?P<plain>.)", re.DOTALL
)


def is_safe(path: bytes) -> bool:
    """Whether a path stays below its folder, and git would not take it for its own files."""
    names = path.split(b"/")
    return not {b"", b".", b".."} & set(names) and _GIT not in map(bytes.lower, names)


def asked_for(patterns: Sequence[str]) -> re.Pattern[bytes]:
    """Return an expression of all paths that a pattern can name, and of those below them."""
    ways = [way for pattern in patterns for way in (_literal(pattern), _expanded(pattern))]
    return re.compile(b"(?:%b)(?:/.*)?" % b"|".join(ways), re.DOTALL)


def _names(pattern: str) -> list[str]:
    return [name for name in pattern.split("/") if name not in ("", ".")]


def _literal(pattern: str) -> bytes:
    """Match the pattern as a name: one may look like a pattern."""
    return b"/".join(re.escape(os.fsencode(name)) for name in _names(pattern)) or b".+"


def _expanded(pattern: str) -> bytes:
    names = _names(pattern)
    if not names:
        return b".+"
    *folders, last = names
    above = [b"(?:[^/]+/)*" if name == "**" else _name(name) + b"/" for name in folders]
    return b"".join(above) + (b".+" if last == "**" else _name(last))


def _name(name: str) -> bytes:
    return b"".join(map(_piece, _PIECE.finditer(name)))


def _piece(match: "re.Match[str]") -> bytes:
    if match["any"]:
        return b"[^/]*"
    said = match["escaped"] or match["plain"]
    return re.escape(os.fsencode(said)) if said else b"[^/]+"
