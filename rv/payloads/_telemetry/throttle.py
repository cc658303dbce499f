"""Why a GPU's clock is not higher: the driver's mask, whose bits come together and alone.

A mask is tested bit by bit. Compared whole, 0x44 (hot, and at the power limit) equals neither
reason and would count as none. Names and values are those of NVML's clocks event reasons.
"""

from __future__ import annotations

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


def names(mask: int) -> list[str]:
    """Name each reason in a mask; bits that nobody named are shown in hexadecimal."""
    named = [name for bit, name in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return [*named, hex(rest)] if rest else named


def harmful(mask: int) -> bool:
    """Tell whether any reason of the mask points to heat or to a failing power supply."""
    return bool(mask & HARMFUL)
