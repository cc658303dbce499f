"""The GPUs of results: each once, with its worst verdict and its figures. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from rv.accept.measurements import device_of, dtype_of
from rv.accept.report.page import GpuRow
from rv.accept.results import Device, Metric, RunResult, Status, TestResult, worst

_FIGURES: Final = {
    "tflops": "TFLOPS",
    "stream_copy": "copy, GB/s",
    "h2d_pinned": "to it, GB/s",
    "d2h_pinned": "from it, GB/s",
}
Key = tuple[str, str]
"""A node, and a GPU's UUID or number on it."""


def figures_of(runs: Sequence[RunResult]) -> list[str]:
    """Name the figures that single GPUs have."""
    return list(dict.fromkeys(name for _, _, name, _ in _measured(runs)))


def gpu_rows(runs: Sequence[RunResult], figures: Sequence[str]) -> list[GpuRow]:
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
    known = {_key(run, device): device for run in runs for device in run.devices}
    return [
        GpuRow(
            node=key[0],
            index=device.index,
            name=device.name,
            uuid=device.uuid,
            status=worst(statuses[key]).value if key in statuses else "",
            figures=tuple(number(best.get((key, name))) for name in figures),
        )
        for key, device in sorted(known.items(), key=lambda item: (item[0][0], item[1].index))
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
    return device.host or host_of(run), device.uuid or str(device.index)


def host_of(run: RunResult) -> str:
    """Name the node that a run reported from."""
    return run.hostname or run.nodelist or "an unknown node"


def number(value: float | None) -> str:
    """Write a figure with four digits or all of its whole ones; "-" for none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
