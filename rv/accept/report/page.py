"""What a report shows; the HTML page and the Markdown text are made of it. Pure.

Details of results are untrusted: what is not of the shape that a payload writes is passed over.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rv.accept.charts import LEAST_RUNS
from rv.accept.measurements import Measurement, device_of, dtype_of, node_of
from rv.accept.regressions import series_of, since_change, together
from rv.accept.report.charts import Chart, DotChart, Line, LineChart
from rv.accept.results import WORST_FIRST, Device, Metric, RunResult, Status, TestResult, worst
from rv.accept.trends import change_points
from rv.accept.untrusted import list_of, number_of, object_of

_BAD: Final = (Status.FAIL, Status.ERROR, Status.WARN)
_RATES: Final = {"tflops": "TFLOPS of each GPU", "stream_copy": "Memory bandwidth of each GPU"}
_MAX_HISTORIES: Final = 6
_LEAST_POINTS: Final = 3
_DAY_S: Final = 86400
_VERSIONS: Final = ("torch", "cuda", "nccl", "cudnn", "driver", "python", "os")
_FIGURES: Final = {
    "tflops": "TFLOPS",
    "stream_copy": "copy, GB/s",
    "h2d_pinned": "host to device, GB/s",
    "d2h_pinned": "device to host, GB/s",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuRow:
    """One GPU on its node, its worst verdict, and its figures in the order of the columns."""

    node: str
    device: Device
    status: str
    figures: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A whole report of some runs."""

    title: str
    when: datetime
    runs: Sequence[RunResult]
    charts: Sequence[Chart] = ()

    @property
    def verdict(self) -> Status:
        """The worst verdict of all runs."""
        return worst([run.status for run in self.runs])

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many runs have each verdict."""
        return {status: sum(run.status is status for run in self.runs) for status in WORST_FIRST}

    @property
    def findings(self) -> list[tuple[RunResult, TestResult]]:
        """Each test that did not pass, and each bad run without such a test, the worst first."""
        findings = []
        for run in self.runs:
            tests = [test for test in run.tests if test.status in _BAD]
            if run.status in _BAD and not tests:
                tests = [TestResult(name="", status=run.status, reason="it gave no reason")]
            findings += [(run, test) for test in tests]
        return sorted(findings, key=lambda finding: WORST_FIRST.index(finding[1].status))

    @property
    def payloads(self) -> Sequence[str]:
        """The payloads that ran."""
        return list(dict.fromkeys(run.test_type for run in self.runs))

    @property
    def nodes(self) -> Mapping[str, Sequence[str]]:
        """The worst verdict of each payload on each node, "" where it did not run."""
        nodes: dict[str, dict[str, list[Status]]] = {}
        for run in self.runs:
            for node, status in _by_node(run):
                nodes.setdefault(node, {}).setdefault(run.test_type, []).append(status)
        rows = {}
        for node, statuses in sorted(nodes.items()):
            rows[node] = [worst(statuses[p]) if p in statuses else "" for p in self.payloads]
        return rows

    @property
    def figures(self) -> Sequence[str]:
        """The columns of figures that GPUs have."""
        return list(dict.fromkeys(name for _, name, _ in _measured(self.runs)))

    @property
    def gpus(self) -> list[GpuRow]:
        """Each GPU once, by node and number; of several values the best."""
        statuses: dict[tuple[str, str], list[Status]] = {}
        best: dict[tuple[str, str], dict[str, float]] = {}
        for run in self.runs:
            for test in run.tests:
                if device := device_of(test, run):
                    statuses.setdefault(_key(run, device), []).append(test.status)
        for key, name, value in _measured(self.runs):
            figures = best.setdefault(key, {})
            figures[name] = max(value, figures.get(name, value))
        devices = {_key(run, device): device for run in self.runs for device in run.devices}
        rows = []
        for key, device in sorted(devices.items(), key=lambda item: (item[0][0], item[1].index)):
            status = worst(statuses[key]) if key in statuses else ""
            values = [number(best.get(key, {}).get(name)) for name in self.figures]
            rows.append(GpuRow(node=key[0], device=device, status=status, figures=values))
        return rows

    @property
    def environment(self) -> Mapping[str, str]:
        """The GPUs by model, and the versions of the software."""
        gpus: dict[str, set[str]] = {}
        for run in self.runs:
            for device in run.devices:
                uuid = device.uuid or f"{host_of(run)}:{device.index}"
                gpus.setdefault(device.name, set()).add(uuid)
        counts = [f"{len(uuids)} x {name}" for name, uuids in sorted(gpus.items())]
        rows = {"GPUs": ", ".join(counts)}
        for name in _VERSIONS:
            versions = {str(run.env[name]) for run in self.runs if run.env.get(name)}
            rows[name] = ", ".join(sorted(versions))
        return {name: value for name, value in rows.items() if value}


def _by_node(run: RunResult) -> list[tuple[str, Status]]:
    """Pair nodes with statuses; a run's verdict that no test has is its own node's."""
    statuses = [(test.host or host_of(run), test.status) for test in run.tests]
    if run.status not in {status for _, status in statuses}:
        statuses.append((host_of(run), run.status))
    return statuses


def _measured(runs: Sequence[RunResult]) -> Iterator[tuple[tuple[str, str], str, float]]:
    """List the figures of single GPUs: the GPU's key, the column, the value."""
    for run in runs:
        for test in run.tests:
            device = device_of(test, run)
            for metric in test.metrics if device else ():
                if metric.name in _FIGURES and metric.value is not None and device:
                    column = f"{dtype_of(test, metric)} {_FIGURES[metric.name]}".strip()
                    yield _key(run, device), column, metric.value


def _key(run: RunResult, device: Device) -> tuple[str, str]:
    """Name a GPU by its node, and its UUID or number there."""
    return device.host or host_of(run), device.uuid or str(device.index)


def host_of(run: RunResult) -> str:
    """Name the node that a run reported from."""
    return run.hostname or run.nodelist or "an unknown node"


def place_of(run: RunResult, test: TestResult) -> str:
    """Name the node, rank and device that a test speaks of."""
    rank = f"rank {test.rank}" if test.rank is not None and run.world_size > 1 else ""
    return ", ".join(filter(None, (test.host or host_of(run), rank, test.device)))


def figures_of(metrics: Sequence[Metric]) -> str:
    """Write the values of a test in a line."""
    measured = [metric for metric in metrics if metric.value is not None]
    return ", ".join(f"{m.name} {number(m.value)} {m.unit}".strip() for m in measured)


def number(value: float | None) -> str:
    """Write a figure with four digits or all of its whole ones; "-" for none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def charts(runs: Sequence[RunResult], kept: Sequence[Measurement]) -> list[Chart]:
    """Give every chart that these results and the kept measurements of their GPUs have data for."""
    return [*_collectives(runs), *_rates(runs), *_histories(runs, kept)]


def _collectives(runs: Sequence[RunResult]) -> Iterator[Chart]:
    """Bus bandwidth over size, of each run with a sweep of sizes; wrong results are ringed."""
    for run in runs:
        lines, bad = list[Line](), list[tuple[float, float]]()
        for test in run.tests:
            points, wrong = _bandwidths(test)
            bad += wrong
            if points:
                sizes, speeds = zip(*points, strict=True)
                lines.append(Line(name=test.name.rpartition(".")[2], x=sizes, y=speeds))
        if lines:
            where = run.hostname if run.nnodes == 1 else f"{run.nnodes} nodes"
            yield LineChart(
                title="Bus bandwidth over size",
                caption=f"{run.world_size} ranks on {where}, {run.backend}",
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
    (slower,) = together([series_of(group, last)])

    def days(time_s: float) -> float:
        return (time_s - first_s) / _DAY_S

    outcome = "too few runs to judge"
    if slower:
        outcome = f"{slower.loss:.1%} worse than its sound runs"
    elif len(since_change(group)) > LEAST_RUNS:
        outcome = "steady"
    return LineChart(
        title=f"{last.test} {last.metric} of {last.gpu_uuid}",
        caption=f"{last.node} {last.device}: {outcome}, {len(group)} runs",
        x=f"days since {datetime.fromtimestamp(first_s, UTC):%Y-%m-%d}",
        y=last.unit,
        lines=[Line(name="", x=[days(p.time) for p in group], y=[p.value for p in group])],
        reference=slower.median if slower else None,
        marks=[(days(change.time), change.after) for change in change_points(group)],
        bad=[(days(last.time), last.value)] if slower else [],
    )
