"""Fields of untrusted JSON: each reader gives a value of its type, or what stands for absent."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from rv.slurm.printable import printable

MAX_ITEMS: Final = 20_000
"""Items of one list or object that are read; what is beyond is passed over."""
MAX_TEXT: Final = 4_000
"""Characters of one text that are kept."""
MAX_DEPTH: Final = 12
"""Levels of nested details that are kept."""

EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


def object_of(value: Any) -> Mapping[str, Any]:
    """Give an object as it is; anything else is an empty one."""
    return value if isinstance(value, Mapping) else EMPTY


def list_of(value: Any) -> Sequence[Any]:
    """Give a list, bounded; anything else is an empty one."""
    return value[:MAX_ITEMS] if isinstance(value, list) else ()


def text_of(value: Any) -> str:
    """Give a text or a number as bounded printable text; anything else is ""."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    try:
        return printable(str(value)[:MAX_TEXT])
    except ValueError:  # an integer of more digits than Python writes
        return ""


def number_of(value: Any) -> float | None:
    """Give a finite number; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def whole_of(value: Any) -> int | None:
    """Give a whole number, also where it is written as text, as in Slurm's variables."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19:
        return int(value)
    number = number_of(value)
    return int(number) if number is not None and number == int(number) else None


def time_of(value: Any) -> datetime | None:
    """Give an RFC 3339 time in UTC; one without a zone is taken for UTC."""
    try:
        time = datetime.fromisoformat(value)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def plain_of(value: Any, depth: int = 0) -> Any:
    """Copy plain JSON: texts printable, numbers finite, lists and nesting bounded."""
    if isinstance(value, Mapping | list) and depth >= MAX_DEPTH:
        return type(value)()
    if isinstance(value, Mapping):
        items = list(value.items())[:MAX_ITEMS]
        return {text_of(key): plain_of(inner, depth + 1) for key, inner in items}
    if isinstance(value, list):
        return [plain_of(item, depth + 1) for item in list_of(value)]
    if isinstance(value, float):
        return number_of(value)
    return text_of(value) if isinstance(value, str) else value
