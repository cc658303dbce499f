"""Fill an array with contents that are known for every place, and find what differs.

Contents are a table that is repeated, or a function (offset, length) that gives elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1 << 22
"""Elements asked for at a time: the memory that a check needs beside the array."""


class Repeated(NamedTuple):
    """The elements of a table, again and again: one kernel writes, or compares, all of them."""

    table: Any


Contents = Repeated | Callable[[int, int], Any]


class Mismatch(NamedTuple):
    """How many elements differ, the first's place, what it holds and what it must hold."""

    total: int
    first: int = -1
    held: Any = None
    wanted: Any = None


def fill(array: Any, contents: Contents) -> None:
    """Write the contents."""
    for _, part, wanted in _parts(array, contents):
        part.copy_(wanted)


def mismatches(torch: Any, array: Any, contents: Contents) -> Mismatch:
    """Compare every element; waits for the device once, and again only if something differs."""
    counts = [(part != wanted).sum() for _, part, wanted in _parts(array, contents)]
    total = int(torch.stack(counts).sum().item())
    if not total:
        return Mismatch(0)
    for offset, part, wanted in _parts(array, contents):
        bad = (part != wanted).flatten().nonzero()
        if len(bad):
            place = int(bad[0].item())
            held, right = part.flatten()[place], wanted[place % len(wanted)]
            return Mismatch(total, offset + place, held.item(), right.item())
    return Mismatch(total)


def _parts(array: Any, contents: Contents) -> Iterator[tuple[int, Any, Any]]:
    """Give stretches of the array as (offset, elements, what they must be)."""
    done = 0
    if isinstance(contents, Repeated):
        length = len(contents.table)
        done = len(array) // length * length
        if done:
            yield 0, array[:done].view(-1, length), contents.table
        if done < len(array):
            yield done, array[done:], contents.table[: len(array) - done]
        return
    while done < len(array):
        part = array[done : done + CHUNK]
        yield done, part, contents(done, len(part))
        done += len(part)
