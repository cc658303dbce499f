"""A snapshot as JSON: saved on one machine, planned with on another, read back the same.

The fields are those of `rv.models.snapshot`: times are ISO 8601 on Slurm's clock, durations are
seconds, memory is MiB. A file written by a newer rv may hold more; what is missing has its default.
"""

import dataclasses
import json
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from rv.errors import Kind, RvError
from rv.models.snapshot import Snapshot

FORMAT: Final = "rv.snapshot/1"
Value = TypeVar("Value")


def write_snapshot(snapshot: Snapshot) -> str:
    """Write a snapshot as one JSON object; equal snapshots give equal text."""
    fields = {"format": FORMAT, **_plain(snapshot)}
    return json.dumps(fields, indent=1, ensure_ascii=True) + "\n"


def read_snapshot(text: str, name: str) -> Snapshot:
    """Read a snapshot back; `name` is its file's. Raises `RvError(CONFIG)` for what is none."""
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise _NotASnapshotError(f"it does not say {FORMAT}")
        return _build(Snapshot, fields)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise RvError(
            Kind.CONFIG,
            f"{name} is no snapshot: {error}",
            hint="rv snapshot > cluster.json writes one",
        ) from error


class _NotASnapshotError(ValueError):
    pass


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        every = ((f.name, getattr(value, f.name), f.default) for f in dataclasses.fields(value))
        return {name: _plain(inner) for name, inner, default in every if inner != default}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _build(kind: type[Value], fields: Mapping[str, Any]) -> Value:
    hints = _hints(kind)
    known = {name: _read(hints[name], value) for name, value in fields.items() if name in hints}
    return kind(**known)


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
        raise _NotASnapshotError(f"a list was expected, not {value!r:.40}")
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(_read(hint, item) for hint, item in zip(arguments, value, strict=True))
    return origin(_read(arguments[0], item) for item in value)


def _read_one(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, dict):
            raise _NotASnapshotError(f"an object was expected, not {value!r:.40}")
        return _build(hint, value)
    if hint is datetime:
        return datetime.fromisoformat(value)
    if hint is timedelta:
        return timedelta(seconds=value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise _NotASnapshotError(f"{value!r:.40} is not of type {hint.__name__}")
    return value
