"""Values in Slurm's output: numbers, times, durations, memory, lists, TRES.

Nothing here raises: a value that cannot be read is None, empty or its default.
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar

Value = TypeVar("Value")

_NUMBER: Final = re.compile(r"\d{1,15}", re.ASCII)
_DECIMAL: Final = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
_DURATION: Final = re.compile(r"(?:(\d{1,6})-)?(\d{1,9}(?::\d{1,9}){0,2})(?:\.\d+)?", re.ASCII)
_SECONDS: Final = re.compile(r"(\d{1,9}) (sec|min|hour)\w*", re.ASCII)
_AMOUNT: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)[Bcn]?", re.ASCII | re.IGNORECASE)
_MIB_PER: Final = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_GPU_REQUEST: Final = re.compile(
    r"(?:gres[:/])?gpu(?::(?P<type>[^:=,()]*[A-Za-z_][^:=,()]*))?(?:[:=](?P<count>\d{1,9}))?",
    re.ASCII,
)
_WEIGHT: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)", re.ASCII)
_UNIT_SECONDS: Final = {"sec": 1, "min": 60, "hour": 3600}
_YEARS: Final = range(1970, 3000)  # beyond them a sum of a time and a duration is none
_LONGEST: Final = timedelta(days=1_000_000)
_NULLS: Final = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "none"})


class Known(dict[str, Value]):
    """Reads each text of one answer once: of most columns there are far fewer texts than rows."""

    def __init__(self, read: Callable[[str], Value]) -> None:
        self._read = read

    def __missing__(self, text: str) -> Value:
        value = self[text] = self._read(text)
        return value


def number(text: str) -> int | None:
    """Read a whole number; None for `UNLIMITED`, `N/A`, "" and whatever else is there."""
    word = text.strip()
    return int(word) if _NUMBER.fullmatch(word) else None


def count(text: str) -> int:
    """Read a whole number; 0 for whatever is none."""
    return number(text) or 0


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


def config_seconds(text: str) -> timedelta | None:
    """Read a duration as `scontrol show config` prints it, `120 sec`."""
    match = _SECONDS.match(text.strip())
    return timedelta(seconds=int(match[1]) * _UNIT_SECONDS[match[2]]) if match else None


def memory_mib(text: str) -> int | None:
    """Read `8G`, `8192M`, `8000` (MiB), `15.6Gn` as MiB; None for `UNLIMITED` and the like."""
    match = _AMOUNT.fullmatch(text.strip())
    return round(float(match[1]) * _MIB_PER[match[2].upper()]) if match else None


def non_null(text: str) -> str:
    """Return a value, "" where Slurm prints `(null)`, `N/A`, `None` or the like."""
    stripped = text.strip()
    return "" if stripped in _NULLS else stripped


def comma_list(text: str) -> tuple[str, ...]:
    """Split a comma list; empty where Slurm prints `(null)`, `N/A`, `None` or the like."""
    return tuple(part for part in non_null(text).split(",") if part)


def allow_list(text: str) -> frozenset[str]:
    """Read an allow list; `ALL` is the empty set, which means everybody."""
    names = frozenset(comma_list(text))
    return frozenset() if "ALL" in names else names


def parse_tres(text: str) -> tuple[tuple[str, int], ...]:
    """Read TRES amounts by lower-case name; memory in MiB. What has no amount is left out."""
    pairs = []
    for item in comma_list(text):
        name, _, amount = item.partition("=")
        key = name.strip().lower()
        value = memory_mib(amount) if key == "mem" else number(amount)
        if key and value is not None:
            pairs.append((key, value))
    return tuple(pairs)


def parse_billing_weights(text: str) -> tuple[tuple[str, float], ...]:
    """Read TRESBillingWeights, lower-case names; memory per MiB (`Mem=0.25G` is 0.25 a GiB)."""
    pairs = []
    for item in comma_list(text):
        name, _, amount = item.partition("=")
        match = _WEIGHT.fullmatch(amount.strip())
        if name and match:
            unit_mib = _MIB_PER[match[2]] if name.lower() == "mem" else 1.0
            pairs.append((name.lower(), float(match[1]) / unit_mib))
    return tuple(pairs)


def gpus_in_tres(pairs: tuple[tuple[str, int], ...]) -> int:
    """Count the GPUs in parsed TRES: `gres/gpu`, or its typed parts where the sum is missing."""
    total = dict(pairs).get("gres/gpu")
    return total or sum(value for name, value in pairs if name.startswith("gres/gpu:"))


def parse_gpu_request(text: str) -> tuple[int, frozenset[str]]:
    """Read a GPU request (`gres:gpu:a100:2`, `gres/gpu:2`, `gpu`); return its count and types."""
    count = 0
    types: set[str] = set()
    for item in comma_list(text):
        match = _GPU_REQUEST.fullmatch(item)
        if match:
            count += int(match["count"] or 1)
            types.add(match["type"] or "")
    return count, frozenset(types - {""})
