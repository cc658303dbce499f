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
        return tuple(islice((name for name in text.split(",") if name), LIMIT))
    return tuple(islice(_all_names(text), LIMIT))


def _all_names(text: str) -> Iterator[str]:
    left = LIMIT
    for piece in _PIECE.finditer(text):
        if left <= 0:
            return
        pools = _pools(piece[0], left)
        left -= sum(map(len, pools))
        yield from map("".join, product(*pools))


def _pools(piece: str, most: int) -> list[list[str]]:
    """Return the choices at each part of a piece; all pools together hold about `most` strings."""
    pools: list[list[str]] = []
    for part in _PART.finditer(piece):
        inside = part[1]
        pool = [part[0]] if inside is None else list(islice(_choices(inside), max(1, most)))
        most -= len(pool)
        pools.append(pool)
    return pools


def _choices(inside: str) -> Iterator[str]:
    for entry in inside.split(","):
        match = _RANGE.fullmatch(entry)
        if match is None:
            yield entry
            continue
        width = len(match[1])
        for value in range(int(match[1]), int(match[2] or match[1]) + 1):
            yield str(value).zfill(width)
