"""What a GPU's telemetry says of its health: heat, throttling, memory errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from contract.nvidia import grown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .sampler import Load

HOT, MARGIN = 85.0, 2.0  # C: warn from here; fail this close to where the hardware slows itself
SLOWED_WARN, SLOWED_FAIL = 0.01, 0.10  # share of the load time slowed by heat or power supply
LOADED = 95.0  # per cent


@dataclass(frozen=True)
class Finding:
    """Something wrong with one GPU: a status, a stable code, and what was seen."""

    status: str
    code: str
    reason: str


def findings(load: Load) -> list[Finding]:
    """Judge one GPU's load; an empty list where nothing is wrong or nothing is known."""
    return [*_heat(load), *_throttling(load), *_memory(load)]


def underloaded(load: Load) -> Finding | None:
    """Tell whether a GPU that was to be busy was not."""
    busy = load.utilisation.value
    if busy is None or busy >= LOADED:
        return None
    return Finding("WARN", "underloaded", f"utilisation {busy:.1f} % on average, under {LOADED} %")


def _heat(load: Load) -> Iterator[Finding]:
    hottest, limit = load.temperature.largest, load.after.slowdown_c
    if hottest is None:
        return
    if limit is not None and hottest >= limit - MARGIN:
        seen = f"{hottest:.0f} C, where the hardware slows itself down at {limit:.0f} C"
        yield Finding("FAIL", "too_hot", seen)
    elif hottest >= HOT:
        yield Finding("WARN", "too_hot", f"{hottest:.0f} C, over {HOT:.0f} C")


def _throttling(load: Load) -> Iterator[Finding]:
    share = load.harmed_share
    if share > SLOWED_WARN:
        why = ", ".join(name for name in load.throttled if name != "software power cap")
        seen = f"slowed by heat or power supply {share:.1%} of the time ({why or 'counted'})"
        yield Finding("FAIL" if share > SLOWED_FAIL else "WARN", "throttled_thermal", seen)


def _memory(load: Load) -> Iterator[Finding]:
    wrong = grown(load.before.ecc_uncorrected, load.after.ecc_uncorrected)
    if wrong:
        yield Finding("FAIL", "ecc_uncorrectable", f"{wrong} uncorrectable memory error(s)")
    if load.after.rows_failed:
        yield Finding("FAIL", "row_remap", "a memory row could not be remapped")
    if load.after.rows_pending:
        yield Finding("FAIL", "row_remap", "a memory row waits for a reset to be remapped")
