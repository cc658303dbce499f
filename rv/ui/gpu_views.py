"""GPUs and how they are used: as text for people, and as the documented JSON."""

from typing import Any

from rv.models.gpu_use import GpuUse, nominal_gb, smaller_card
from rv.models.race import RaceStatus


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
