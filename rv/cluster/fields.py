"""One-line records of `scontrol -o`: `Key=value Key=value …`, where values may hold spaces."""

import re
from collections.abc import Iterator
from typing import Final

_KEY: Final = re.compile(r"(?:^|\s)([A-Za-z][\w:/]*)=", re.ASCII)


def fields(line: str) -> dict[str, str]:
    """Split a record at its keys. The first of two equal keys wins: free text comes last."""
    found: dict[str, str] = {}
    keys = list(_KEY.finditer(line))
    ends = [*(key.start() for key in keys[1:]), len(line)]
    for key, end in zip(keys, ends, strict=False):
        found.setdefault(key[1], line[key.end() : end].strip())
    return found


def records(text: str, first_key: str) -> Iterator[str]:
    """Return the lines that begin with `first_key=`; anything else is a message, not a record."""
    start = f"{first_key}="
    return (line for line in text.split("\n") if line.startswith(start))
