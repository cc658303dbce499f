"""From results to a page: what needs a look, node by node, GPU by GPU, run by run."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rv.accept.codes import blame
from rv.accept.measurements import node_of
from rv.accept.report.charts import Chart
from rv.accept.report.gpus import figures_of, gpu_rows, host_of, number
from rv.accept.report.page import Finding, NodeRow, Page, RunRow
from rv.accept.results import WORST_FIRST, Metric, RunResult, Status, TestResult, worst

_BAD: Final = (Status.FAIL, Status.ERROR, Status.WARN)
_VERSIONS: Final = ("torch", "cuda", "nccl", "cudnn", "driver", "python", "os")


def compose(
    runs: Sequence[RunResult],
    *,
    title: str,
    when: datetime,
    charts: Sequence[Chart],
) -> Page:
    """Lay results out as a page."""
    payloads = list(dict.fromkeys(run.test_type for run in runs))
    columns = figures_of(runs)
    return Page(
        title=title,
        verdict=worst([run.status for run in runs]).value,
        when=f"{when:%Y-%m-%d %H:%M} UTC",
        counts={status.value: sum(run.status is status for run in runs) for status in WORST_FIRST},
        findings=_findings(runs),
        payloads=payloads,
        nodes=_nodes(runs, payloads),
        figures=columns,
        gpus=gpu_rows(runs, columns),
        charts=charts,
        runs=[_run(run) for run in runs],
        environment=_environment(runs),
    )


def _findings(runs: Sequence[RunResult]) -> list[Finding]:
    found = [_finding(run, test) for run in runs for test in run.tests if test.status in _BAD]
    # Nothing that is bad goes unsaid, though no test of it said so.
    silent = [
        run for run in runs if run.status in _BAD and not any(t.status in _BAD for t in run.tests)
    ]
    found += [
        _finding(run, TestResult(name="", status=run.status, reason="it gave no reason"))
        for run in silent
    ]
    return sorted(found, key=lambda one: WORST_FIRST.index(Status(one.status)))


def _finding(run: RunResult, test: TestResult) -> Finding:
    rank = f"rank {test.rank}" if test.rank is not None and run.world_size > 1 else ""
    place = [node_of(test, run) or run.nodelist or "an unknown node", rank, test.device]
    return Finding(
        status=test.status.value,
        where=", ".join(part for part in place if part),
        test=": ".join(part for part in (run.test_type, test.name) if part),
        code=test.code,
        reason=test.reason,
        action=blame(test)[1],
    )


def _nodes(runs: Sequence[RunResult], payloads: Sequence[str]) -> list[NodeRow]:
    said: dict[str, dict[str, list[Status]]] = {}
    for run in runs:
        for node, status in _by_node(run):
            said.setdefault(node, {}).setdefault(run.test_type, []).append(status)
    return [
        NodeRow(
            node=node,
            verdicts=tuple(worst(by[name]).value if name in by else "" for name in payloads),
        )
        for node, by in sorted(said.items())
    ]


def _by_node(run: RunResult) -> list[tuple[str, Status]]:
    """What a run says of its nodes; a verdict that no test gave is of the node that reported."""
    said = [(node_of(test, run) or host_of(run), test.status) for test in run.tests]
    if run.status not in {status for _, status in said}:
        said.append((host_of(run), run.status))
    return said


def _run(run: RunResult) -> RunRow:
    return RunRow(
        payload=run.test_type,
        where=host_of(run),
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
    return f"{metric.name} {number(metric.value)} {metric.unit}".strip()


def _environment(runs: Sequence[RunResult]) -> list[tuple[str, str]]:
    told = [
        (name, ", ".join(sorted(seen)))
        for name in _VERSIONS
        if (seen := {str(run.env[name]) for run in runs if run.env.get(name)})
    ]
    gpus: dict[str, set[str]] = {}
    for run in runs:
        for device in run.devices:
            gpus.setdefault(device.name, set()).add(device.uuid or f"{host_of(run)}:{device.index}")
    models = ", ".join(f"{len(found)} x {name}" for name, found in sorted(gpus.items()))
    return [*([("GPUs", models)] if models else []), *told]
