"""A source of made-up readings: for tests, and for `--inject` without GPUs."""

from __future__ import annotations

import os
from dataclasses import replace

from contract.nvidia import Counters, Occupant, Reading

HEALTHY = Reading(99.0, 66.0, 640.0, 1755.0, 70000.0, 0x4)
AT_REST = Counters(0, 0, rows_pending=False, rows_failed=False, slowdown_c=92.0, max_sm_mhz=1980.0)


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
        """Read the counters: the first answer is the state before the faults."""
        self._looks += 1
        first = self._counters() if self._looks > 1 else AT_REST
        return {uuid: first if i == 0 else AT_REST for i, uuid in enumerate(self._uuids)}

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
        )

    def _counters(self) -> Counters:
        wrong = int(self._faults.get("ecc", 0))
        return replace(AT_REST, ecc_uncorrected=wrong, rows_pending="remap" in self._faults)
