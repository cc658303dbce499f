"""Readings from the program nvidia-smi: slower and poorer than NVML, but nearly always there."""

from __future__ import annotations

import subprocess

from .readings import Counters, Reading, bare

NAMES = ("utilization.gpu", "temperature.gpu", "power.draw", "clocks.sm", "memory.used")
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # new name, old name
COUNTED = (
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.corrected.volatile.total",
    "clocks.max.sm",
    "power.limit",
)
ROWS = "--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure"
PATIENCE = 20.0  # seconds: a driver in trouble can hold nvidia-smi for ever


def rows(text: str) -> dict[str, list[str]]:
    """Read `csv,noheader,nounits` whose first column is the UUID; other lines say nothing."""
    table = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if cells[0].startswith("GPU-"):
            table[bare(cells[0])] = cells[1:]
    return table


def number(cell: str) -> float | None:
    """Read a figure; None for `[N/A]` and the like."""
    try:
        return float(int(cell, 16) if cell.startswith("0x") else float(cell))
    except ValueError:
        return None


def whole(cell: str) -> int | None:
    """Read a whole figure; None for `[N/A]` and the like."""
    value = number(cell)
    return None if value is None else int(value)


class Smi:
    """The GPUs of one process, by UUID; a MIG slice is not known here."""

    name = "nvidia-smi"
    interval = 1.0

    def __init__(self, program: str, uuids: list[str]) -> None:
        self._program = program
        self._wanted = {bare(uuid): uuid for uuid in uuids}
        self._reasons = next((name for name in REASONS if self._ask((name,))), None)

    def read(self) -> dict[str, Reading]:
        """Look at every GPU once."""
        names = (*NAMES, *([self._reasons] if self._reasons else []))
        return {uuid: _reading(cells) for uuid, cells in self._ask(names).items()}

    def counters(self) -> dict[str, Counters]:
        """Read the counters and limits of every GPU."""
        remapped = self._mine(rows(self._run(ROWS)))
        found = self._ask(COUNTED)
        return {uuid: _counters(cells, remapped.get(uuid, [])) for uuid, cells in found.items()}

    def _ask(self, names: tuple[str, ...]) -> dict[str, list[str]]:
        found = rows(self._run("--query-gpu=" + ",".join(("uuid", *names))))
        return self._mine({u: cells for u, cells in found.items() if len(cells) == len(names)})

    def _mine(self, table: dict[str, list[str]]) -> dict[str, list[str]]:
        return {self._wanted[uuid]: cells for uuid, cells in table.items() if uuid in self._wanted}

    def _run(self, query: str) -> str:
        command = [self._program, query, "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout if done.returncode == 0 else ""


def _reading(cells: list[str]) -> Reading:
    load, heat, power, clock, memory = (number(cell) for cell in cells[: len(NAMES)])
    mask = whole(cells[len(NAMES)]) if len(cells) > len(NAMES) else None
    return Reading(load, heat, power, clock, memory, mask)


def _counters(cells: list[str], remapped: list[str]) -> Counters:
    pending, failed = (
        (cell.lower() == "yes" for cell in remapped) if len(remapped) == 2 else (None, None)
    )
    return Counters(
        ecc_uncorrected=whole(cells[0]),
        ecc_corrected=whole(cells[1]),
        rows_pending=pending,
        rows_failed=failed,
        max_sm_mhz=number(cells[2]),
        power_limit_w=number(cells[3]),
    )
