"""The nearest known word to one that somebody mistyped."""

from collections.abc import Iterable
from typing import Final

_SIMILARITY: Final = 0.4


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word most like `word`, or "" where none is."""
    import difflib  # only for a slip

    names = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word.lower(), names, n=1, cutoff=_SIMILARITY)
    return names[matches[0]] if matches else ""


def suggestion(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the hint that asks whether the nearest known word was meant, else another hint."""
    near = nearest(word, known)
    return f"did you mean {near}?" if near else otherwise
