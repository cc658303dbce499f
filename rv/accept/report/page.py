"""What a report shows, as one frozen value; the HTML page and the Markdown text are made of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rv.accept.measurements import device_of, dtype_of, node_of
from rv.accept.report.charts import Chart
from rv.accept.results import WORST_FIRST, Device, Metric, RunResult, Status, TestResult, worst

_BAD: Final = (Status.FAIL, Status.ERROR, Status.WARN)
_VERSIONS: Final = ("torch", "cuda", "nccl", "cudnn", "driver", "python", "os")
_FIGURES: Final = {
    "tflops": "TFLOPS",
    "stream_copy": "copy, GB/s",
    "h2d_pinned": "host to device, GB/s",
    "d2h_pinned": "device to host, GB/s",
}
Key = tuple[str, str]
"""A node, and a GPU's UUID or number on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A test that did not pass: where, why, and what to do."""

    status: str
    where: str
    test: str
    code: str
    reason: str
    action: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRow:
    """The verdict of each of the page's payloads on one node; "" where it did not run."""

    node: str
    verdicts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuRow:
    """One GPU, its worst verdict, and its figures in the order of the page's columns."""

    node: str
    index: int
    name: str
    uuid: str
    status: str
    figures: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """One run of a payload, with every test's outcome and figures."""

    payload: str
    where: str
    status: str
    when: str
    seconds: float
    tests: tuple[tuple[str, str, str, str], ...]
    """Name, status, figures, reason of each test."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A whole report."""

    title: str
    verdict: str
    when: str
    counts: Mapping[str, int]
    findings: Sequence[Finding]
    payloads: Sequence[str]
    nodes: Sequence[NodeRow]
    figures: Sequence[str]
    gpus: Sequence[GpuRow]
    charts: Sequence[Chart]
    runs: Sequence[RunRow]
    environment: Sequence[tuple[str, str]]


def compose(
    runs: Sequence[RunResult],
    *,
    title: str,
    when: datetime,
    charts: Sequence[Chart],
) -> Page:
    """Lay results out as a page."""
    payloads = list(dict.fromkeys(run.test_type for run in runs))
    columns = _figure_names(runs)
    return Page(
        title=title,
        verdict=worst([run.status for run in runs]).value,
        when=f"{when:%Y-%m-%d %H:%M} UTC",
        counts={status.value: sum(run.status is status for run in runs) for status in WORST_FIRST},
        findings=_findings(runs),
        payloads=payloads,
        nodes=_nodes(runs, payloads),
        figures=columns,
        gpus=_gpu_rows(runs, columns),
        charts=charts,
        runs=[_run(run) for run in runs],
        environment=_environment(runs),
    )


def _findings(runs: Sequence[RunResult]) -> list[Finding]:
    """List each test that did not pass, and each bad run without such a test, the worst first."""
    findings = []
    for run in runs:
        tests = [test for test in run.tests if test.status in _BAD]
        if run.status in _BAD and not tests:
            tests = [TestResult(name="", status=run.status, reason="it gave no reason")]
        findings += [_finding(run, test) for test in tests]
    return sorted(findings, key=lambda finding: WORST_FIRST.index(Status(finding.status)))


def _finding(run: RunResult, test: TestResult) -> Finding:
    rank = f"rank {test.rank}" if test.rank is not None and run.world_size > 1 else ""
    place = [node_of(test, run) or run.nodelist or "an unknown node", rank, test.device]
    return Finding(
        status=test.status.value,
        where=", ".join(part for part in place if part),
        test=": ".join(part for part in (run.test_type, test.name) if part),
        code=test.code,
        reason=test.reason,
        action=test.advice,
    )


def _nodes(runs: Sequence[RunResult], payloads: Sequence[str]) -> list[NodeRow]:
    """Give each node a row: the worst status of each payload there."""
    nodes: dict[str, dict[str, list[Status]]] = {}
    for run in runs:
        for node, status in _by_node(run):
            nodes.setdefault(node, {}).setdefault(run.test_type, []).append(status)
    rows = []
    for node, statuses in sorted(nodes.items()):
        verdicts = [worst(statuses[name]).value if name in statuses else "" for name in payloads]
        rows.append(NodeRow(node=node, verdicts=tuple(verdicts)))
    return rows


def _by_node(run: RunResult) -> list[tuple[str, Status]]:
    """Pair nodes with statuses; a run's verdict that no test has is its own node's."""
    statuses = [(node_of(test, run) or _host_of(run), test.status) for test in run.tests]
    if run.status not in {status for _, status in statuses}:
        statuses.append((_host_of(run), run.status))
    return statuses


def _run(run: RunResult) -> RunRow:
    return RunRow(
        payload=run.test_type,
        where=_host_of(run),
        status=run.status.value,
        when=f"{run.timestamp:%Y-%m-%d %H:%M}" if run.timestamp else "-",
        seconds=run.duration_s or 0.0,
        tests=tuple(_row(test) for test in run.tests),
    )


def _row(test: TestResult) -> tuple[str, str, str, str]:
    where = f" ({test.device})" if test.device else ""
    figures = ", ".join(_figure(metric) for metric in test.metrics if metric.value is not None)
    return f"{test.name}{where}", test.status.value, figures, test.reason


def _figure(metric: Metric) -> str:
    return f"{metric.name} {_number(metric.value)} {metric.unit}".strip()


def _environment(runs: Sequence[RunResult]) -> list[tuple[str, str]]:
    """List the GPUs by model, and the versions of the software."""
    gpus: dict[str, set[str]] = {}
    for run in runs:
        for device in run.devices:
            uuid = device.uuid or f"{_host_of(run)}:{device.index}"
            gpus.setdefault(device.name, set()).add(uuid)
    rows = [("GPUs", ", ".join(f"{len(uuids)} x {name}" for name, uuids in sorted(gpus.items())))]
    for name in _VERSIONS:
        versions = {str(run.env[name]) for run in runs if run.env.get(name)}
        rows.append((name, ", ".join(sorted(versions))))
    return [(name, value) for name, value in rows if value]


def _figure_names(runs: Sequence[RunResult]) -> list[str]:
    """Name the figures that single GPUs have."""
    return list(dict.fromkeys(name for _, _, name, _ in _measured(runs)))


def _gpu_rows(runs: Sequence[RunResult], figures: Sequence[str]) -> list[GpuRow]:
    """Give each GPU its row, in the order of nodes and numbers; of several values the best."""
    statuses: dict[Key, list[Status]] = {}
    best: dict[tuple[Key, str], float] = {}
    for run in runs:
        for test in run.tests:
            if device := device_of(test, run):
                statuses.setdefault(_key(run, device), []).append(test.status)
    for run, device, name, value in _measured(runs):
        key = (_key(run, device), name)
        best[key] = max(value, best.get(key, value))
    devices = {_key(run, device): device for run in runs for device in run.devices}
    return [
        GpuRow(
            node=key[0],
            index=device.index,
            name=device.name,
            uuid=device.uuid,
            status=worst(statuses[key]).value if key in statuses else "",
            figures=tuple(_number(best.get((key, name))) for name in figures),
        )
        for key, device in sorted(devices.items(), key=lambda item: (item[0][0], item[1].index))
    ]


def _measured(runs: Sequence[RunResult]) -> Iterator[tuple[RunResult, Device, str, float]]:
    for run in runs:
        for test in run.tests:
            device = device_of(test, run)
            for metric in test.metrics if device else ():
                if metric.name in _FIGURES and metric.value is not None and device:
                    yield run, device, _name(test, metric), metric.value


def _name(test: TestResult, metric: Metric) -> str:
    return f"{dtype_of(test, metric)} {_FIGURES[metric.name]}".strip()


def _key(run: RunResult, device: Device) -> Key:
    return device.host or _host_of(run), device.uuid or str(device.index)


def _host_of(run: RunResult) -> str:
    """Name the node that a run reported from."""
    return run.hostname or run.nodelist or "an unknown node"


def _number(value: float | None) -> str:
    """Write a figure with four digits or all of its whole ones; "-" for none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
