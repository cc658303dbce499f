"""Runs for other programs: JUnit XML, and CSV of every number. Pure."""

import csv
import html
import io
from collections.abc import Iterator, Sequence
from typing import Final

from rv.accept.results import RunResult, Status, TestResult
from rv.accept.store import Run

HEADER: Final = (
    "run", "payload", "node", "device", "gpu_uuid", "test", "status", "code", "metric", "value",
    "unit", "direction", "reference", "kind", "verdict", "timestamp",
)  # fmt: skip


def as_junit(run: Run) -> str:
    """Write JUnit XML: a suite for each result; a WARN passes, with its reason in system-out."""
    body = "".join(_suite(result) for result in run.results)
    counts = _counts([test for result in run.results for test in result.tests])
    name = html.escape(f"acceptance {run.record.race_id}")
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="{name}"{counts}>\n'
        f"{body}</testsuites>\n"
    )


def as_csv(run: Run) -> str:
    """Write one row for each number, and one for each test without any; cells are parted by |."""
    from rv.accept.measurements import device_of

    text = io.StringIO()
    writer = csv.writer(text, delimiter="|", lineterminator="\n")
    writer.writerow(HEADER)
    for result in run.results:
        for test in result.tests:
            device = device_of(test, result)
            for cells in _cells(test):
                writer.writerow(
                    [run.record.race_id, result.test_type, test.host or result.hostname,
                     test.device, device.uuid if device else "", test.name, test.status,
                     test.code, *cells, test.timestamp.isoformat() if test.timestamp else ""]
                )  # fmt: skip
    return text.getvalue()


def _cells(test: TestResult) -> Iterator[Sequence[object]]:
    for metric in test.metrics:
        reference = metric.reference
        value = "" if metric.value is None else f"{metric.value:.9g}"
        yield (
            metric.name,
            value,
            metric.unit,
            metric.direction,
            f"{reference.value:.9g}" if reference else "",
            reference.kind if reference else "",
            metric.verdict or "",
        )
    if not test.metrics:
        yield ("",) * 7


def _suite(result: RunResult) -> str:
    name = html.escape(f"{result.test_type} on {result.hostname or '-'}")
    when = f' timestamp="{result.timestamp:%Y-%m-%dT%H:%M:%S}"' if result.timestamp else ""
    time = f' time="{result.duration_s:.3f}"' if result.duration_s is not None else ""
    cases = "".join(_case(result, test) for test in result.tests)
    return f' <testsuite name="{name}"{_counts(result.tests)}{time}{when}>\n{cases} </testsuite>\n'


def _counts(tests: Sequence[TestResult]) -> str:
    names = {"failures": Status.FAIL, "errors": Status.ERROR, "skipped": Status.SKIP}
    told = [f'{n}="{sum(t.status is status for t in tests)}"' for n, status in names.items()]
    return f' tests="{len(tests)}" ' + " ".join(told)


def _case(result: RunResult, test: TestResult) -> str:
    group = html.escape(f"{result.test_type}.{test.host or result.hostname or '-'}")
    name = html.escape(" ".join(filter(None, (test.name, test.device))))
    time = f' time="{test.timing_ms / 1e3:.3f}"' if test.timing_ms is not None else ""
    head = f'  <testcase classname="{group}" name="{name}"{time}'
    why = html.escape(f"{test.code}: {test.reason}" if test.code else test.reason)
    elements = {
        Status.FAIL: f'<failure type="{html.escape(test.code)}" message="{why}"/>',
        Status.ERROR: f'<error type="{html.escape(test.code)}" message="{why}"/>',
        Status.SKIP: f'<skipped message="{why}"/>',
        Status.WARN: f"<system-out>WARN {why}</system-out>",
    }
    inner = elements.get(test.status)
    return f"{head}>{inner}</testcase>\n" if inner else f"{head}/>\n"
