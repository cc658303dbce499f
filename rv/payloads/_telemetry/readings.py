"""One look at a GPU, and the counters that are compared before and after."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """What one GPU said at one moment; None is what it does not tell."""

    utilisation: float | None = None  # per cent
    temperature_c: float | None = None
    power_w: float | None = None
    sm_mhz: float | None = None
    memory_used_mib: float | None = None
    reasons: int | None = None  # why the clock is not higher: a mask, see throttle.py


@dataclass(frozen=True)
class Counters:
    """What only grows, and limits: differences of two of these are what a run did."""

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


def grown(before: int | None, after: int | None) -> int | None:
    """Give what a counter grew by; None unless both ends are known, 0 after a counter's reset."""
    if before is None or after is None:
        return None
    return max(0, after - before)


def bare(uuid: str) -> str:
    """Strip the kind from a UUID: torch says `5c…`, the driver `GPU-5c…` or `MIG-5c…`."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()
