"""One-line records of `scontrol -o`: `Key=value Key=value …`, where values may hold spaces."""

import re
from collections.abc import Iterator
from typing import Final

_KEY: Final = re.compile(r"\s([A-Za-z][\w:/]*+)=", re.ASCII)


def fields(line: str) -> dict[str, str]:
    """Split a record at its keys. The first of two equal keys wins: free text comes last."""
    _, *parts = _KEY.split(f" {line}")
    # Backwards, so that the first of two equal keys is the last one written.
    return dict(zip(parts[-2::-2], map(str.strip, parts[::-2]), strict=True))


def records(text: str, first_key: str) -> Iterator[str]:
    """Return the lines that begin with `first_key=`; anything else is a message, not a record."""
    start = f"{first_key}="
    return (line for line in text.split("\n") if line.startswith(start))
