"""Choose the charts of a report, from the details of results and from the history. Pure.

Details are untrusted: what is not of the shape that a payload writes is passed over.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rv.accept.measurements import Measurement, device_of, dtype_of, node_of
from rv.accept.report.charts import Axis, BarChart, Chart, DotChart, Line, LineChart, binary
from rv.accept.results import RunResult, Status, TestResult
from rv.accept.trends import (
    LEAST_RUNS,
    Point,
    Regression,
    change_points,
    points_of,
    regression,
    since_change,
)
from rv.accept.untrusted import list_of, number_of, object_of, text_of

_RATES: Final = {"tflops": "TFLOPS of each GPU", "stream_copy": "Memory bandwidth of each GPU"}
_BAD: Final = (Status.FAIL, Status.WARN)
_MAX_HISTORIES: Final = 6
_LEAST_POINTS: Final = 3
_LOSSES: Final = ("ddp.train", "fsdp.train")
_DAY_S: Final = 86400


def charts(runs: Sequence[RunResult], kept: Sequence[Measurement]) -> list[Chart]:
    """Give every chart that these results and the kept measurements of their GPUs have data for."""
    return [
        *_collectives(runs),
        *_rates(runs),
        *_losses(runs),
        *_loading(runs),
        *_service(runs),
        *_histories(runs, kept),
    ]


def _tests(runs: Sequence[RunResult]) -> Iterator[tuple[RunResult, TestResult]]:
    return ((run, test) for run in runs for test in run.tests)


def _rows(details: Mapping[str, Any], name: str, *numbers: str) -> list[Mapping[str, Any]]:
    """Give the rows of a table in the details that have all of these numbers."""
    rows = [object_of(row) for row in list_of(details.get(name))]
    return [row for row in rows if all(number_of(row.get(key)) is not None for key in numbers)]


def _collectives(runs: Sequence[RunResult]) -> Iterator[Chart]:
    """Bus bandwidth over size, of each run with a sweep of sizes; wrong results are ringed."""
    for run in runs:
        lines, bad, levels = list[Line](), list[tuple[float, float]](), list[float]()
        for test in run.tests:
            rows = _rows(test.details, "rows", "bytes", "busbw")
            if not rows:
                continue
            sizes, speeds = ([float(row[name]) for row in rows] for name in ("bytes", "busbw"))
            lines.append(Line(name=test.name.rpartition(".")[2], x=sizes, y=speeds))
            points = zip(rows, sizes, speeds, strict=True)
            bad += [(size, speed) for row, size, speed in points if number_of(row.get("wrong"))]
            levels += _bandwidth_references(test)
        if lines:
            yield _bandwidth_chart(run, lines, bad, max(levels, default=None))


def _bandwidth_references(test: TestResult) -> list[float]:
    return [m.reference.value for m in test.metrics if m.reference and m.unit == "GB/s"]


def _bandwidth_chart(
    run: RunResult,
    lines: Sequence[Line],
    bad: Sequence[tuple[float, float]],
    reference: float | None,
) -> LineChart:
    where = run.hostname if run.nnodes == 1 else f"{run.nnodes} nodes"
    return LineChart(
        title="Bus bandwidth over size",
        caption=f"{run.world_size} ranks on {where}, {run.backend}",
        x=Axis(label="bytes", scale="log"),
        y=Axis(label="GB/s"),
        lines=lines,
        bad=bad,
        reference=reference,
    )


def _rates(runs: Sequence[RunResult]) -> Iterator[Chart]:
    """One dot a GPU for each type of numbers; those that did not pass are named."""
    for metric_name, title in _RATES.items():
        groups: dict[str, dict[str, float]] = {}
        outliers, unit = set[tuple[str, str]](), ""
        for run, test in _tests(runs):
            device, metric = device_of(test, run), test.metric(metric_name)
            if device is None or metric is None or metric.value is None:
                continue
            group = dtype_of(test, metric) or test.name
            name = f"{node_of(test, run)}:{device.index}"
            groups.setdefault(group, {})[name] = metric.value
            unit = metric.unit
            if test.status in _BAD:
                outliers.add((group, name))
        if groups:
            yield DotChart(
                title=title,
                caption="a line at each median; named: did not pass",
                y=Axis(label=unit),
                groups=[(group, list(dots.items())) for group, dots in groups.items()],
                outliers=frozenset(outliers),
            )


def _losses(runs: Sequence[RunResult]) -> Iterator[Chart]:
    """Loss curves of every training, on common axes."""
    lines = [line for run, test in _tests(runs) if (line := _loss_line(run, test))]
    if lines:
        yield LineChart(
            title="Training loss", x=Axis(label="step"), y=Axis(label="loss"), lines=lines
        )


def _loss_line(run: RunResult, test: TestResult) -> Line | None:
    """Draw a training's losses, as rank 0 has them; None where the test has none."""
    losses = [number_of(value) for value in list_of(test.details.get("losses"))]
    if test.name not in _LOSSES or test.rank or not any(losses[1:]):
        return None
    return Line(
        name=f"{test.name.partition('.')[0]}, {run.world_size} ranks",
        x=[float(step) for step in range(len(losses))],
        y=[math.nan if loss is None else loss for loss in losses],
    )


def _loading(runs: Sequence[RunResult]) -> Iterator[Chart]:
    """Samples a second over the number of workers, the knee marked."""
    for run in runs:
        rates = sorted(_worker_rates(run))
        if len(rates) > 1:
            yield LineChart(
                title="DataLoader workers",
                caption=f"on {run.hostname}",
                x=Axis(label="workers"),
                y=Axis(label="samples a second"),
                lines=[Line(name="", x=[x for x, _ in rates], y=[y for _, y in rates])],
                marks=[(knee, "knee") for knee in _values(run, "knee")][:1],
            )


def _worker_rates(run: RunResult) -> Iterator[tuple[float, float]]:
    for test in run.tests:
        number = test.name.removeprefix("dataload.workers")
        metric = test.metric("samples_per_s")
        if number.isdecimal() and metric and metric.value is not None:
            yield float(number), metric.value


def _values(run: RunResult, name: str) -> Iterator[float]:
    for test in run.tests:
        metric = test.metric(name)
        if metric and metric.value is not None:
            yield metric.value


def _service(runs: Sequence[RunResult]) -> Iterator[Chart]:
    """Where the time of a request to the tensor service goes, by its size."""
    for _, test in _tests(runs):
        rows = _rows(test.details, "sizes", "bytes", "remote_ms")
        phases = [object_of(row.get("phases_ms")) for row in rows]
        names = [name for name in next(iter(phases), ()) if name != "total"]
        if names:
            sizes = [binary(float(row["bytes"])) for row in rows]
            shares = [_shares(times_ms, names) for times_ms in phases]
            yield BarChart(
                title="Where a request's time goes",
                caption="of the whole, by size of the tensor",
                x=Axis(label="% of the time"),
                parts=[text_of(name) for name in names],
                bars=list(zip(sizes, shares, strict=True)),
            )


def _shares(times_ms: Mapping[str, Any], names: Sequence[str]) -> list[float]:
    """Give the phases' parts of the time, in percent."""
    parts = [max(0.0, number_of(times_ms.get(name)) or 0.0) for name in names]
    whole = sum(parts) or 1.0
    return [100 * part / whole for part in parts]


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


def _verdict_text(points: Sequence[Point], slower: Regression | None) -> str:
    if slower:
        return f"{slower.loss:.1%} worse than its median"
    return "steady" if len(since_change(points)) > LEAST_RUNS else "too few runs to judge"


def _history(group: Sequence[Measurement]) -> LineChart:
    points, last = points_of(group), group[-1]
    slower = regression(points, last.direction)
    first_s = points[0].time

    def days(time_s: float) -> float:
        return (time_s - first_s) / _DAY_S

    what = _verdict_text(points, slower)
    return LineChart(
        title=f"{last.test} {last.metric} of {last.gpu_uuid}",
        caption=f"{last.node} {last.device}: {what}, {len(group)} runs",
        x=Axis(label=f"days since {datetime.fromtimestamp(first_s, UTC):%Y-%m-%d}"),
        y=Axis(label=last.unit),
        lines=[Line(name="", x=[days(p.time) for p in points], y=[p.value for p in points])],
        reference=slower.median if slower else None,
        marks=[(days(change.time), change.after) for change in change_points(points)],
        bad=[(days(last.time), last.value)] if slower else [],
    )
