"""Durations and memory as people and Slurm write them."""

import math
import re
from datetime import timedelta
from typing import Final

from rv.errors import ErrorKind, RvError

_UNITS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_UNIT_FORM: Final = re.compile(r"(?:\d+(?:\.\d+)?[dhms])+", re.ASCII)
_UNIT_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([dhms])", re.ASCII)
_SLURM_FORM: Final = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_MEMORY_FORM: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_MIB_PER: Final = {"": 1.0, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}
_MOST_MIB: Final = 1 << 40
_LONGEST: Final = timedelta(days=3650)


def parse_duration(text: str) -> timedelta:
    """Read `90m`, `2h`, `1d12h`, `45s`, and Slurm's `30`, `30:00`, `2:59:00`, `1-12`, `1-12:30`.

    As in Slurm a bare number is minutes and `a:b` is minutes and seconds.
    Raises `RvError(USAGE)` for anything else, for zero, and for more than ten years.
    """
    word = text.strip().lower()
    seconds = _unit_seconds(word) if _UNIT_FORM.fullmatch(word) else _slurm_seconds(word)
    duration = timedelta(seconds=min(seconds or 0, _LONGEST.total_seconds() + 1))
    if not timedelta(0) < duration <= _LONGEST:
        raise RvError(
            ErrorKind.USAGE,
            f"{_start(text)!r} is not a duration",
            hint="write 90m, 2h, 1d12h or 2:59:00",
        )
    return duration


def _start(text: str) -> str:
    """Cut what may be a page of text to what fits into one line of error."""
    return text if len(text) <= 40 else text[:40] + "…"


def _unit_seconds(word: str) -> float:
    return sum(float(number) * _UNITS[unit] for number, unit in _UNIT_PART.findall(word))


def _slurm_seconds(word: str) -> float | None:
    """Read Slurm's forms, as floats: `int()` raises on thousands of digits."""
    match = _SLURM_FORM.fullmatch(word)
    if match is None:
        return None
    days, *fields = match.groups()
    numbers = [float(field) for field in fields if field is not None]
    if days is not None:  # D-H[:M[:S]]
        hours, minutes, seconds = [*numbers, 0.0, 0.0][:3]
        return float(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    if len(numbers) == 1:
        return numbers[0] * 60
    hours, minutes, seconds = [0.0, *numbers][-3:]
    return hours * 3600 + minutes * 60 + seconds


def parse_memory_mib(text: str) -> int:
    """Read `32G`, `500M`, `1.5T`, `64GiB`, or Slurm's bare MiB; powers of 1024, rounded up.

    Raises `RvError(USAGE)` for anything else and for zero.
    """
    match = _MEMORY_FORM.fullmatch(text.strip())
    amount = float(match[1]) * _MIB_PER[match[2].lower()] if match else 0
    if not 0 < amount <= _MOST_MIB:
        raise RvError(
            ErrorKind.USAGE,
            f"{_start(text)!r} is not an amount of memory",
            hint="write 32G or 500M",
        )
    return math.ceil(amount)


def parse_sized_memory_mib(text: str) -> int:
    """Read an amount of memory that a person typed, which must have its unit.

    80 is 80 MiB to Slurm and 80 GiB to most people. Raises `RvError(USAGE)`.
    """
    amount = text.strip()
    if amount.isascii() and amount.replace(".", "", 1).isdigit():
        raise RvError(
            ErrorKind.USAGE,
            f"{_start(amount)} has no unit: gigabytes or megabytes?",
            hint=f"write {_start(amount)}G or {_start(amount)}M",
        )
    return parse_memory_mib(text)


def slurm_time(duration: timedelta) -> str:
    """Write a walltime as Slurm takes it, `D-HH:MM:SS`, rounded up to its whole minutes."""
    minutes = math.ceil(duration.total_seconds() / 60)
    days, rest = divmod(minutes, 1440)
    clock = f"{rest // 60:02d}:{rest % 60:02d}:00"
    return f"{days}-{clock}" if days else clock


def short_duration(duration: timedelta) -> str:
    """Write a duration for people, its two largest units: `2h59m`, `3d`, `45s`."""
    left = round(duration.total_seconds())
    parts = []
    for unit, size in _UNITS.items():
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def short_memory(mib: int) -> str:
    """Write memory for people: `32G`, `1.5T`, `500M`."""
    amount, unit = float(mib), "M"
    for larger in "GT":
        if float(f"{amount:.4g}") >= 1024:
            amount, unit = amount / 1024, larger
    return f"{amount:.4g}{unit}" if amount < 9999.5 else f"{amount:.0f}{unit}"
