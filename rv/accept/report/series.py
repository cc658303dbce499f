"""What is worth a picture: charts from the details of results, and from the history. Pure.

Details are untrusted: what is not of the shape that a payload writes is passed over.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rv.accept.measurements import Measurement, device_of, dtype_of, node_of
from rv.accept.report.charts import Axis, BarChart, Chart, DotChart, Line, LineChart, binary
from rv.accept.results import RunResult, Status, TestResult
from rv.accept.trends import Point, change_points, regression
from rv.accept.untrusted import list_of, number_of, object_of, text_of

_RATES: Final = {"tflops": "TFLOPS of each GPU", "stream_copy": "Memory bandwidth of each GPU"}
_BAD: Final = (Status.FAIL, Status.WARN)
_MAX_HISTORIES: Final = 6
_LEAST_POINTS: Final = 3
_LOSSES: Final = ("ddp.train", "fsdp.train")


def charts(runs: Sequence[RunResult], kept: Sequence[Measurement]) -> list[Chart]:
    """Give every chart that these results, and what was kept of these GPUs, are good for."""
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


def _rows(details: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [object_of(row) for row in list_of(details.get(name))]


def _collectives(runs: Sequence[RunResult]) -> Iterator[Chart]:
    """Bus bandwidth over size, of each run with a sweep; wrong results are ringed."""
    for run in runs:
        lines, bad, levels = list[Line](), list[tuple[float, float]](), list[float]()
        for test in run.tests:
            rows = [r for r in _rows(test.details, "rows") if _both(r, "bytes", "busbw")]
            if not rows:
                continue
            sizes, speeds = ([float(row[name]) for row in rows] for name in ("bytes", "busbw"))
            lines.append(Line(name=test.name.rpartition(".")[2], x=sizes, y=speeds))
            bad += [
                (float(r["bytes"]), float(r["busbw"])) for r in rows if number_of(r.get("wrong"))
            ]
            levels += [m.reference.value for m in test.metrics if m.reference and m.unit == "GB/s"]
        if lines:
            where = run.hostname if run.nnodes == 1 else f"{run.nnodes} nodes"
            yield LineChart(
                title="Bus bandwidth over size",
                caption=f"{run.world_size} ranks on {where}, {run.backend}",
                x=Axis(label="bytes", scale="log"),
                y=Axis(label="GB/s"),
                lines=lines,
                bad=bad,
                reference=max(levels, default=None),
            )


def _both(row: Mapping[str, Any], *names: str) -> bool:
    return all(number_of(row.get(name)) is not None for name in names)


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
    lines = []
    for run, test in _tests(runs):
        values = [number_of(value) for value in list_of(test.details.get("losses"))]
        if test.name in _LOSSES and (test.rank or 0) == 0 and any(values[1:]):
            y = [value if value is not None else float("nan") for value in values]
            where = f"{test.name.partition('.')[0]}, {run.world_size} ranks"
            lines.append(Line(name=where, x=[float(step) for step in range(len(y))], y=y))
    if lines:
        yield LineChart(
            title="Training loss",
            x=Axis(label="step"),
            y=Axis(label="loss"),
            lines=lines,
        )


def _loading(runs: Sequence[RunResult]) -> Iterator[Chart]:
    """Samples a second over the number of workers, the knee marked."""
    for run in runs:
        rates = sorted(_worker_rates(run))
        knee = next(
            (m.value for test in run.tests if (m := test.metric("knee")) and m.value is not None),
            None,
        )
        if len(rates) > 1:
            yield LineChart(
                title="DataLoader workers",
                caption=f"on {run.hostname}",
                x=Axis(label="workers"),
                y=Axis(label="samples a second"),
                lines=[Line(name="", x=[x for x, _ in rates], y=[y for _, y in rates])],
                marks=[(knee, "knee")] if knee is not None else [],
            )


def _worker_rates(run: RunResult) -> Iterator[tuple[float, float]]:
    for test in run.tests:
        number = test.name.removeprefix("dataload.workers")
        metric = test.metric("samples_per_s")
        if number.isdecimal() and metric and metric.value is not None:
            yield float(number), metric.value


def _service(runs: Sequence[RunResult]) -> Iterator[Chart]:
    """Where the time of a request to the tensor service goes, by its size."""
    for _, test in _tests(runs):
        rows = [row for row in _rows(test.details, "sizes") if _both(row, "bytes", "remote_ms")]
        phases = [object_of(row.get("phases_ms")) for row in rows]
        names = [name for name in (phases[0] if phases else ()) if name != "total"]
        if names:
            yield BarChart(
                title="Where a request's time goes",
                caption="of the whole, by size of the tensor",
                x=Axis(label="% of the time"),
                parts=[text_of(name) for name in names],
                bars=[
                    (binary(float(row["bytes"])), _shares(split, names))
                    for row, split in zip(rows, phases, strict=True)
                ],
            )


def _shares(split: Mapping[str, Any], names: Sequence[str]) -> list[float]:
    parts = [max(0.0, number_of(split.get(name)) or 0.0) for name in names]
    whole = sum(parts) or 1.0
    return [100 * part / whole for part in parts]


def _histories(runs: Sequence[RunResult], kept: Sequence[Measurement]) -> Sequence[Chart]:
    """What was measured before on these GPUs; first what has become slower."""
    here = {device.uuid for run in runs for device in run.devices if device.uuid}
    found: dict[tuple[str, ...], list[Measurement]] = {}
    for measured in kept:
        if measured.gpu_uuid in here:
            found.setdefault((*measured.subject, *measured.key), []).append(measured)
    made = [_history(rows) for rows in found.values() if len(rows) >= _LEAST_POINTS]
    flagged = [chart for chart in made if chart.bad]
    steady = [chart for chart in made if not chart.bad]
    return [*flagged, *steady][:_MAX_HISTORIES]


def _history(rows: Sequence[Measurement]) -> LineChart:
    last = rows[-1]
    points = [Point(time=row.time, value=row.value, fingerprint=row.fingerprint) for row in rows]
    slower = regression(points, last.direction)
    first = rows[0].time

    def days(time: float) -> float:
        return (time - first) / 86400

    what = f"{slower.loss:.1%} worse than its median" if slower else "steady"
    return LineChart(
        title=f"{last.test} {last.metric} of {last.gpu_uuid}",
        caption=f"{last.node} {last.device}: {what}, {len(rows)} runs",
        x=Axis(label=f"days since {datetime.fromtimestamp(first, UTC):%Y-%m-%d}"),
        y=Axis(label=last.unit),
        lines=[Line(name="", x=[days(r.time) for r in rows], y=[r.value for r in rows])],
        reference=slower.median if slower else None,
        marks=[(days(change.time), change.after) for change in change_points(points)],
        bad=[(days(last.time), last.value)] if slower else [],
    )
