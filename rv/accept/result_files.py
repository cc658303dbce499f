"""Reads result files, which are untrusted text, into the values of `rv.accept.results`.

`parse` reads one result: the schema `rv.accept/1`, and the older formats of which it is a superset
(`rv.accept.legacy_formats`). `read_file` and `read_folder` do so from disk. Whatever the text is,
they give a `RunResult` or raise `ResultError`.
"""

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rv.accept.legacy_formats import as_current
from rv.accept.results import (
    Device,
    Metric,
    Reference,
    ResultError,
    RunResult,
    Status,
    TestResult,
    worst,
)
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
from rv.payloads.contract.schema import SCHEMA
from rv.slurm.text import printable

MAX_BYTES: Final = 16 * 2**20
"""A larger file is refused unread."""


def parse(text: str | bytes, source: str = "result") -> RunResult:
    """Read one result; `source` names it in errors. Raises `ResultError`."""
    document = _load(text, source)
    if document.get("schema") != SCHEMA:
        name = source.rpartition("/")[2]
        document, older = as_current(document, name)
        if not older:
            raise ResultError(printable(f"{source}: not a result of {SCHEMA}, nor an older one"))
        return _run(document, source, older)
    return _run(document, source, "")


def read_file(path: Path) -> RunResult:
    """Read one result file. Raises `ResultError`, also for a file that cannot be read."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ResultError(printable(f"{path}: {size:,} bytes are too many for a result"))
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise ResultError(printable(f"{path}: {error.strerror or error}")) from None


def read_folder(folder: Path) -> tuple[tuple[RunResult, ...], tuple[str, ...]]:
    """Read every `*.json` below a folder, sorted by path; give the results, and what is none.

    Where a folder has results of `rv.accept/1`, the older names beside them are their aliases and
    are left out.
    """
    found, faults = list[RunResult](), list[str]()
    for path in sorted(folder.rglob("*.json"))[:MAX_ITEMS]:
        if path.name.startswith("."):
            continue
        try:
            found.append(read_file(path))
        except ResultError as error:
            faults.append(str(error))
    current = {Path(result.source).parent for result in found if not result.older}
    kept = [r for r in found if not r.older or Path(r.source).parent not in current]
    return tuple(kept), tuple(faults)


def _load(text: str | bytes, source: str) -> Mapping[str, Any]:
    if len(text) > MAX_BYTES:
        raise ResultError(printable(f"{source}: {len(text):,} bytes are too many for a result"))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = str(error).partition("\n")[0]
        raise ResultError(printable(f"{source}: cut short or not JSON: {why:.200}")) from None
    if not isinstance(document, dict):
        raise ResultError(printable(f"{source}: an object was expected"))
    return document


def _run(document: Mapping[str, Any], source: str, older: str) -> RunResult:
    info, summary = object_of(document.get("test_info")), object_of(document.get("summary"))
    slurm, world = object_of(info.get("slurm")), object_of(info.get("world"))
    tests = tuple(_test(item) for item in list_of(document.get("tests")))
    return RunResult(
        test_type=text_of(info.get("test_type")) or "unknown",
        status=_verdict(tests, _status(summary.get("status"))),
        hostname=text_of(info.get("hostname")),
        timestamp=time_of(info.get("timestamp")),
        run_id=text_of(info.get("run_id")),
        rank=whole_of(info.get("rank", world.get("rank"))),
        payload_version=text_of(info.get("payload_version")),
        method_version=whole_of(info.get("method_version")) or 0,
        argv=tuple(text_of(word) for word in list_of(info.get("argv"))),
        duration_s=number_of(info.get("duration_s")),
        quick=info.get("quick") is True,
        job_id=text_of(slurm.get("job_id")),
        step_id=text_of(slurm.get("step_id")),
        partition=text_of(slurm.get("partition")),
        nodelist=text_of(slurm.get("nodelist")),
        restart_count=whole_of(slurm.get("restart_count")) or 0,
        requested_gpu=text_of(info.get("requested_gpu")),
        race=text_of(slurm.get("race") or info.get("race")),
        world_size=max(1, whole_of(world.get("size")) or 1),
        nnodes=max(1, whole_of(world.get("nnodes")) or 1),
        hosts=tuple(text_of(object_of(r).get("host")) for r in list_of(document.get("ranks"))),
        backend=text_of(world.get("backend")),
        env=plain_of(object_of(document.get("env"))),
        devices=_devices(document),
        tests=tests,
        telemetry=_telemetry(document),
        exclude_nodes=tuple(text_of(node) for node in list_of(summary.get("exclude_nodes"))),
        schema="" if older else SCHEMA,
        older=older,
        source=printable(source),
    )


def _verdict(tests: tuple[TestResult, ...], said: Status | None) -> Status:
    """A summary may be worse than its tests, never better; without tests it cannot pass."""
    believed = said and (tests or said not in (Status.PASS, Status.WARN))
    return worst([*(test.status for test in tests), *([said] if said and believed else [])])


def _test(item: Any) -> TestResult:
    test = object_of(item)
    status = _status(test.get("status"))
    reason = text_of(test.get("reason"))
    if status is None:
        status, reason = Status.ERROR, reason or f"no verdict: {text_of(test.get('status'))!r:.40}"
    return TestResult(
        name=text_of(test.get("name")) or "unnamed",
        status=status,
        code=text_of(test.get("code")),
        reason=reason,
        device=text_of(test.get("device")),
        rank=whole_of(test.get("rank")),
        host=text_of(test.get("host")),
        fault=text_of(test.get("class")),
        action=text_of(test.get("action")),
        timing_ms=number_of(test.get("timing_ms")),
        timestamp=time_of(test.get("timestamp")),
        details=_details(test.get("details")),
        metrics=tuple(_metric(metric) for metric in list_of(test.get("metrics"))),
    )


def _details(value: Any) -> Mapping[str, Any]:
    """Older results have their details as text: JSON, or Python's own way to write it."""
    if isinstance(value, str):
        text = value
        for read in (json.loads, ast.literal_eval):
            try:
                value = read(text)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue
            break
        else:
            value = {"text": text}
    if isinstance(value, Mapping):
        return plain_of(value) if value else EMPTY
    return {"value": plain_of(value)} if value is not None else EMPTY


_METRIC_FIELDS: Final = frozenset({*Metric.__slots__, "dir", "ref"})


def _metric(item: Any) -> Metric:
    metric = object_of(item)
    direction = metric.get("dir", metric.get("direction"))
    return Metric(
        name=text_of(metric.get("name")) or "unnamed",
        value=number_of(metric.get("value")),
        unit=text_of(metric.get("unit")),
        direction=direction if direction in ("higher", "lower") else "",
        n=whole_of(metric.get("n")),
        median=number_of(metric.get("median")),
        p05=number_of(metric.get("p05")),
        p95=number_of(metric.get("p95")),
        min=number_of(metric.get("min")),
        max=number_of(metric.get("max")),
        cv=number_of(metric.get("cv")),
        reference=_reference(metric.get("ref")),
        verdict=_status(metric.get("verdict")),
        more=_more(metric, _METRIC_FIELDS),
    )


def _reference(item: Any) -> Reference | None:
    fields = object_of(item)
    value = number_of(fields.get("value"))
    if value is None:
        return None
    return Reference(
        value=value,
        lower=number_of(fields.get("lower")),
        warn=number_of(fields.get("warn")),
        upper=number_of(fields.get("upper")),
        kind=text_of(fields.get("kind")),
        source=text_of(fields.get("source")),
    )


_DEVICE_FIELDS: Final = frozenset(Device.__slots__)


def _devices(document: Mapping[str, Any]) -> tuple[Device, ...]:
    devices = (object_of(item) for item in list_of(document.get("devices")))
    return tuple(_device(number, device) for number, device in enumerate(devices))


def _device(number: int, device: Mapping[str, Any]) -> Device:
    mig, index = device.get("mig"), whole_of(device.get("index"))
    slice_ = object_of(mig)
    return Device(
        index=number if index is None else index,
        name=text_of(device.get("name")),
        uuid=text_of(device.get("uuid")),
        mig=text_of(slice_.get("profile")) or text_of(mig) or ("MIG" if mig else ""),
        parent_uuid=text_of(slice_.get("parent_uuid")),
        host=text_of(device.get("host")),
        pci_bus_id=text_of(device.get("pci_bus_id")),
        serial=text_of(device.get("serial")),
        memory_bytes=whole_of(device.get("memory_bytes")),
        sm_count=whole_of(device.get("sm_count")),
        more=_more(device, _DEVICE_FIELDS),
    )


def _telemetry(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    per_device = object_of(document.get("telemetry")).get("per_device")
    return tuple(plain_of(object_of(item)) for item in list_of(per_device))


def _more(fields: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    left = {name: value for name, value in fields.items() if name not in known}
    return plain_of(left) if left else EMPTY


def _status(value: Any) -> Status | None:
    word = value.upper() if isinstance(value, str) else ""
    return Status(word) if word in Status.__members__ else None
