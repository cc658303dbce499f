"""Which charts results have data for. Pure.

Details of results are untrusted: what is not of the shape that a payload writes is passed over.
"""

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from rv.accept.charts import LEAST_RUNS
from rv.accept.measurements import (
    CONTENDED,
    RETIRED,
    Measurement,
    bare_uuid,
    device_of,
    dtype_of,
    node_of,
)
from rv.accept.regressions import Regression, same_software
from rv.accept.report.charts import Chart, DotChart, Line, LineChart
from rv.accept.report.places import where
from rv.accept.report.timelines import timelines
from rv.accept.results import WORST_FIRST, Metric, RunResult, Status, TestResult
from rv.accept.trends import Trend, trends
from rv.accept.untrusted import list_of, number_of, object_of, text_of

_RATES: Final = {"tflops": "TFLOPS of each GPU", "stream_copy": "Memory bandwidth of each GPU"}
_MAX_HISTORIES: Final = 6
_MAX_COLLECTIVES: Final = 3
_LEAST_POINTS: Final = 3
_DAY_S: Final = 86400


def charts(runs: Sequence[RunResult], kept: Sequence[Measurement]) -> list[Chart]:
    """Give every chart that these results and the kept measurements of their GPUs have data for."""
    return [*timelines(runs), *_collectives(runs), *_rates(runs), *_histories(runs, kept)]


def _collectives(runs: Sequence[RunResult]) -> Iterator[Chart]:
    """Bus bandwidth over size, of the worst runs that have it; wrong results are ringed."""
    worst_first = sorted(runs, key=lambda run: WORST_FIRST.index(run.status))
    yield from itertools.islice(_bandwidth_charts(worst_first), _MAX_COLLECTIVES)


def _bandwidth_charts(runs: Sequence[RunResult]) -> Iterator[Chart]:
    """Several ranks alone: a bus bandwidth of one is 0 by its formula."""
    for run in runs:
        bandwidths = [each for test in run.tests for each in _bandwidths(test)]
        if not bandwidths or run.world_size == 1:
            continue
        yield LineChart(
            title="Bus bandwidth over size",
            caption=f"{run.world_size} ranks on {where(run)}, {run.backend}",
            x="bytes",
            is_log=True,
            y="GB/s",
            lines=_lines(bandwidths),
            bad=[(each.size, each.speed) for each in bandwidths if each.is_wrong],
            reference=_highest_bandwidth_reference(run),
        )


class _Bandwidth(NamedTuple):
    """The bus bandwidth, GB/s, of a collective at a size in bytes."""

    collective: str
    size: float
    speed: float
    is_wrong: bool


def _bandwidths(test: TestResult) -> Iterator[_Bandwidth]:
    """Give what a sweep over sizes reached; one of several types names each by type as well."""
    for row in map(object_of, list_of(test.details.get("rows"))):
        size, speed = number_of(row.get("bytes")), number_of(row.get("busbw"))
        if size is not None and speed is not None:
            operation, dtype = text_of(row.get("operation")), text_of(row.get("dtype"))
            name = f"{operation} {dtype}" if operation and dtype else test.name.rpartition(".")[2]
            yield _Bandwidth(name, size, speed, bool(number_of(row.get("wrong"))))


def _lines(bandwidths: Sequence[_Bandwidth]) -> list[Line]:
    lines = []
    for name in dict.fromkeys(each.collective for each in bandwidths):
        own = [each for each in bandwidths if each.collective == name]
        x, y = [each.size for each in own], [each.speed for each in own]
        lines.append(Line(name=name, x=x, y=y))
    return lines


def _highest_bandwidth_reference(run: RunResult) -> float | None:
    metrics = [metric for test in run.tests for metric in test.metrics if metric.unit == "GB/s"]
    levels = [metric.reference.value for metric in metrics if metric.reference]
    return max(levels, default=None)


def _rates(runs: Sequence[RunResult]) -> Iterator[Chart]:
    """One dot a GPU for each type of numbers; those that did not pass are named."""
    for metric_name, title in _RATES.items():
        groups: dict[str, dict[str, float]] = {}
        outliers, unit = set[tuple[str, str]](), ""
        for test, metric, gpu in _of_devices(runs, metric_name):
            group, unit = dtype_of(test, metric) or test.name, metric.unit
            groups.setdefault(group, {})[gpu] = metric.value or 0.0
            if test.status in (Status.FAIL, Status.WARN):
                outliers.add((group, gpu))
        if groups:
            caption = "a line at each median; named: did not pass"
            yield DotChart(title=title, caption=caption, y=unit, groups=groups, outliers=outliers)


def _of_devices(runs: Sequence[RunResult], name: str) -> Iterator[tuple[TestResult, Metric, str]]:
    """List the tests of single GPUs that have this metric, with the GPU's node and number."""
    for run in runs:
        for test in run.tests:
            device, metric = device_of(test, run), test.metric(name)
            if device and metric and metric.value is not None:
                yield test, metric, f"{node_of(test, run)}:{device.index}"


def _histories(runs: Sequence[RunResult], kept: Sequence[Measurement]) -> list[Chart]:
    """What was measured before on these GPUs; first what has become slower.

    All are judged together, as in a run: of many numbers some vary far without a fault.
    """
    here = {bare_uuid(device.uuid) for run in runs for device in run.devices} - {""}
    own = [measured for measured in kept if bare_uuid(measured.gpu_uuid) in here]
    found = [trend for trend in trends(own) if len(trend.points) >= _LEAST_POINTS]
    found.sort(key=lambda trend: not _is_slower(trend.regression))
    return [_history(trend) for trend in found[:_MAX_HISTORIES]]


def _is_slower(regression: Regression | None) -> bool:
    """Whether the GPU itself is slower, and not all of its model."""
    return regression is not None and regression.cause != "fleet"


def _history(trend: Trend) -> LineChart:
    last, first_s, slower = trend.last, trend.points[0].time, trend.regression

    def days(time_s: float) -> float:
        return (time_s - first_s) / _DAY_S

    return LineChart(
        title=f"{last.test} {last.metric} of {last.gpu_uuid}",
        caption=f"{last.node} {last.device}: {_outcome(trend)}, {len(trend.points)} runs",
        x=f"days since {datetime.fromtimestamp(first_s, UTC):%Y-%m-%d}",
        y=last.unit,
        lines=[Line(name="", x=[days(p.time) for p in trend.points], y=trend.values)],
        reference=slower.median if slower else None,
        marks=[(days(change.time), change.after) for change in trend.changes],
        bad=[(days(last.time), last.value)] if _is_slower(slower) else [],
    )


def _outcome(trend: Trend) -> str:
    """Say what the history shows of its newest value."""
    if trend.regression:
        return _said(trend.regression)
    last = trend.last
    if not last.has_own_level:
        return "not judged: it varies without a fault of the GPU"
    if last.standing == CONTENDED:
        return "measured beside others: not judged"
    if last.standing == RETIRED:
        return "measured before a repair: not judged"
    return "steady" if len(same_software(trend.points)) > LEAST_RUNS else "too few runs to judge"


def _said(regression: Regression) -> str:
    """Say how much was lost, and of what."""
    lost = f"{regression.loss:.1%} worse than"
    if regression.cause == "fleet":
        return f"all of its model are {lost} before, not this one by itself"
    if regression.cause == "gpu-rates":
        return f"the rates of the GPU together are {lost} in its sound runs"
    if regression.cause == "software":
        return f"{lost} in its sound runs, since its software changed"
    return f"{lost} its sound runs"
