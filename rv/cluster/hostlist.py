"""Slurm's bracketed lists of names: `a[01-03,7],b-x1,c[1-2]-ib[0-1]`."""

import re
from collections.abc import Iterator
from itertools import islice, product
from typing import Final

LIMIT: Final = 100_000
"""Most names one list expands to; a larger one gives its first ones."""

_PIECE: Final = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\]|[\[\]])+")
_PART: Final = re.compile(r"\[([^\[\]]*)\]|[^\[\]]+|[\[\]]")
_RANGE: Final = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?", re.ASCII)
_NOTHING: Final = frozenset({"", "(null)", "N/A", "n/a", "None", "None assigned", "Unknown"})


def expand(text: str) -> tuple[str, ...]:
    """Return the names of a list in its order, at most `LIMIT`; text that is no list is a name."""
    if text in _NOTHING:
        return ()
    if "[" not in text:
        return tuple(name for name in text.split(",") if name)[:LIMIT]
    return tuple(islice(_all_names(text), LIMIT))


def _all_names(text: str) -> Iterator[str]:
    for piece in _PIECE.finditer(text):
        yield from map("".join, product(*_pools(piece[0])))


def _pools(piece: str) -> list[list[str]]:
    """Return the choices at each part of a piece, only as many as the first `LIMIT` names need."""
    pools: list[list[str]] = []
    most = LIMIT
    for part in reversed(list(_PART.finditer(piece))):
        choices = iter([part[0]]) if part[1] is None else _choices(part[1])
        pool = list(islice(choices, most))
        most = -(-most // max(1, len(pool)))
        pools.append(pool)
    return pools[::-1]


def _choices(inside: str) -> Iterator[str]:
    for entry in inside.split(","):
        match = _RANGE.fullmatch(entry)
        if match is None:
            yield entry
            continue
        width = len(match[1])
        for value in range(int(match[1]), int(match[2] or match[1]) + 1):
            yield str(value).zfill(width)
