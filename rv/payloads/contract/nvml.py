"""Readings of NVIDIA GPUs through NVML, where its Python module is installed."""

from __future__ import annotations

import importlib
import itertools
from typing import TYPE_CHECKING, Any

from .readings import NO_LINKS, Counters, Links, Occupant, Reading, bare, bus_of
from .repairs import told_by_nvml
from .xids import Xid

if TYPE_CHECKING:
    from collections.abc import Callable

    from .xids import SwitchXid

THERMAL, POWER = 1, 0  # NVML_PERF_POLICY_THERMAL, NVML_PERF_POLICY_POWER
VOLATILE, CORRECTED, UNCORRECTED = 0, 0, 1
GRAPHICS_CLOCK, SM_CLOCK, GPU_TEMPERATURE, SLOWDOWN = 0, 1, 0, 1
TOTAL_ERRORS = "nvmlDeviceGetTotalEccErrors"
MOST_LINKS = 18  # NVML_NVLINK_MAX_LINKS
REPLAYS, CRC = (0, 1), (2,)
"""NVML_NVLINK_ERROR_DL_REPLAY and _RECOVERY; _CRC_FLIT, as `nvidia-smi nvlink -e` counts them.

_CRC_DATA is left out: two H200s whose links had no error in `nvidia-smi` counted 176 a second.
"""
LACKING = ("NotSupported", "NotFound", "InvalidArgument", "Deprecated")
"""How the names of NVML's errors end that say that a GPU, a slice or a driver has no such thing."""

LOST = ("GpuIsLost", "ResetRequired")
"""The same of those of a GPU that does not answer any more."""


GONE = (*LOST, "NotFound", "Unknown")
"""The same of a name that NVML knew before."""


def open_nvml(uuids: list[str]) -> Nvml | None:
    """Open NVML for these GPUs; None without the module, the library, or any of the GPUs."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:
        return None
    handles = {uuid: found for uuid in uuids if (found := _handles(nvml, uuid))}
    return Nvml(nvml, handles) if handles else None


def nvml_serials() -> list[list[str]]:
    """Return UUID and serial number of every GPU; none where NVML does not answer."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    except Exception:
        return []
    names = ("nvmlDeviceGetUUID", "nvmlDeviceGetSerial")
    return [[_text(_ask(getattr(nvml, name), handle)) for name in names] for handle in handles]


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
        self._events: Any = None

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

    def xids(self) -> dict[str, list[Xid | SwitchXid]] | None:
        """Return the Xids since the last call; None where this driver does not tell of events."""
        if self._events is None:
            self._events = _ask(self._register)
            return None if self._events is None else {}
        found: dict[str, list[Xid | SwitchXid]] = {}
        while (event := _ask(self._call, "nvmlEventSetWait_v2", self._events, 0)) is not None:
            for uuid in self._of_card(event.device) or [""]:
                found.setdefault(uuid, []).append(Xid("", int(event.eventData)))
        return found

    def _of_card(self, card: Any) -> list[str]:
        """Return the GPU, or every slice of it that is ours: the driver tells of whole cards."""
        uuid = self._uuid(card)
        cards = {each: self._uuid(handles[-1]) for each, handles in self._handles.items()}
        return [each for each, own in cards.items() if own == uuid != ""]

    def _uuid(self, handle: Any) -> str:
        return bare(_text(_ask(self._call, "nvmlDeviceGetUUID", handle)))

    def lost(self, buses: dict[str, str]) -> dict[str, str]:
        """Return the GPUs that NVML does not find any more; one that it may not tell of is none."""
        found = {uuid: self._loss(uuid) for uuid in buses}
        return {uuid: said for uuid, said in found.items() if said}

    def _loss(self, uuid: str) -> str:
        """Say what NVML says of a GPU's name: "" where it finds it, or says nothing of it."""
        said = ""
        for prefix in ("GPU-", "MIG-"):
            try:
                self._call("nvmlDeviceGetHandleByUUID", prefix + bare(uuid))
            except Exception as error:
                name = type(error).__name__.removeprefix("NVMLError_")
                if name not in GONE:
                    return ""
                said = said or f"the driver does not find it any more ({name})"
            else:
                return ""
        return said

    def _register(self) -> Any:
        """Ask to be told of the Xids of all cards; raises where that is not possible."""
        events = self._call("nvmlEventSetCreate")
        for handles in self._handles.values():
            kind = self._nvml.nvmlEventTypeXidCriticalError
            self._call("nvmlDeviceRegisterEvents", handles[-1], kind, events)
        return events

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
            pcie_gen=self._first(handles, "nvmlDeviceGetCurrPcieLinkGeneration"),
            pcie_width=self._first(handles, "nvmlDeviceGetCurrPcieLinkWidth"),
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
        ask = _Asking(self._nvml, handles)
        rows = ask("remapped rows", "nvmlDeviceGetRemappedRows")  # corrected, not, pending, failed
        limit = ask("power limit", "nvmlDeviceGetEnforcedPowerLimit")
        default_power = ask("power limit", "nvmlDeviceGetPowerManagementDefaultLimit")
        return Counters(
            ecc_uncorrected=ask("memory errors", TOTAL_ERRORS, UNCORRECTED, VOLATILE),
            ecc_corrected=ask("memory errors", TOTAL_ERRORS, CORRECTED, VOLATILE),
            rows_pending=None if rows is None else bool(rows[2]),
            rows_failed=None if rows is None else bool(rows[3]),
            rows_remapped=None if rows is None else int(rows[1]),
            thermal_ns=self._violation(handles, THERMAL),
            power_ns=self._violation(handles, POWER),
            pcie_replays=ask("PCIe replays", "nvmlDeviceGetPcieReplayCounter"),
            pcie_max_gen=ask("PCIe link", "nvmlDeviceGetMaxPcieLinkGeneration"),
            pcie_max_width=ask("PCIe link", "nvmlDeviceGetMaxPcieLinkWidth"),
            links=self._links(handles[-1]),
            energy_mj=self._first(handles, "nvmlDeviceGetTotalEnergyConsumption"),
            slowdown_c=self._first(handles, "nvmlDeviceGetTemperatureThreshold", SLOWDOWN),
            max_sm_mhz=ask("clocks", "nvmlDeviceGetMaxClockInfo", SM_CLOCK),
            applications_mhz=ask("clocks", "nvmlDeviceGetApplicationsClock", GRAPHICS_CLOCK),
            default_applications_mhz=ask(
                "clocks", "nvmlDeviceGetDefaultApplicationsClock", GRAPHICS_CLOCK
            ),
            power_limit_w=None if limit is None else limit / 1000,
            default_power_w=None if default_power is None else default_power / 1000,
            bus=self._bus(handles),
            model=_text(self._first(handles[-1:], "nvmlDeviceGetName")),
            # A slice leaves much to its card, which a container may not ask.
            unreadable=tuple(ask.unreadable) if len(handles) == 1 else (),
            repair="; ".join(filter(None, (ask.lost, *told_by_nvml(self._nvml, handles[-1])))),
        )

    def _bus(self, handles: list[Any]) -> str:
        """Return the PCI bus id, by which the kernel's log names the GPU."""
        pci = self._first(handles, "nvmlDeviceGetPciInfo")
        return "" if pci is None else bus_of(_text(pci.busId))

    def _links(self, handle: Any) -> Links:
        """Count the NVLinks that are up and down, and their errors."""
        asked = (
            _ask(self._call, "nvmlDeviceGetNvLinkState", handle, link) for link in range(MOST_LINKS)
        )
        states = list(itertools.takewhile(lambda state: state is not None, asked))
        if not states:
            return NO_LINKS
        replays, crc = (self._link_errors(handle, len(states), kinds) for kinds in (REPLAYS, CRC))
        up = sum(map(bool, states))
        return Links(up, len(states) - up, replays, crc)

    def _link_errors(self, handle: Any, links: int, kinds: tuple[int, ...]) -> int | None:
        """Add up the errors of these kinds on all links; None where none is told."""
        every = itertools.product(range(links), kinds)
        told = [
            _ask(self._call, "nvmlDeviceGetNvLinkErrorCounter", handle, link, kind)
            for link, kind in every
        ]
        known = [int(errors) for errors in told if errors is not None]
        return sum(known) if known else None


class _Asking:
    """Asks a slice, then its card, and notes what they have and would not tell."""

    def __init__(self, nvml: Any, handles: list[Any]) -> None:
        self._nvml, self._handles = nvml, handles
        self.unreadable: list[str] = []
        self.lost = ""

    def __call__(self, subject: str, function: str, *words: Any) -> Any:
        """Return the first answer; None where there is none."""
        for handle in self._handles:
            try:
                return getattr(self._nvml, function)(handle, *words)
            except AttributeError:
                return None  # an old module
            except Exception as error:
                name = type(error).__name__
                if name.endswith(LOST):
                    self.lost = f"the driver says {name.removeprefix('NVMLError_')}"
                if name.startswith("NVMLError") and not name.endswith(LACKING):
                    self.unreadable += [subject] * (subject not in self.unreadable)
        return None
