"""A run, judged, as JUnit XML, and its numbers as CSV and JSON lines."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from rv.accept.measurements import Measurement, device_of
from rv.accept.results import Metric, RunResult, Status, TestResult
from rv.accept.runs import Run

if TYPE_CHECKING:
    from junitparser import TestCase, TestSuite

HEADER: Final = (
    "run", "payload", "node", "device", "gpu_uuid", "test", "status", "code", "metric", "value",
    "unit", "direction", "reference", "kind", "verdict", "timestamp",
)  # fmt: skip
_FORMULA: Final = ("=", "+", "-", "@")
"""With these a spreadsheet's formula begins."""


def as_junit(run: Run) -> str:
    """Write JUnit XML: a suite for each result; a WARN passes, with its reason in system-out."""
    from junitparser import JUnitXml

    xml = JUnitXml(f"acceptance {run.record.race_id}")
    for result in run.results:
        xml.add_testsuite(_suite(result))
    xml.update_statistics()
    file = io.BytesIO()
    xml.write(file, pretty=True)
    return file.getvalue().decode("utf-8")


def _suite(result: RunResult) -> "TestSuite":
    from junitparser import TestSuite

    suite = TestSuite(f"{result.test_type} on {result.hostname or '-'}")
    suite.add_testcases([_case(result, test) for test in result.tests])
    if result.duration_s is not None:
        suite.time = round(result.duration_s, 3)
    if result.timestamp:
        suite.timestamp = f"{result.timestamp:%Y-%m-%dT%H:%M:%S}"
    return suite


def _case(result: RunResult, test: TestResult) -> "TestCase":
    from junitparser import Error, Failure, Skipped, TestCase

    made = TestCase(
        name=" ".join(filter(None, (test.name, test.device))),
        classname=f"{result.test_type}.{test.host or result.hostname or '-'}",
        time=None if test.timing_ms is None else round(test.timing_ms / 1e3, 3),
    )
    why = f"{test.code}: {test.reason}" if test.code else test.reason
    kinds = {Status.FAIL: Failure, Status.ERROR: Error}
    if test.status in kinds:
        made.result = [kinds[test.status](why, test.code)]
    if test.status is Status.SKIP:
        made.result = [Skipped(why)]
    if test.status is Status.WARN:
        made.system_out = f"WARN {why}"
    return made


def as_csv(run: Run) -> str:
    """Write one row for each number, and one for each test without any; cells are parted by |."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="|", lineterminator="\n")
    writer.writerow(HEADER)
    for result in run.results:
        for test in result.tests:
            writer.writerows(_rows(run.record.race_id, result, test))
    return text.getvalue()


def _rows(run: str, result: RunResult, test: TestResult) -> Iterator[Sequence[str]]:
    device = device_of(test, result)
    head = (
        run, result.test_type, test.host or result.hostname, test.device,
        device.uuid if device else "", test.name, test.status, test.code,
    )  # fmt: skip
    time = test.timestamp.isoformat() if test.timestamp else ""
    rows = [(*head, *_cells(metric), time) for metric in test.metrics]
    for row in rows or [(*head, *[""] * 7, time)]:
        yield [_no_formula(cell) for cell in row]


def _no_formula(cell: str) -> str:
    """Keep a spreadsheet from running a text: a quote in front of it makes it one. No number is."""
    with suppress(ValueError):
        float(cell)
        return cell
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _cells(metric: Metric) -> Sequence[str]:
    reference = metric.reference
    return (
        metric.name,
        "" if metric.value is None else f"{metric.value:.9g}",
        metric.unit,
        metric.direction,
        f"{reference.value:.9g}" if reference else "",
        reference.kind if reference else "",
        metric.verdict or "",
    )


def as_jsonl(measured: Sequence[Measurement]) -> str:
    """Write measurements as JSON, one a line."""
    return "".join(json.dumps(asdict(each)) + "\n" for each in measured)
