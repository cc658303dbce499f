"""What a GPU's telemetry says of its health: heat, throttling, memory errors.

A mask of throttle reasons is tested bit by bit. Compared whole, 0x44 (hot, and at the power limit)
equals neither reason and would count as none. Names and values are those of NVML's clocks event
reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.nvidia import grown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .sampler import Load

REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
HARMFUL = 0x8 | 0x20 | 0x40 | 0x80  # heat, or a supply that cannot keep up

HOT, MARGIN = 85.0, 2.0  # C: warn from here; fail this close to where the hardware slows itself
SLOWED_WARN, SLOWED_FAIL = 0.01, 0.10  # share of the load time slowed by heat or power supply
LOADED = 95.0  # per cent

Finding = tuple[str, str, str]  # status, code, reason


def reasons(mask: int) -> list[str]:
    """Name each reason in a mask; bits that nobody named are shown in hexadecimal."""
    named = [name for bit, name in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return [*named, hex(rest)] if rest else named


def is_harmful(mask: int) -> bool:
    """Return whether any reason of the mask points to heat or to a failing power supply."""
    return bool(mask & HARMFUL)


def findings(load: Load) -> list[Finding]:
    """Judge one GPU's load; an empty list where nothing is wrong or nothing is known."""
    return [*_heat(load), *_throttling(load), *_memory(load)]


def underloaded(load: Load) -> list[Finding]:
    """Warn of a GPU that was to be busy and was not."""
    busy = load.utilisation.value
    if busy is None or busy >= LOADED:
        return []
    return [("WARN", "underloaded", f"utilisation {busy:.1f} % on average, under {LOADED} %")]


def _heat(load: Load) -> Iterator[Finding]:
    hottest, limit = load.temperature.largest, load.after.slowdown_c
    if hottest is None:
        return
    if limit is not None and hottest >= limit - MARGIN:
        near = f"{hottest:.0f} C, where the hardware slows itself down at {limit:.0f} C"
        yield "FAIL", "too_hot", near
    elif hottest >= HOT:
        yield "WARN", "too_hot", f"{hottest:.0f} C, over {HOT:.0f} C"


def _throttling(load: Load) -> Iterator[Finding]:
    share = load.harmed_share
    if share > SLOWED_WARN:
        why = ", ".join(name for name in load.throttled if name != "software power cap")
        reason = f"slowed by heat or power supply {share:.1%} of the time ({why or 'counted'})"
        yield "FAIL" if share > SLOWED_FAIL else "WARN", "throttled_thermal", reason


def _memory(load: Load) -> Iterator[Finding]:
    wrong = grown(load.before.ecc_uncorrected, load.after.ecc_uncorrected)
    if wrong:
        yield "FAIL", "ecc_uncorrectable", f"{wrong} uncorrectable memory error(s)"
    if load.after.rows_failed:
        yield "FAIL", "row_remap", "a memory row could not be remapped"
    if load.after.rows_pending:
        yield "FAIL", "row_remap", "a memory row waits for a reset to be remapped"
