"""Slurm's bracketed lists of names: `a[01-03,7],b-x1,c[1-2]-ib[0-1]`."""

import re
from collections.abc import Iterator
from itertools import islice, product
from typing import Final

LIMIT: Final = 100_000
"""Most names one list expands to; a larger one gives its first ones."""

_MOST_NAMES: Final = 1_000_000
_MOST_CHARACTERS: Final = 8_000_000
_SHORT: Final = _MOST_CHARACTERS // LIMIT
"""Names of so many characters stay below the most, however many of them a list has."""

_PIECE: Final = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\]|[\[\]])+")
_PART: Final = re.compile(r"\[([^\[\]]*)\]|[^\[\]]+|[\[\]]")
_ONE_RANGE: Final = re.compile(r"([^,\[\]]*)\[(\d{1,15})-(\d{1,15})\]", re.ASCII)
_RANGE: Final = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?", re.ASCII)
_MOST_PARTS: Final = 64
_NULLS: Final = frozenset({"", "(null)", "N/A", "n/a", "None", "None assigned", "Unknown"})


def expand(text: str, most: int = LIMIT) -> tuple[str, ...]:
    """Return the names of a list in its order, at most `most`; text that is no list is a name."""
    if text in _NULLS:
        return ()
    if "[" not in text:
        return tuple(name for name in text.split(",") if name)[:most]
    # Most lists are one range: it is written out in one go, after the same limits.
    match = _ONE_RANGE.fullmatch(text)
    prefix, first, last = match.groups() if match else ("", "", "")
    if match and len(prefix) + max(len(first), len(last)) <= _SHORT:
        numbers = range(int(first), int(last) + 1)[: min(most, _MOST_CHARACTERS // _SHORT)]
        width = len(first)
        return tuple([f"{prefix}{number:0{width}}" for number in numbers])
    return tuple(_limit_characters(islice(_all_names(text, most), most)))


class Expander:
    """Expands the lists of one answer, whose names are at most a million in all.

    No cluster's answer has more, but a damaged one may.
    """

    def __init__(self) -> None:
        self._remaining = _MOST_NAMES
        self._known: dict[str, tuple[str, ...]] = {}

    def expand(self, text: str) -> tuple[str, ...]:
        """Return the names of a list, as many as are left. Equal lists share one tuple."""
        if text in _NULLS:
            return ()
        names = self._known.get(text)
        if names is None:
            names = self._known[text] = expand(text, min(LIMIT, self._remaining))
        if len(names) > self._remaining:
            names = names[: self._remaining]
        self._remaining -= len(names)
        return names


def _limit_characters(names: Iterator[str]) -> Iterator[str]:
    """Stop where the names come to more text than the largest cluster has."""
    left = _MOST_CHARACTERS
    for name in names:
        left -= len(name)
        if left < 0:
            return
        yield name


def _all_names(text: str, most: int) -> Iterator[str]:
    for piece in _PIECE.finditer(text):
        parts = list(_PART.finditer(piece[0]))
        if len(parts) > _MOST_PARTS:
            yield piece[0]  # not a list that Slurm writes
        elif all(map(_has_choice, parts)):
            yield from map("".join, product(*_choices_by_part(parts, most)))


def _has_choice(part: re.Match[str]) -> bool:
    """Whether a part has any name; a range that runs backwards has none."""
    return part[1] is None or next(_choices(part[1]), None) is not None


def _choices_by_part(parts: list[re.Match[str]], most: int) -> list[list[str]]:
    """Return the choices at each part of a piece, only as many as the first `most` names need."""
    by_part: list[list[str]] = []
    for part in reversed(parts):
        choices = iter([part[0]]) if part[1] is None else _choices(part[1])
        names = list(islice(choices, most))
        most = -(-most // max(1, len(names)))
        by_part.append(names)
    return by_part[::-1]


def _choices(inside: str) -> Iterator[str]:
    for entry in inside.split(","):
        match = _RANGE.fullmatch(entry)
        if match is None:
            yield entry
            continue
        width = len(match[1])
        for value in range(int(match[1]), int(match[2] or match[1]) + 1):
            yield str(value).zfill(width)
