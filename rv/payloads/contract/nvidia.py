"""Readings of NVIDIA GPUs: through NVML where its Python module is installed, else nvidia-smi.

Every figure is optional: what a driver, a MIG slice or a container does not tell is None, never an
error. GPUs are named by UUID, because indices mean different things to torch and to the driver.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from .nvml import nvml_serials, open_nvml
from .readings import NO_LINKS, Counters, Occupant, Reading, bare
from .smi_text import parse_links, parse_lost, parse_query
from .topology import parse_topology

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from .readings import Source
    from .topology import Connection

TIMEOUT_S = 20.0  # a driver in trouble can hold nvidia-smi for ever
SERIALS_S = 5.0  # serial numbers are worth no longer wait


def open_source(uuids: list[str]) -> Source | None:
    """Return the best source that knows at least one of the GPUs; None where there is none."""
    nvml = open_nvml(uuids)
    if nvml is not None:
        return nvml
    program = shutil.which("nvidia-smi")
    if not program:
        return None
    smi = Smi(program, uuids)
    return smi if smi.read() else None


def ask_smi(
    query: str, *options: str, program: str = "nvidia-smi", timeout_s: float = TIMEOUT_S
) -> list[list[str]]:
    """Return the rows that nvidia-smi answers to a query such as `--query-gpu=uuid,memory.used`.

    Without units; no rows where it is absent, fails, or takes too long.
    """
    answer = _run_smi([program, query, *options, "--format=csv,noheader,nounits"], timeout_s)
    return [[cell.strip() for cell in line.split(",")] for line in answer.splitlines()]


def mig_uuids() -> list[str]:
    """Return the UUIDs of the MIG slices that nvidia-smi lists, in its order."""
    return re.findall(r"UUID: (MIG-[^)]+)\)", _run_smi(["nvidia-smi", "-L"], TIMEOUT_S))


def connections() -> dict[tuple[str, str], Connection]:
    """Return what joins each two GPUs, by their bare UUIDs; {} where nvidia-smi does not tell."""
    rows = [row for row in ask_smi("--query-gpu=index,uuid") if len(row) == 2]
    names = {int(index): bare(uuid) for index, uuid in rows if index.isdecimal()}
    found = parse_topology(_run_smi(["nvidia-smi", "topo", "-m"], TIMEOUT_S)) if names else {}
    return {
        (names[one], names[other]): connection
        for (one, other), connection in found.items()
        if one in names and other in names
    }


def used_memory_mib() -> dict[str, int]:
    """Return the memory in use by GPU UUID; {} where nvidia-smi is absent or does not say."""
    rows = (row for row in ask_smi("--query-gpu=uuid,memory.used") if len(row) == 2)
    return {uuid: int(mib) for uuid, mib in rows if mib.isdecimal()}


@contextlib.contextmanager
def recorded(path: Path | None) -> Iterator[None]:
    """Let nvidia-smi write load and memory to a file once a second, if it is installed."""
    if path is None:
        yield
        return
    fields = "timestamp,index,utilization.gpu,memory.used"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv", "-l", "1"]
    with path.open("w") as file:
        try:
            recorder = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
        except OSError:
            yield
            return
        try:
            yield
        finally:
            recorder.kill()
            recorder.wait()


def _run_smi(command: list[str], timeout_s: float) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def by_uuid(rows: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Return rows whose first cell is a UUID by it, without its prefix; others are messages."""
    return {bare(uuid): list(cells) for uuid, *cells in rows if uuid.startswith("GPU-")}


def serial_numbers(program: str = "nvidia-smi") -> dict[str, str]:
    """Return the serial numbers of the boards by bare UUID; cards without one are left out."""
    rows = by_uuid(nvml_serials() or _serials_of_smi(program))
    return {uuid: cells[0] for uuid, cells in rows.items() if cells[0].strip("0").isalnum()}


def _serials_of_smi(program: str) -> list[list[str]]:
    rows = ask_smi("--query-gpu=uuid,serial", program=program, timeout_s=SERIALS_S)
    return [row for row in rows if len(row) == 2]


SMI_READING = (
    "utilization.gpu", "temperature.gpu", "power.draw", "clocks.sm", "memory.used",
    "pcie.link.gen.current", "pcie.link.width.current",
)  # fmt: skip
SMI_REASONS = (
    "clocks_event_reasons.active",
    "clocks_throttle_reasons.active",  # the name until driver 535
)
SMI_OCCUPANTS = "--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name"


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
        self._reasons = next((name for name in SMI_REASONS if self._ask_names((name,))), None)

    def read(self) -> dict[str, Reading]:
        """Read every GPU once."""
        names = (*SMI_READING, *([self._reasons] if self._reasons else []))
        return {uuid: _reading(cells) for uuid, cells in self._ask_names(names).items()}

    def counters(self) -> dict[str, Counters]:
        """Read the counters and limits of every GPU."""
        queries = (("-q", "-x"), ("nvlink", "-s"), ("nvlink", "-e"))
        with ThreadPoolExecutor() as threads:  # each takes about a second
            query, states, errors = threads.map(lambda words: self._text(*words), queries)
        counted, links = parse_query(query), parse_links(states, errors)
        return {
            self._wanted[bare(uuid)]: replace(counters, links=links.get(uuid, NO_LINKS))
            for uuid, counters in counted.items()
            if bare(uuid) in self._wanted
        }

    def occupants(self) -> dict[str, list[Occupant]]:
        """List the processes on every GPU; in MIG mode none, whose slice would not be told."""
        found: dict[str, list[Occupant]] = {
            uuid: [] for uuid, (mode,) in self._ask_names(("mig.mode.current",)).items()
            if mode != "Enabled"
        }  # fmt: skip
        for uuid, pid, memory, *name in ask_smi(SMI_OCCUPANTS, program=self._program):
            known = self._wanted.get(bare(uuid), "")
            if known in found and pid.isdecimal():
                found[known].append(Occupant(int(pid), ", ".join(name), number(memory)))
        return found

    def xids(self) -> None:
        """Tell nothing: nvidia-smi does not know of Xids, but the kernel's log does."""

    def lost(self, buses: dict[str, str]) -> dict[str, str]:
        """Return the GPUs that nvidia-smi does not list any more, as `parse_lost` reads it."""
        command = [self._program, "-L"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
        except (OSError, subprocess.SubprocessError):
            return {}
        said = (done.stdout + done.stderr).decode(errors="replace")
        return parse_lost(done.returncode, said, buses)

    def _text(self, *words: str) -> str:
        return _run_smi([self._program, *words], TIMEOUT_S)

    def _ask_names(self, names: tuple[str, ...]) -> dict[str, list[str]]:
        return self._ask("--query-gpu=" + ",".join(("uuid", *names)), len(names))

    def _ask(self, query: str, cells: int) -> dict[str, list[str]]:
        """Return the cells of each wanted GPU; a row with more or fewer is no answer."""
        rows = by_uuid(ask_smi(query, program=self._program))
        wanted = {self._wanted[uuid]: row for uuid, row in rows.items() if uuid in self._wanted}
        return {uuid: row for uuid, row in wanted.items() if len(row) == cells}


def _reading(cells: list[str]) -> Reading:
    figures = [number(cell) for cell in cells[: len(SMI_READING)]]
    mask = whole(cells[len(SMI_READING)]) if len(cells) > len(SMI_READING) else None
    load, heat, power, clock, memory, gen, width = figures
    return Reading(load, heat, power, clock, memory, mask, gen, width)
