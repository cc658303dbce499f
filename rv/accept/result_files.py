"""Read result files, which are untrusted text, into the values of `rv.accept.results`.

`parse` reads one result: the schema `rv.accept/1`, and the older formats of which it is a superset
(`rv.accept.legacy_formats`). `read_file` and `read_folder` do so from disk. Whatever the text is,
they give a `RunResult` or raise `ResultError`.
"""

import ast
import dataclasses
import errno
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rv.accept.legacy_formats import as_current
from rv.accept.measurements import SOUND
from rv.accept.result_checks import flaws, not_finite, with_flaws
from rv.accept.results import Device, Metric, ResultError, RunResult, Status, TestResult, worst
from rv.accept.untrusted import (
    EMPTY,
    MAX_ITEMS,
    list_of,
    number_of,
    object_of,
    plain_of,
    text_of,
    time_of,
    whole_of,
)
from rv.dataclass import dataclass
from rv.files import files_below, read_regular
from rv.payloads.contract.schema import SCHEMA
from rv.slurm.printable import printable

_ENDING: Final = "_result.json"
_RANKS: Final = "_result.ranks/"
_FAMILY: Final = f"{SCHEMA.rpartition('/')[0]}/"
_SLURM_FIELDS: Final = ("job_id", "nodelist", "restart_count")
MAX_BYTES: Final = 16 * 2**20
"""A larger file is refused."""
MAX_FOLDER_BYTES: Final = 256 * 2**20
"""What is read of one folder in all."""
_MAX_FOLDER_VALUES: Final = 2_000_000
"""Lists and objects of one folder in all: each takes a hundred bytes, and one on the disk."""
_MAX_PYTHON: Final = 2**16
"""Characters that are read as Python's values: a bracket takes some hundred bytes there."""


def parse(text: str | bytes, source: str = "result") -> RunResult:
    """Read one result; `source` names it in errors. Raises `ResultError`."""
    document = _load(text, source)
    if document.get("schema") == SCHEMA:
        result = _run(document, source, is_legacy=False)
        return with_flaws(result, [*flaws(document), *_unexplained(result)])
    is_newer = text_of(document.get("schema")).startswith(_FAMILY)
    older = None if is_newer else as_current(document, source.rpartition("/")[2])
    if older is None:
        raise ResultError(printable(f"{source}: not a result of {SCHEMA}, nor an older one"))
    wrong = not_finite(document, texts=False)
    return with_flaws(_run(older, source, is_legacy=True), [wrong] if wrong else [])


def _unexplained(result: RunResult) -> Iterator[str]:
    """Say that no test is as bad as the summary: what failed would be in no list of failures."""
    said = {test.status for test in result.tests}
    is_bad = result.status in (Status.FAIL, Status.ERROR)
    if said and is_bad and not said & {Status.FAIL, Status.ERROR}:
        yield f"its summary says {result.status}, its tests {worst(list(said))}"


def read_file(path: Path) -> RunResult:
    """Read one result file. Raises `ResultError`, also for a file that cannot be read."""
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise ResultError(printable(f"{path}: {error.strerror or error}")) from None
    return parse(data, str(path))


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """The files below a folder, by their paths there, sorted; and why others were not read.

    `lost` are those of `unread` that were to be results, or may hold some.
    """

    files: Mapping[str, bytes]
    unread: Mapping[str, str]
    lost: frozenset[str] = frozenset()


def read_tree(folder: Path, suffix: str = "") -> Tree:
    """Read the files below a folder, which may be another user's, as far as they are bounded."""
    files = dict[str, bytes]()
    paths, places = files_below(folder, MAX_ITEMS)
    unread = {str(place): printable(f"{place}: {why}") for place, why in places.items()}
    lost = set(unread)
    left, left_values = MAX_FOLDER_BYTES, _MAX_FOLDER_VALUES
    for path in paths:
        if path.name.startswith(".") or not path.name.endswith(suffix):
            continue
        name, data = str(path.relative_to(folder)), b""
        try:
            data = read_regular(path, min(left, MAX_BYTES))
            values = data.count(b"[") + data.count(b"{")
            if values > left_values:
                raise OSError(errno.EFBIG, "too many values")
        except OSError as error:
            unread[name] = printable(f"{path}: {error.strerror or error}")
            lost |= {name} if _is_result(name, data) else set()
            continue
        left, left_values = left - len(data), left_values - values
        files[name] = data
    return Tree(files=files, unread=unread, lost=frozenset(lost))


def read_folder(folder: Path) -> tuple[tuple[RunResult, ...], tuple[str, ...]]:
    """Read every `*.json` below a folder, sorted by path; give results, and why others are none.

    One beside them that was to be one, by its name or schema, and cannot be read is an ERROR, and
    so is a folder that cannot be read to its end.

    Where a folder has results of `rv.accept/1`, the legacy ones beside them are copies and are left
    out.
    """
    tree = read_tree(folder, ".json")
    results, broken = list[RunResult](), dict[str, str]()
    for name, data in tree.files.items():
        try:
            results.append(parse(data, str(folder / name)))
        except ResultError as error:
            broken[name] = str(error)
    faults = (*tree.unread.values(), *broken.values())
    kept = _without_copies(results)
    if not kept:
        return (), faults
    lost = {name: why for name, why in tree.unread.items() if name in tree.lost}
    lost |= {name: why for name, why in broken.items() if _is_result(name, tree.files[name])}
    return (*kept, *(_unreadable(*each) for each in lost.items())), faults


def _without_copies(results: Sequence[RunResult]) -> list[RunResult]:
    """Leave out the legacy results beside current ones."""
    current = {Path(result.source).parent for result in results if not result.is_legacy}
    return [r for r in results if not r.is_legacy or Path(r.source).parent not in current]


def _is_result(name: str, data: bytes) -> bool:
    """Whether a file was to be a result: by its name, or by the schema in what was read of it."""
    is_named = name.endswith(_ENDING) or _RANKS in name
    return is_named or _FAMILY.encode() in data


def _unreadable(name: str, reason: str) -> RunResult:
    payload = printable(name.rpartition("/")[2].removesuffix(_ENDING))
    test = TestResult(name=payload, status=Status.ERROR, code="result_unreadable", reason=reason)
    return RunResult(test_type=payload, status=Status.ERROR, tests=(test,), source=name)


def _load(text: str | bytes, source: str) -> Mapping[str, Any]:
    if len(text) > MAX_BYTES:
        raise ResultError(printable(f"{source}: {len(text):,} bytes are too many for a result"))
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        why = str(error).partition("\n")[0]
        raise ResultError(printable(f"{source}: truncated or invalid JSON: {why:.200}")) from None
    if not isinstance(document, dict):
        raise ResultError(printable(f"{source}: an object was expected"))
    return document


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs. Raises `ValueError` for a duplicate key."""
    values = dict(pairs)
    if len(values) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"duplicate key {twice}")
    return values


def _run(document: Mapping[str, Any], source: str, *, is_legacy: bool) -> RunResult:
    """Read a document in the words of `rv.accept/1`."""
    summary = object_of(document.get("summary"))
    tests = tuple(_test(object_of(item)) for item in list_of(document.get("tests")))
    devices = [object_of(item) for item in list_of(document.get("devices"))]
    ranks = [object_of(item) for item in list_of(document.get("ranks"))]
    values = _process(object_of(document.get("test_info"))) | {
        "status": _verdict(tests, _status(summary.get("status"))),
        "ranks": tuple(_rank(place, rank) for place, rank in enumerate(ranks)),
        "hosts": tuple(text_of(rank.get("host")) for rank in ranks),
        "tokens": tuple(text_of(rank.get("token")) for rank in ranks),
        "exit_code": whole_of(summary.get("exit_code")),
        "env": plain_of(object_of(document.get("env"))),
        "devices": tuple(_device(number, device) for number, device in enumerate(devices)),
        "tests": tests,
        "is_legacy": is_legacy,
        "source": printable(source),
    }
    return RunResult(**values)


def _process(info: Mapping[str, Any]) -> dict[str, Any]:
    """Read which process reported: of what payload, in which job, of how many ranks."""
    slurm, world = object_of(info.get("slurm")), object_of(info.get("world"))
    values = _values(RunResult, {**info, **{name: slurm.get(name) for name in _SLURM_FIELDS}})
    return values | {
        "test_type": values["test_type"] or "unknown",
        "world_size": _count(world.get("size")),
        "nnodes": _count(world.get("nnodes")),
        "backend": text_of(world.get("backend")),
    }


def _rank(place: int, entry: Mapping[str, Any]) -> int:
    """Read the number of a listed rank; its place in the list for one without (a flaw)."""
    number = whole_of(entry.get("rank"))
    return place if number is None else number


def _count(value: Any) -> int:
    """Read a number of ranks or nodes: one at least, and not so many that listing them hurts."""
    return max(1, min(whole_of(value) or 1, MAX_ITEMS))


def _verdict(tests: tuple[TestResult, ...], summary: Status | None) -> Status:
    """Combine tests and summary: it may be worse than they, and cannot pass without any."""
    statuses = [test.status for test in tests]
    if summary and (tests or summary not in (Status.PASS, Status.WARN)):
        statuses.append(summary)
    return worst(statuses)


def _test(test: Mapping[str, Any]) -> TestResult:
    values = _values(TestResult, test) | {
        "name": text_of(test.get("name")) or "unnamed",
        "status": _status(test.get("status")),
        "fault": text_of(test.get("class")),
        "details": _details(test.get("details")),
        "metrics": tuple(_metric(object_of(item)) for item in list_of(test.get("metrics"))),
    }
    if values["status"] is None:
        values["status"] = Status.ERROR
        values["reason"] = values["reason"] or f"no verdict: {text_of(test.get('status'))!r:.40}"
    return TestResult(**values)


def _details(value: Any) -> Mapping[str, Any]:
    """Read details as plain JSON; older results have them as text, as JSON or Python write it."""
    if isinstance(value, str):
        value = _parse_details(value)
    if isinstance(value, Mapping):
        return object_of(plain_of(value))
    return EMPTY if value is None else {"value": plain_of(value)}


def _parse_details(text: str) -> Any:
    readers = (json.loads, ast.literal_eval) if len(text) <= _MAX_PYTHON else (json.loads,)
    for read in readers:
        with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return read(text)
    return {"text": text}


def _metric(metric: Mapping[str, Any]) -> Metric:
    direction = metric.get("dir")
    values = _values(Metric, metric) | {
        "name": text_of(metric.get("name")) or "unnamed",
        "direction": direction if direction in ("higher", "lower") else "",
        "claimed": _claimed(metric.get("reference")),
        "standing": SOUND,
        "more": _more(metric, Metric),
    }
    return Metric(**values)


def _claimed(reference: Any) -> float | None:
    """Read the reference that a file itself has, a number or an object with a value."""
    return number_of(object_of(reference).get("value", reference))


def _device(number: int, device: Mapping[str, Any]) -> Device:
    mig, index = device.get("mig"), whole_of(device.get("index"))
    values = _values(Device, device) | {
        "index": number if index is None else index,
        "mig": text_of(object_of(mig).get("profile")) or ("MIG" if mig else ""),
        "more": _more(device, Device),
    }
    return Device(**values)


_READERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    str: text_of,
    int: lambda value: whole_of(value) or 0,
    bool: lambda value: value is True,
    int | None: whole_of,
    float | None: number_of,
    datetime | None: time_of,
    tuple[str, ...]: lambda value: tuple(map(text_of, list_of(value))),
}
"""How a field of each declared type is read; fields of other types are read one by one."""


def _values(kind: type, item: Mapping[str, Any]) -> dict[str, Any]:
    """Read the fields of a class that the item names alike, each by its declared type."""
    return {
        field.name: _READERS[field.type](item.get(field.name))
        for field in dataclasses.fields(kind)
        if field.type in _READERS
    }


def _more(item: Mapping[str, Any], kind: type) -> Mapping[str, Any]:
    """Keep the fields that the class does not have."""
    names = {"dir", *(field.name for field in dataclasses.fields(kind))}
    return object_of(plain_of({name: item[name] for name in item if name not in names}))


def _status(value: Any) -> Status | None:
    name = value.upper() if isinstance(value, str) else ""
    return Status(name) if name in Status.__members__ else None
