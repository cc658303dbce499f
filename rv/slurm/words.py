"""The small values in Slurm's text: numbers, durations, memory, times, lists. Nothing raises."""

import re
from datetime import datetime, timedelta
from typing import Final

_NUMBER: Final = re.compile(r"\d{1,15}", re.ASCII)
_DECIMAL: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
_DURATION: Final = re.compile(r"(?:(\d{1,6})-)?(\d{1,9}(?::\d{1,9}){0,2})(?:\.\d+)?", re.ASCII)
_SECONDS: Final = re.compile(r"(\d{1,9}) (sec|min|hour)\w*", re.ASCII)
_AMOUNT: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)[Bcn]?", re.ASCII | re.IGNORECASE)
_MIB_PER: Final = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_UNIT_SECONDS: Final = {"sec": 1, "min": 60, "hour": 3600}
_YEARS: Final = range(1970, 3000)  # beyond them a sum of a time and a duration is none
_LONGEST: Final = timedelta(days=1_000_000)
_NOTHING: Final = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "none"})


def number(text: str) -> int | None:
    """Read a whole number; None for `UNLIMITED`, `N/A`, "" and whatever else is there."""
    word = text.strip()
    return int(word) if _NUMBER.fullmatch(word) else None


def decimal(text: str, *, default: float) -> float:
    """Read `1.000000`; the default for whatever is no such number."""
    return float(text) if _DECIMAL.fullmatch(text.strip()) else default


def time(text: str) -> datetime | None:
    """Read `2026-11-21T04:19:35`; None for `N/A`, `Unknown`, `None` and the like."""
    word = text.strip()
    try:
        moment = datetime.fromisoformat(word) if _TIME.fullmatch(word) else None
    except ValueError:
        return None
    return moment if moment and moment.year in _YEARS else None


def duration(text: str) -> timedelta | None:
    """Read `1-02:03:04`, `2:00:00`, `05:00`, `20` (minutes); None for `UNLIMITED` and the like."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    parts = [int(part) for part in match[2].split(":")]
    if match[1] is not None:  # D-H[:M[:S]]
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 1:
        hours, minutes, seconds = 0, parts[0], 0
    else:
        hours, minutes, seconds = (0, *parts)[-3:]
    span = timedelta(int(match[1] or 0), seconds, minutes=minutes, hours=hours)
    return min(span, _LONGEST)


def configured_seconds(text: str) -> timedelta | None:
    """Read a duration as `scontrol show config` prints it, `120 sec`."""
    match = _SECONDS.match(text.strip())
    return timedelta(seconds=int(match[1]) * _UNIT_SECONDS[match[2]]) if match else None


def memory_mib(text: str) -> int | None:
    """Read `8G`, `8192M`, `8000` (MiB), `15.6Gn` as MiB; None for `UNLIMITED` and the like."""
    match = _AMOUNT.fullmatch(text.strip())
    return round(float(match[1]) * _MIB_PER[match[2].upper()]) if match else None


def word(text: str) -> str:
    """Return a value, "" where Slurm prints one of its words for nothing."""
    stripped = text.strip()
    return "" if stripped in _NOTHING else stripped


def words(text: str) -> tuple[str, ...]:
    """Split a comma list; empty where Slurm prints one of its words for nothing."""
    return tuple(part for part in word(text).split(",") if part)


def allowed(text: str) -> frozenset[str]:
    """Read an allow list; `ALL` is the empty set, which means everybody."""
    listed = frozenset(words(text))
    return frozenset() if "ALL" in listed else listed
