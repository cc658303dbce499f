"""Each GPU once, with its figures beside what they should be. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rv.accept.measurements import bare_uuid, device_of, dtype_of
from rv.accept.report.expected import Compared
from rv.accept.report.places import host_of, number
from rv.accept.results import WORST_FIRST, Device, RunResult, Status, worst
from rv.accept.untrusted import number_of, text_of
from rv.dataclass import dataclass

_FIGURES: Final = {
    "tflops": "TFLOPS",
    "stream_copy": "copy, GB/s",
    "h2d_pinned": "to GPU, GB/s",
    "d2h_pinned": "from GPU, GB/s",
}
_SEEN: Final = {
    "temp_max": "hottest, C",
    "power_avg": "power, W",
    "sm_mhz_median": "clock, MHz",
}
"""What the telemetry saw under load, by its names in results."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One figure of a GPU; `share` is the part of `expected` reached, None where none is known."""

    name: str
    value: float | None = None
    expected: float | None = None
    share: float | None = None
    basis: str = ""
    status: Status | None = None

    @property
    def text(self) -> str:
        """The value as text; "-" for none."""
        return number(self.value)

    @property
    def beside(self) -> str:
        """What it is held against, as text; "" for nothing."""
        if self.expected is None or self.share is None:
            return ""
        return f"{self.share:.0%} of {number(self.expected)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuRow:
    """One GPU on its node, its worst verdict, and its figures in the order of the columns."""

    node: str
    device: Device
    status: Status | str
    figures: Sequence[Figure]

    @property
    def serial(self) -> str:
        """Its serial number; "" where no result has it."""
        return text_of(self.device.more.get("serial"))

    @property
    def uuid(self) -> str:
        """Its UUID as the driver writes it, whole; "" where no result has it."""
        uuid = self.device.uuid
        return f"GPU-{uuid}" if len(uuid) == 36 and uuid.count("-") == 4 else uuid

    @property
    def share(self) -> float:
        """The least share of its figures; 1 where there is none."""
        return min((each.share for each in self.figures if each.share is not None), default=1.0)


def gpu_rows(runs: Sequence[RunResult], numbers: Sequence[Compared]) -> list[GpuRow]:
    """Give each GPU once, whatever name a payload has for it.

    The worst verdicts come first, of equal ones those that reached the least. Of several values of
    a figure the best counts.
    """
    statuses, best = _statuses(runs), _best([*_rates(numbers), *_readings(runs)])
    columns = dict.fromkeys(name for figures in best.values() for name in figures)
    rows = [
        GpuRow(
            node=node,
            device=device,
            status=worst(statuses[key]) if key in statuses else "",
            figures=[best.get(key, {}).get(name, Figure(name=name)) for name in columns],
        )
        for key, (node, device) in _devices(runs).items()
    ]
    return sorted(rows, key=_worst_first)


def _best(figures: Iterable[tuple[str, Figure]]) -> Mapping[str, Mapping[str, Figure]]:
    """Give each GPU's figures by name; of several values the highest."""
    best: dict[str, dict[str, Figure]] = {}
    for key, figure in figures:
        before = best.setdefault(key, {}).get(figure.name)
        if before is None or (figure.value or 0.0) > (before.value or 0.0):
            best[key][figure.name] = figure
    return best


def _worst_first(row: GpuRow) -> tuple[int, float, str, int]:
    rank = WORST_FIRST.index(Status(row.status)) if row.status else len(WORST_FIRST)
    is_bad = row.status in (Status.FAIL, Status.ERROR, Status.WARN)
    return (rank if is_bad else len(WORST_FIRST), row.share, row.node, row.device.index)


def key_of(run: RunResult, device: Device) -> str:
    """Name a GPU by its UUID, else by its node and number there."""
    if device.uuid:
        return bare_uuid(device.uuid)
    return f"{device.host or host_of(run)} {device.index}"


def _statuses(runs: Sequence[RunResult]) -> Mapping[str, list[Status]]:
    statuses: dict[str, list[Status]] = {}
    for run in runs:
        for test in run.tests:
            if device := device_of(test, run):
                statuses.setdefault(key_of(run, device), []).append(test.status)
    return statuses


def _devices(runs: Sequence[RunResult]) -> Mapping[str, tuple[str, Device]]:
    """Give each GPU with its node; what only some payloads know of it is put together."""
    found: dict[str, tuple[str, Device]] = {}
    for run in runs:
        for device in run.devices:
            node, known = found.get(key_of(run, device), (device.host or host_of(run), device))
            more = {**device.more, **{k: v for k, v in known.more.items() if v is not None}}
            found[key_of(run, device)] = (node, replace(known, more=more))
    return found


def _rates(numbers: Sequence[Compared]) -> Iterator[tuple[str, Figure]]:
    for each in numbers:
        device = device_of(each.test, each.run)
        if device is None or each.metric.name not in _FIGURES:
            continue
        name = f"{dtype_of(each.test, each.metric)} {_FIGURES[each.metric.name]}".strip()
        yield (
            key_of(each.run, device),
            Figure(
                name=name,
                value=each.measured.value,
                expected=each.expected,
                share=each.share,
                basis=each.basis,
                status=each.metric.verdict,
            ),
        )


def _readings(runs: Sequence[RunResult]) -> Iterator[tuple[str, Figure]]:
    for run in runs:
        for test in run.tests:
            device = device_of(test, run) if test.name == "telemetry" else None
            for field, name in _SEEN.items() if device else ():
                value = number_of(test.details.get(field))
                if value is not None and device:
                    yield key_of(run, device), Figure(name=name, value=round(value))
