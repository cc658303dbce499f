"""Frozen values as plain JSON ones and back, by the types that their fields are declared with.

Times are ISO 8601, durations are seconds, sets are sorted lists. A field that holds its default is
left out; one that is not known is passed over, so that older programs read newer files.
"""

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

Value = TypeVar("Value")

_LARGEST: Final = 10**15
_LONGEST: Final = timedelta(days=1_000_000)
_YEARS: Final = range(1970, 3000)


def plain(value: Any) -> Any:
    """Turn a value of the models into what JSON can hold."""
    defaults = _defaults(type(value))
    if defaults is not None:
        inner = {name: getattr(value, name) for name in defaults}
        return {name: plain(each) for name, each in inner.items() if each != defaults[name]}
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(value)
    return value


def _fields_with_defaults(kind: Any) -> Mapping[str, Any] | None:
    """Return the fields of a data class or named tuple with their defaults; None of other types."""
    if dataclasses.is_dataclass(kind):
        return {field.name: field.default for field in dataclasses.fields(kind)}
    if hasattr(kind, "_field_defaults"):
        return {name: kind._field_defaults.get(name, dataclasses.MISSING) for name in kind._fields}
    return None


_defaults: Final[Callable[[Any], Mapping[str, Any] | None]] = cache(_fields_with_defaults)


_WRITERS: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (datetime, datetime.isoformat),
    (timedelta, timedelta.total_seconds),
    (frozenset, sorted),
    (tuple, lambda items: [plain(item) for item in items]),
)


def build(kind: type[Value], fields: Mapping[str, Any]) -> Value:
    """Make a value of a frozen class from what `plain` made of one.

    Raises `ValueError` or `TypeError` for fields that are missing, of another type, or so large
    that no sum of two would be a number, a time or a duration.
    """
    hints = _hints(kind)
    values = {name: _read(hints[name], value) for name, value in fields.items() if name in hints}
    return kind(**values)


_hints: Final[Callable[[Any], dict[str, Any]]] = cache(get_type_hints)


def _read(hint: Any, value: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        (inner,) = [argument for argument in get_args(hint) if argument is not types.NoneType]
        return None if value is None else _read(inner, value)
    if origin in (tuple, frozenset):
        return _read_many(origin, get_args(hint), value)
    return _read_one(hint, value)


def _read_many(origin: type, arguments: tuple[Any, ...], value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"a list was expected, not {value!r:.40}")
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(_read(hint, item) for hint, item in zip(arguments, value, strict=True))
    return origin(_read(arguments[0], item) for item in value)


def _read_one(hint: Any, value: Any) -> Any:
    if hint in _READERS:
        return _READERS[hint](value)
    if _defaults(hint) is not None:
        if not isinstance(value, dict):
            raise ValueError(f"an object was expected, not {value!r:.40}")
        return build(hint, value)
    if issubclass(hint, StrEnum):
        return hint(value)
    return _typed(hint, value)


def _typed(hint: type, value: Any) -> Any:
    """Give a value that has the type; true and false are no numbers."""
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{value!r:.40} is not of type {hint.__name__}")
    return value


def _whole(value: Any) -> int:
    return int(_bounded(_typed(int, value)))


def _number(value: Any) -> float:
    return float(_bounded(_typed(int, value) if isinstance(value, int) else _typed(float, value)))


def _bounded(value: float) -> float:
    if not -_LARGEST <= value <= _LARGEST:
        raise ValueError(f"{value!r:.40} is too large")
    return value


def _moment(value: str) -> datetime:
    """Read a time on Slurm's clock, which has no zone."""
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is not None or moment.year not in _YEARS:
        raise ValueError(f"{value!r:.40} is no time on Slurm's clock")
    return moment


def _span(value: float) -> timedelta:
    span = timedelta(seconds=_number(value))
    if not timedelta(0) <= span <= _LONGEST:
        raise ValueError(f"{value!r:.40} is no duration")
    return span


_READERS: Final[dict[Any, Callable[[Any], Any]]] = {
    datetime: _moment,
    timedelta: _span,
    int: _whole,
    float: _number,
}
