"""What fio prints with `--output-format=json`, of one job. Pure."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

MOST_CHARACTERS = 1 << 20  # one job takes some thousand
KIB = 1024


class Rate(NamedTuple):
    """What one direction did: bytes in all, bytes a second, operations a second."""

    nbytes: int
    bytes_a_second: float
    operations_a_second: float


class Job(NamedTuple):
    """One job: the first error (an errno, 84 where bytes came back changed), and its rates."""

    version: str
    error: int
    read: Rate
    write: Rate


def parse_fio(text: str) -> Job:
    """Read the only job; what stands before the JSON is fio's notes. Raises ValueError."""
    start = text.find("{")
    if start < 0 or len(text) > MOST_CHARACTERS:
        raise ValueError("fio printed no JSON")
    try:
        document, _ = json.JSONDecoder().raw_decode(text, start)
        [job] = document["jobs"]
        rates = (_rate(job[way]) for way in ("read", "write"))
        version = str(document.get("fio version", ""))[:40]
        return Job(version, _whole(job["error"]), *rates)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"fio's JSON lacks what it should have: {error}"[:200]) from error


def _rate(way: dict[str, Any]) -> Rate:
    """Read one direction; before fio 3 bytes and their rate were told in KiB alone."""
    is_old = "bw_bytes" not in way
    rate = _figure(way["bw"]) * KIB if is_old else _figure(way["bw_bytes"])
    nbytes = _whole(way["io_bytes"]) * (KIB if is_old else 1)
    return Rate(nbytes, rate, _figure(way["iops"]))


def _whole(value: Any) -> int:
    return int(_figure(value))


def _figure(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"fio's JSON has no figure but {str(value)[:40]!r}")
    number = float(value) if abs(value) < 10**18 else math.inf
    if not 0 <= number < math.inf:
        raise ValueError(f"fio's JSON has the figure {number}")
    return number
