"""Which charts results have data for. Pure.

Details of results are untrusted: what is not of the shape that a payload writes is passed over.
"""

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from rv.accept.charts import LEAST_RUNS
from rv.accept.measurements import CONTENDED, RETIRED, Measurement, device_of, dtype_of, node_of
from rv.accept.regressions import Regression, same_software, series_of, together
from rv.accept.report.charts import Chart, DotChart, Line, LineChart
from rv.accept.report.places import where
from rv.accept.report.timelines import timelines
from rv.accept.results import WORST_FIRST, Metric, RunResult, Status, TestResult
from rv.accept.trends import change_points
from rv.accept.untrusted import list_of, number_of, object_of

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
    for run in runs:
        lines, bad = list[Line](), list[tuple[float, float]]()
        for test in run.tests:
            points, wrong = _bandwidths(test)
            bad += wrong
            if points:
                sizes, speeds = zip(*points, strict=True)
                lines.append(Line(name=test.name.rpartition(".")[2], x=sizes, y=speeds))
        if lines:
            place = where(run) if run.nnodes == 1 else f"{run.nnodes} nodes"
            yield LineChart(
                title="Bus bandwidth over size",
                caption=f"{run.world_size} ranks on {place}, {run.backend}",
                x="bytes",
                is_log=True,
                y="GB/s",
                lines=lines,
                bad=bad,
                reference=_highest_bandwidth_reference(run),
            )


def _bandwidths(test: TestResult) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Give a sweep's sizes with their bandwidths, and those of them whose results were wrong."""
    points, wrong = [], []
    for row in map(object_of, list_of(test.details.get("rows"))):
        size, speed = number_of(row.get("bytes")), number_of(row.get("busbw"))
        if size is None or speed is None:
            continue
        points.append((size, speed))
        if number_of(row.get("wrong")):
            wrong.append((size, speed))
    return points, wrong


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


def _histories(runs: Sequence[RunResult], kept: Sequence[Measurement]) -> Sequence[Chart]:
    """What was measured before on these GPUs; first what has become slower."""
    here = {device.uuid for run in runs for device in run.devices} - {""}
    groups: dict[tuple[str, ...], list[Measurement]] = {}
    for measured in kept:
        if measured.gpu_uuid in here:
            groups.setdefault((*measured.subject, *measured.key), []).append(measured)
    histories = [_history(group) for group in groups.values() if len(group) >= _LEAST_POINTS]
    histories.sort(key=lambda chart: not chart.bad)
    return histories[:_MAX_HISTORIES]


def _history(group: Sequence[Measurement]) -> LineChart:
    last, first_s = group[-1], group[0].time
    (slower,) = together([series_of(group, last)]) if last.has_own_level else [None]

    def days(time_s: float) -> float:
        return (time_s - first_s) / _DAY_S

    return LineChart(
        title=f"{last.test} {last.metric} of {last.gpu_uuid}",
        caption=f"{last.node} {last.device}: {_outcome(group, slower)}, {len(group)} runs",
        x=f"days since {datetime.fromtimestamp(first_s, UTC):%Y-%m-%d}",
        y=last.unit,
        lines=[Line(name="", x=[days(p.time) for p in group], y=[p.value for p in group])],
        reference=slower.median if slower else None,
        marks=[(days(change.time), change.after) for change in change_points(group)],
        bad=[(days(last.time), last.value)] if slower else [],
    )


def _outcome(group: Sequence[Measurement], slower: Regression | None) -> str:
    """Say what the history shows of its newest value."""
    last = group[-1]
    if slower:
        return f"{slower.loss:.1%} worse than its sound runs"
    if not last.has_own_level:
        return "not judged: it varies without a fault of the GPU"
    if last.standing == CONTENDED:
        return "measured beside others: not judged"
    if last.standing == RETIRED:
        return "measured before a repair: not judged"
    return "steady" if len(same_software(group)) > LEAST_RUNS else "too few runs to judge"
