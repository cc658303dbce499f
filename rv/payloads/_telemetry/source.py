"""Where readings come from: NVML where its Python module is, else nvidia-smi, else nowhere."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Protocol

from .nvml import open_nvml
from .smi import Smi

if TYPE_CHECKING:
    from .readings import Counters, Reading


class Source(Protocol):
    """Something that tells of GPUs; both answers are by the UUIDs that it was opened with."""

    name: str
    interval: float  # seconds between two readings that do not disturb the work

    def read(self) -> dict[str, Reading]:
        """Look at every GPU once."""
        ...

    def counters(self) -> dict[str, Counters]:
        """Read the counters and limits of every GPU."""
        ...


def open_source(uuids: list[str]) -> Source | None:
    """Open the best source that knows at least one of the GPUs; None where there is none."""
    nvml = open_nvml(uuids)
    if nvml is not None:
        return nvml
    program = shutil.which("nvidia-smi")
    if not program:
        return None
    smi = Smi(program, uuids)
    return smi if smi.read() else None
