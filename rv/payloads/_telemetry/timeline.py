"""Readings of one GPU over time, few enough for a result file however long the load was."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contract.readings import Reading

MOST = 120  # points: one is left out of two where more would come
FIRST_EVERY_S = 0.5
FIELDS = ("temperature_c", "power_w", "sm_mhz")


@dataclass
class Timeline:
    """Points at least `every` seconds apart, from the beginning to the end of the load."""

    every: float = FIRST_EVERY_S
    points: list[tuple[float, Reading]] = field(default_factory=list)

    def add(self, at: float, reading: Reading) -> None:
        """Keep a reading at so many seconds, unless the one before it is too near."""
        if self.points and at - self.points[-1][0] < self.every:
            return
        self.points.append((at, reading))
        if len(self.points) > MOST:
            self.points = self.points[::2]
            self.every *= 2

    def as_json(self) -> dict[str, list[Any]]:
        """Return the seconds, and each series of which anything was read."""
        series = {name: [getattr(r, name) for _, r in self.points] for name in FIELDS}
        known = {
            name: values for name, values in series.items() if any(v is not None for v in values)
        }
        return {"at_s": [round(at, 1) for at, _ in self.points], **known} if known else {}
