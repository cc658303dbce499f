"""GPUs and how they are used: as text for people, and as the documented JSON."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from rv.models.gpu_use import GpuNow, GpuProcess, GpuSums, GpuUse, nominal_gb, smaller_card
from rv.models.race import RaceStatus
from rv.ui.tables import Part, Table

if TYPE_CHECKING:
    from rv.race.gpu_use import RaceGpus
    from rv.slurm.nvidia_smi import NodeGpus


def gpu_use_sentence(status: RaceStatus) -> str:
    """Say how a race used its GPUs, and whether a smaller card would do; "" where nobody knows."""
    use = status.gpu_use
    if use is None:
        return ""
    memory = f"{_gb(use.peak_mib)} of {nominal_gb(use.card_mib)} GB"
    busy = "" if use.utilization is None else f"{use.utilization:.0f} %, "
    smaller = smaller_card(use, status.race.card_sizes)
    advice = f": a {nominal_gb(smaller)} GB card would do" if smaller else ""
    return f"GPU use {busy}{memory}{advice}"


def gpu_use_document(status: RaceStatus) -> dict[str, Any] | None:
    """Describe how a race used its GPUs; None where nothing was measured."""
    use = status.gpu_use
    if use is None:
        return None
    return {
        "gpus": use.gpus,
        "samples": use.samples,
        "utilization": _rounded(use),
        "peak_mib": use.peak_mib,
        "card_mib": use.card_mib,
        "smaller_card_mib": smaller_card(use, status.race.card_sizes),
    }


def _rounded(use: GpuUse) -> float | None:
    return None if use.utilization is None else round(use.utilization, 1)


def _gb(memory_mib: int) -> str:
    """Write memory in whole GB, less than one with a decimal."""
    gb = memory_mib / 1024
    return f"{gb:.1f}" if 0.05 <= gb < 0.95 else f"{gb:.0f}"


def race_gpus_text(looked: "RaceGpus") -> list[Part]:
    """Show the GPUs of a race as they are, or what was measured where it is over."""
    if looked.sums:
        race_id, state = looked.status.race.race_id, looked.status.state
        title = f"race {race_id} {state}: {gpu_use_sentence(looked.status)}"
        return [Table(head=_SUMS_HEAD, rows=list(map(_sums_row, looked.sums)), title=title)]
    gpus = [gpu for answer in looked.now for gpu in answer.gpus]
    notes = [_without_gpus(answer) for answer in looked.now if not answer.gpus]
    tables: list[Part] = [_now_table(gpus)] if gpus else []
    return [*tables, "\n".join(notes)] if notes else tables


def _without_gpus(answer: "NodeGpus") -> str:
    """Say why a node shows no GPU."""
    return f"{answer.node}: {answer.failure or 'shows no GPU of this job'}"


def _now_table(gpus: Sequence[GpuNow]) -> Table:
    """Lay out GPUs, without the columns that no card tells."""
    columns = [(title, [cell(gpu) for gpu in gpus]) for title, cell in _NOW_COLUMNS]
    kept = [
        (title, cells)
        for title, cells in columns
        if title not in _OPTIONAL or any(cell != "-" for cell in cells)
    ]
    rows = list(zip(*(cells for _, cells in kept), strict=True))
    return Table(head=[title for title, _ in kept], rows=rows)


def _memory(gpu: GpuNow) -> str:
    return f"{_or_dash(gpu.memory_mib)} of {_or_dash(gpu.total_mib)} MiB" if gpu.total_mib else "-"


def _process(process: GpuProcess) -> str:
    memory = "" if process.memory_mib is None else f" {process.memory_mib} MiB"
    return f"{process.pid} {process.user} {process.name}{memory}"


def _or_dash(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.0f}{unit}"


_OPTIONAL: Final = ("POWER", "TEMP")
_NOW_COLUMNS: Final[tuple[tuple[str, Callable[[GpuNow], str]], ...]] = (
    ("NODE", lambda gpu: gpu.node),
    ("GPU", lambda gpu: str(gpu.index)),
    ("MODEL", lambda gpu: gpu.model),
    ("USE", lambda gpu: _or_dash(gpu.utilization, " %")),
    ("MEMORY", _memory),
    ("POWER", lambda gpu: _or_dash(gpu.power_w, " W")),
    ("TEMP", lambda gpu: _or_dash(gpu.temperature_c, " °C")),
    ("PROCESSES", lambda gpu: "; ".join(map(_process, gpu.processes)) or "-"),
)
_SUMS_HEAD: Final = ("NODE", "GPU", "MODEL", "USE", "PEAK MEMORY", "SAMPLES")


def _sums_row(one: GpuSums) -> tuple[str, ...]:
    return (
        one.node,
        str(one.index),
        one.model,
        _or_dash(one.utilization, " %"),
        f"{one.peak_mib} of {one.total_mib} MiB",
        str(one.samples),
    )


def race_gpus_document(looked: "RaceGpus") -> dict[str, Any]:
    """Describe the GPUs of a race: `gpus` as they are, or `measured` where it is over."""
    return {
        "race": looked.status.race.race_id,
        "state": looked.status.state,
        "gpus": [_now_document(gpu) for answer in looked.now for gpu in answer.gpus],
        "failures": [
            {"node": answer.node, "why": answer.failure} for answer in looked.now if answer.failure
        ],
        "measured": [_sums_document(one) for one in looked.sums],
        "gpu_use": gpu_use_document(looked.status),
    }


def _now_document(gpu: GpuNow) -> dict[str, Any]:
    return {
        "node": gpu.node,
        "index": gpu.index,
        "model": gpu.model,
        "utilization": gpu.utilization,
        "memory_mib": gpu.memory_mib,
        "total_mib": gpu.total_mib,
        "power_w": gpu.power_w,
        "temperature_c": gpu.temperature_c,
        "processes": [
            {
                "pid": process.pid,
                "user": process.user,
                "name": process.name,
                "memory_mib": process.memory_mib,
            }
            for process in gpu.processes
        ],
    }


def _sums_document(one: GpuSums) -> dict[str, Any]:
    return {
        "node": one.node,
        "index": one.index,
        "model": one.model,
        "utilization": None if one.utilization is None else round(one.utilization, 1),
        "peak_mib": one.peak_mib,
        "total_mib": one.total_mib,
        "samples": one.samples,
    }
