"""Readings from the driver's own library, through the module `pynvml` (package nvidia-ml-py)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .readings import Counters, Reading, bare

if TYPE_CHECKING:
    from collections.abc import Callable

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


class Nvml:
    """The GPUs of one process, by UUID."""

    name = "nvml"
    interval = 0.1

    def __init__(self, nvml: Any, handles: dict[str, list[Any]]) -> None:
        self._nvml, self._handles = nvml, handles

    def read(self) -> dict[str, Reading]:
        """Look at every GPU once."""
        return {uuid: self._reading(handles) for uuid, handles in self._handles.items()}

    def counters(self) -> dict[str, Counters]:
        """Read the counters and limits of every GPU."""
        return {uuid: self._counters(handles) for uuid, handles in self._handles.items()}

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
        memory = self._first(handles, "nvmlDeviceGetMemoryInfo")
        return Reading(
            utilisation=None if load is None else float(load.gpu),
            temperature_c=self._first(handles, "nvmlDeviceGetTemperature", GPU_TEMPERATURE),
            power_w=None if milliwatts is None else milliwatts / 1000,
            sm_mhz=self._first(handles, "nvmlDeviceGetClockInfo", SM_CLOCK),
            memory_used_mib=None if memory is None else memory.used / 2**20,
            reasons=self._reasons(handles),
        )

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
