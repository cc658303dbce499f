"""Readings of NVIDIA GPUs: through NVML where its Python module is installed, else nvidia-smi.

Every figure is optional: what a driver, a MIG slice or a container does not tell is None, never an
error. GPUs are named by UUID, because indices mean different things to torch and to the driver.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

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
    rows = by_uuid(_serials_of_nvml() or _serials_of_smi(program))
    return {uuid: cells[0] for uuid, cells in rows.items() if cells[0].strip("0").isalnum()}


def _serials_of_nvml() -> list[list[str]]:
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    except Exception:
        return []
    names = ("nvmlDeviceGetUUID", "nvmlDeviceGetSerial")
    return [[_text(_ask(getattr(nvml, name), handle)) for name in names] for handle in handles]


def _serials_of_smi(program: str) -> list[list[str]]:
    rows = ask_smi("--query-gpu=uuid,serial", program=program, timeout_s=SERIALS_S)
    return [row for row in rows if len(row) == 2]


@dataclass(frozen=True)
class Reading:
    """One reading of one GPU."""

    utilisation: float | None = None  # per cent
    temperature_c: float | None = None
    power_w: float | None = None
    sm_mhz: float | None = None
    memory_used_mib: float | None = None
    reasons: int | None = None  # why the clock is not higher: a mask of NVML's clocks event reasons


@dataclass(frozen=True)
class Counters:
    """Counters and limits of one GPU: the differences of two are what happened in between."""

    ecc_uncorrected: int | None = None  # volatile: since the driver was loaded
    ecc_corrected: int | None = None
    rows_pending: bool | None = None  # a row waits for a reset to be remapped
    rows_failed: bool | None = None  # a row could not be remapped
    thermal_ns: int | None = None  # time spent slowed down by heat
    power_ns: int | None = None  # time spent at the power limit
    pcie_replays: int | None = None
    energy_mj: int | None = None
    slowdown_c: float | None = None  # the temperature at which the hardware slows itself down
    max_sm_mhz: float | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True)
class Occupant:
    """A process on a GPU, by the number that the driver knows it by."""

    pid: int
    name: str = ""
    memory_mib: float | None = None


def grown(before: int | None, after: int | None) -> int | None:
    """Return what a counter grew by; None unless both ends are known, 0 after a counter's reset."""
    if before is None or after is None:
        return None
    return max(0, after - before)


def bare(uuid: str) -> str:
    """Strip the kind from a UUID: torch says `5c…`, the driver `GPU-5c…` or `MIG-5c…`."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()


class Source(Protocol):
    """Readings of GPUs, by the UUIDs that the source was opened with."""

    name: str
    interval: float  # seconds between two readings that do not disturb the work

    def read(self) -> dict[str, Reading]:
        """Read every GPU once."""
        ...

    def counters(self) -> dict[str, Counters]:
        """Read the counters and limits of every GPU."""
        ...

    def occupants(self) -> dict[str, list[Occupant]]:
        """List the processes on every GPU; one that does not tell is left out."""
        ...


SMI_READING = ("utilization.gpu", "temperature.gpu", "power.draw", "clocks.sm", "memory.used")
SMI_REASONS = (
    "clocks_event_reasons.active",
    "clocks_throttle_reasons.active",  # the name until driver 535
)
SMI_COUNTERS = (
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.corrected.volatile.total",
    "clocks.max.sm",
    "power.limit",
)
SMI_OCCUPANTS = "--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name"
SMI_REMAPPED = "--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure"


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
        remapped = self._ask(SMI_REMAPPED, 2)
        counted = self._ask_names(SMI_COUNTERS)
        return {uuid: _counters(cells, remapped.get(uuid)) for uuid, cells in counted.items()}

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

    def _ask_names(self, names: tuple[str, ...]) -> dict[str, list[str]]:
        return self._ask("--query-gpu=" + ",".join(("uuid", *names)), len(names))

    def _ask(self, query: str, cells: int) -> dict[str, list[str]]:
        """Return the cells of each wanted GPU; a row with more or fewer is no answer."""
        rows = by_uuid(ask_smi(query, program=self._program))
        wanted = {self._wanted[uuid]: row for uuid, row in rows.items() if uuid in self._wanted}
        return {uuid: row for uuid, row in wanted.items() if len(row) == cells}


def _reading(cells: list[str]) -> Reading:
    load, heat, power, clock, memory = (number(cell) for cell in cells[: len(SMI_READING)])
    mask = whole(cells[len(SMI_READING)]) if len(cells) > len(SMI_READING) else None
    return Reading(load, heat, power, clock, memory, mask)


def _counters(cells: list[str], remapped: list[str] | None) -> Counters:
    pending, failed = (cell.lower() == "yes" for cell in remapped) if remapped else (None, None)
    return Counters(
        ecc_uncorrected=whole(cells[0]),
        ecc_corrected=whole(cells[1]),
        rows_pending=pending,
        rows_failed=failed,
        max_sm_mhz=number(cells[2]),
        power_limit_w=number(cells[3]),
    )


THERMAL, POWER = 1, 0  # NVML_PERF_POLICY_THERMAL, NVML_PERF_POLICY_POWER
VOLATILE, CORRECTED, UNCORRECTED = 0, 0, 1
SM_CLOCK, GPU_TEMPERATURE, SLOWDOWN = 1, 0, 1


def open_nvml(uuids: list[str]) -> Nvml | None:
    """Open NVML for these GPUs; None without the module, the library, or any of the GPUs."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:
        return None
    handles = {uuid: found for uuid in uuids if (found := _handles(nvml, uuid))}
    return Nvml(nvml, handles) if handles else None


def _handles(nvml: Any, uuid: str) -> list[Any]:
    """Find a GPU by UUID; behind a MIG slice comes its card, which knows heat and power."""
    for prefix in ("GPU-", "MIG-"):
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(prefix + bare(uuid))
        except Exception:  # noqa: S112 - the next kind of name
            continue
        if prefix == "GPU-":
            return [handle]
        card = _ask(_card_of, nvml, handle)
        return [handle] if card is None else [handle, card]
    return []


def _card_of(nvml: Any, handle: Any) -> Any:
    return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)


def _ask(function: Callable[..., Any], *words: Any) -> Any:
    """Call; None where this driver, card or slice does not tell."""
    try:
        return function(*words)
    except Exception:
        return None


def _text(name: Any) -> str:
    """Return a name, which old modules give as bytes."""
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")


class Nvml:
    """The GPUs of one process, by UUID."""

    name = "nvml"
    interval = 0.1

    def __init__(self, nvml: Any, handles: dict[str, list[Any]]) -> None:
        self._nvml, self._handles = nvml, handles

    def read(self) -> dict[str, Reading]:
        """Read every GPU once."""
        return {uuid: self._reading(handles) for uuid, handles in self._handles.items()}

    def counters(self) -> dict[str, Counters]:
        """Read the counters and limits of every GPU."""
        return {uuid: self._counters(handles) for uuid, handles in self._handles.items()}

    def occupants(self) -> dict[str, list[Occupant]]:
        """List the processes on every GPU, of a MIG slice on it alone."""
        found = {uuid: self._occupants(handles[0]) for uuid, handles in self._handles.items()}
        return {uuid: processes for uuid, processes in found.items() if processes is not None}

    def _occupants(self, handle: Any) -> list[Occupant] | None:
        running = _ask(self._call, "nvmlDeviceGetComputeRunningProcesses", handle)
        if running is None:
            return None
        return [
            Occupant(
                each.pid,
                _text(_ask(self._call, "nvmlSystemGetProcessName", each.pid)),
                None if each.usedGpuMemory is None else each.usedGpuMemory / 2**20,
            )
            for each in running
        ]

    def _first(self, handles: list[Any], function: str, *words: Any) -> Any:
        """Ask the slice, then its card; None where neither tells."""
        for handle in handles:
            answer = _ask(self._call, function, handle, *words)
            if answer is not None:
                return answer
        return None

    def _call(self, function: str, *words: Any) -> Any:
        return getattr(self._nvml, function)(*words)  # an old module lacks new functions

    def _reasons(self, handles: list[Any]) -> int | None:
        """Ask why the clock is not higher, under the name of this driver's generation."""
        for function in ("CurrentClocksEventReasons", "CurrentClocksThrottleReasons"):
            mask = self._first(handles, f"nvmlDeviceGet{function}")
            if mask is not None:
                return int(mask)
        return None

    def _reading(self, handles: list[Any]) -> Reading:
        load = self._first(handles, "nvmlDeviceGetUtilizationRates")
        milliwatts = self._first(handles, "nvmlDeviceGetPowerUsage")
        memory = self._memory(handles)
        return Reading(
            utilisation=None if load is None else float(load.gpu),
            temperature_c=self._first(handles, "nvmlDeviceGetTemperature", GPU_TEMPERATURE),
            power_w=None if milliwatts is None else milliwatts / 1000,
            sm_mhz=self._first(handles, "nvmlDeviceGetClockInfo", SM_CLOCK),
            memory_used_mib=None if memory is None else memory.used / 2**20,
            reasons=self._reasons(handles),
        )

    def _memory(self, handles: list[Any]) -> Any:
        """Ask for the memory in use; the second version leaves out what the driver reserves."""
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        memory = version and self._first(handles, "nvmlDeviceGetMemoryInfo", version)
        return memory or self._first(handles, "nvmlDeviceGetMemoryInfo")

    def _violation(self, handles: list[Any], policy: int) -> int | None:
        status = self._first(handles, "nvmlDeviceGetViolationStatus", policy)
        return None if status is None else int(status.violationTime)

    def _counters(self, handles: list[Any]) -> Counters:
        def ecc(kind: int) -> int | None:
            found: int | None = self._first(handles, "nvmlDeviceGetTotalEccErrors", kind, VOLATILE)
            return found

        rows = self._first(handles, "nvmlDeviceGetRemappedRows")  # corrected, not, pending, failed
        limit = self._first(handles, "nvmlDeviceGetEnforcedPowerLimit")
        return Counters(
            ecc_uncorrected=ecc(UNCORRECTED),
            ecc_corrected=ecc(CORRECTED),
            rows_pending=None if rows is None else bool(rows[2]),
            rows_failed=None if rows is None else bool(rows[3]),
            thermal_ns=self._violation(handles, THERMAL),
            power_ns=self._violation(handles, POWER),
            pcie_replays=self._first(handles, "nvmlDeviceGetPcieReplayCounter"),
            energy_mj=self._first(handles, "nvmlDeviceGetTotalEnergyConsumption"),
            slowdown_c=self._first(handles, "nvmlDeviceGetTemperatureThreshold", SLOWDOWN),
            max_sm_mhz=self._first(handles, "nvmlDeviceGetMaxClockInfo", SM_CLOCK),
            power_limit_w=None if limit is None else limit / 1000,
        )
