"""What was fetched into a folder: how each file looked on the cluster, and how it looks here."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from rv.files import write_atomically

Look: TypeAlias = tuple[int, int]
"""Bytes and time of change (ns) of a file."""

CHANGING: Final[Look] = (-1, 0)
"""For a file that changed while it was fetched: none is listed like that, so it is not current."""

_SECOND: Final = 1_000_000_000


class Known(NamedTuple):
    """A file that was fetched: how it was listed on the cluster, and how it looked here then."""

    there: Look
    here: Look


def look_at(folder: Path, path: bytes) -> Look | None:
    """Return how a file below a folder looks, None where there is none."""
    try:
        status = os.lstat(os.fsencode(folder) + b"/" + path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def is_current(there: Look, here: Look | None, known: Known | None) -> bool:
    """Whether what is here is what the cluster has; times travel with the code in whole seconds."""
    if here is None:
        return False
    if known and known.here == here:
        return known.there == there
    is_of_the_code = there[1] % _SECOND == 0
    return there == (here[0], here[1] // _SECOND * _SECOND if is_of_the_code else here[1])


def is_unchanged(here: Look | None, known: Known | None) -> bool:
    """Whether a file may be replaced: there is none, or it is as it was when it was fetched."""
    return here is None or (known is not None and known.here == here)


def parse_memory(data: bytes) -> dict[bytes, Known]:
    """Read what was fetched, up to what cannot be read."""
    known = {}
    with suppress(ValueError):
        for line in data.split(b"\0")[:-1]:
            *numbers, path = line.split(b" ", 4)
            there_size, there_ns, here_size, here_ns = map(int, numbers)
            known[path] = Known((there_size, there_ns), (here_size, here_ns))
    return known


def remembered(memory: Path) -> dict[bytes, Known]:
    """Return what was fetched; nothing where that is not known."""
    with suppress(OSError):
        return parse_memory(memory.read_bytes())
    return {}


def write_memory(memory: Path, known: Mapping[bytes, Known]) -> None:
    """Write what was fetched; without it, what is fetched is compared by size and time alone."""
    lines = (b"%d %d %d %d %b\0" % (*one.there, *one.here, path) for path, one in known.items())
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(memory, b"".join(lines), mode=0o600)
