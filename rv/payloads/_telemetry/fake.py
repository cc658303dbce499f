"""A source of made-up readings: for tests, and for `--inject` without GPUs."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from contract.readings import Counters, Links, Occupant, Reading
from contract.xids import SwitchXid, Xid

HEALTHY = Reading(99.0, 66.0, 640.0, 1755.0, 70000.0, 0x4, 5.0, 16.0)
LINKS = Links(up=18, down=0, replays=0, crc=0)
AT_REST = Counters(
    0, 0, rows_pending=False, rows_failed=False, rows_remapped=0, pcie_replays=0, pcie_max_gen=5,
    pcie_max_width=16, links=LINKS, slowdown_c=92.0, max_sm_mhz=1980.0, applications_mhz=1980.0,
    default_applications_mhz=1980.0, power_limit_w=700.0, default_power_w=700.0,
    bus="0000:1b:00", model="a made-up GPU",
)  # fmt: skip

GROWING: dict[str, dict[str, Any]] = {
    "ecc": {"ecc_uncorrected": 1},
    "ecc-corrected": {"ecc_corrected": 500},
    "replays": {"pcie_replays": 900},
    "nvlink-errors": {"links": replace(LINKS, replays=12)},
    "nvlink-crc": {"links": replace(LINKS, crc=7000)},
}
"""By fault what a counter grows by in the run."""
STANDING: dict[str, dict[str, Any]] = {
    "ecc-before": {"ecc_uncorrected": 3},
    "remap": {"rows_pending": True},
    "rows-failed": {"rows_failed": True},
    "rows-remapped": {"rows_remapped": 2},
    "repair": {"repair": "the driver asks for 'Drain and Reset'"},
    "power-limit": {"power_limit_w": 500.0},
    "clocks": {"applications_mhz": 1200.0},
    "nvlink-down": {"links": replace(LINKS, up=16, down=2)},
    "unreadable": {"unreadable": ("memory errors", "PCIe link")},
}
"""By fault what is so before the run already."""
XID = 79
SWITCH = SwitchXid("0000:84:00", 24007, "Fatal, Link 30 sourcetrack timeout error")


class Fake:
    """Healthy GPUs under load; the first of them has the faults, each with its value."""

    name = "fake"
    interval = 0.02

    def __init__(self, uuids: list[str], faults: dict[str, float] | None = None) -> None:
        self._uuids, self._faults, self._looks = uuids, faults or {}, 0

    def read(self) -> dict[str, Reading]:
        """Look at every GPU once."""
        return {uuid: self._reading() if i == 0 else HEALTHY for i, uuid in enumerate(self._uuids)}

    def counters(self) -> dict[str, Counters]:
        """Read the counters: the first answer is the state before the run."""
        self._looks += 1
        found = dict.fromkeys(self._uuids, AT_REST) | {self._uuids[0]: self._counters()}
        if "vanish" in self._faults and self._looks > 1:
            del found[self._uuids[0]]
        return found

    def lost(self, buses: dict[str, str]) -> dict[str, str]:
        """Tell of the first GPU that it is gone."""
        return dict.fromkeys(buses, "a made-up driver does not list it any more")

    def xids(self) -> dict[str, list[Xid | SwitchXid]]:
        """Tell of an Xid or SXid, where that is a fault, after the first call: on the first GPU, or
        on a switch."""
        if self._looks < 2:
            return {}
        number, of_switch = self._faults.get("xid"), "sxid" in self._faults
        told = {} if number is None else {self._uuids[0]: [Xid("", int(number))]}
        return {**told, **({"": [SWITCH]} if of_switch else {})}

    def occupants(self) -> dict[str, list[Occupant]]:
        """List this process, and on the first GPU another's, where that is a fault: number 1."""
        own = [Occupant(os.getpid(), "python", 0.0)]
        both = [*own, Occupant(1, "python", 4000.0)] if "busy" in self._faults else own
        return {uuid: both if i == 0 else own for i, uuid in enumerate(self._uuids)}

    def _reading(self) -> Reading:
        fault = self._faults.get
        return replace(
            HEALTHY,
            reasons=int(fault("throttle-mask", HEALTHY.reasons or 0)),
            temperature_c=fault("temperature", HEALTHY.temperature_c or 0),
            utilisation=fault("utilisation", HEALTHY.utilisation or 0),
            memory_used_mib=fault("held", HEALTHY.memory_used_mib or 0),
            pcie_gen=fault("pcie-gen", HEALTHY.pcie_gen or 0),
            pcie_width=fault("pcie-width", HEALTHY.pcie_width or 0),
            sm_mhz=fault("sm-clock", HEALTHY.sm_mhz or 0),
        )

    def _counters(self) -> Counters:
        changes: dict[str, Any] = {}
        for name in self._faults:
            changes |= STANDING.get(name, {})
            changes |= GROWING.get(name, {}) if self._looks > 1 else {}
        return replace(AT_REST, **changes)
