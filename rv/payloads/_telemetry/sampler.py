"""Readings taken beside the work, in a thread, and added up as they come."""

from __future__ import annotations

import collections
import json
import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contract.readings import Counters, Reading, grown

from .gates import is_harmful, reasons
from .timeline import Timeline

if TYPE_CHECKING:
    from typing import TextIO

    from contract.readings import Source

KEPT_EVERY_S = 1.0  # between two lines of the telemetry file


@dataclass
class Mean:
    """The mean and the largest of figures that are not kept."""

    n: int = 0
    total: float = 0.0
    largest: float | None = None

    def add(self, value: float | None) -> None:
        """Count a figure, if it is one."""
        if value is not None:
            self.n, self.total = self.n + 1, self.total + value
            self.largest = value if self.largest is None else max(self.largest, value)

    @property
    def value(self) -> float | None:
        """The mean; None of nothing."""
        return self.total / self.n if self.n else None


@dataclass
class Load:
    """What one GPU did between the sampler's beginning and its end."""

    seconds: float = 0.0
    samples: int = 0
    utilisation: Mean = field(default_factory=Mean)
    temperature: Mean = field(default_factory=Mean)
    power: Mean = field(default_factory=Mean)
    pcie_gen: Mean = field(default_factory=Mean)
    pcie_width: Mean = field(default_factory=Mean)
    masks: int = 0  # readings that told why the clock is not higher
    clocks: collections.Counter[int] = field(default_factory=collections.Counter)
    throttled: dict[str, float] = field(default_factory=dict)  # seconds by reason
    harmed: float = 0.0  # seconds slowed by heat or by the power supply
    timeline: Timeline = field(default_factory=Timeline)
    before: Counters = field(default_factory=Counters)
    after: Counters = field(default_factory=Counters)

    def add(self, reading: Reading, seconds: float) -> None:
        """Count one reading, which stands for the time since the one before it."""
        self.samples, self.seconds = self.samples + 1, self.seconds + seconds
        self.timeline.add(self.seconds, reading)
        self.utilisation.add(reading.utilisation)
        self.temperature.add(reading.temperature_c)
        self.power.add(reading.power_w)
        self.pcie_gen.add(reading.pcie_gen)
        self.pcie_width.add(reading.pcie_width)
        self.masks += reading.reasons is not None
        if reading.sm_mhz is not None:
            self.clocks[round(reading.sm_mhz)] += 1
        for name in reasons(reading.reasons or 0):
            self.throttled[name] = self.throttled.get(name, 0.0) + seconds
        self.harmed += seconds if is_harmful(reading.reasons or 0) else 0.0

    @property
    def clock(self) -> float | None:
        """The median clock in MHz."""
        clocks = list(self.clocks.elements())
        return float(statistics.median_low(clocks)) if clocks else None

    @property
    def heat_s(self) -> float:
        """The seconds slowed by heat by the driver's own clock; 0 where it has none."""
        return (grown(self.before.thermal_ns, self.after.thermal_ns) or 0) / 1e9

    @property
    def harmed_share(self) -> float:
        """The part of the time slowed by heat or power supply: the driver's own clock, or ours."""
        seconds = max(self.harmed, self.heat_s)
        return min(1.0, seconds / self.seconds) if self.seconds > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the figures that were reported, by the result file's names."""
        energy = grown(self.before.energy_mj, self.after.energy_mj)
        figures = {
            "seconds": round(self.seconds, 2),
            "samples": self.samples,
            "utilisation_avg": self.utilisation.value,
            "temp_max": self.temperature.largest,
            "power_avg": self.power.value,
            "power_max": self.power.largest,
            "sm_mhz_median": self.clock,
            "throttle_s": {name: round(s, 2) for name, s in self.throttled.items()},
            "harmful_throttle_share": round(self.harmed_share, 4),
            "energy_j": None if energy is None else energy / 1000,
            "pcie_gen_max": self.pcie_gen.largest,
            "pcie_width_max": self.pcie_width.largest,
        }
        return {name: value for name, value in figures.items() if value is not None}


class Sampler:
    """Reads a source again and again until left; `loads` is what was counted, by UUID."""

    def __init__(self, source: Source, log: TextIO | None = None) -> None:
        self.source = source
        self.loads: dict[str, Load] = {}
        self._log, self._kept = log, 0.0
        self._latest: dict[str, Reading] = {}
        self._frozen = False
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._before = source.counters()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join(3)  # a hung driver must not hold the verdict back
        after = self.source.counters()
        with self._lock:
            for uuid, counters in after.items():
                load = self.loads.setdefault(uuid, Load())
                load.before, load.after = self._before.get(uuid, Counters()), counters

    def restart(self) -> None:
        """Forget what was counted so far: the warm-up is no part of the work."""
        with self._lock:
            self.loads = {}

    def freeze(self) -> None:
        """Count no more: the work is over, and what comes after it is no part of it."""
        self._frozen = True

    def latest(self) -> dict[str, Reading]:
        """Return the newest reading of each GPU."""
        with self._lock:
            return dict(self._latest)

    def _sample(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(self.source.interval):
            readings = self.source.read()
            now = time.monotonic()
            with self._lock:
                self._latest = readings
                for uuid, reading in readings.items() if not self._frozen else ():
                    self.loads.setdefault(uuid, Load()).add(reading, now - before)
            self._keep(readings, now)
            before = now

    def _keep(self, readings: dict[str, Reading], now: float) -> None:
        if self._log is None or now - self._kept < KEPT_EVERY_S:
            return
        self._kept = now
        for uuid, reading in readings.items():
            line = {"at": round(time.time(), 2), "uuid": uuid, **vars(reading)}
            print(json.dumps(line), file=self._log, flush=True)
