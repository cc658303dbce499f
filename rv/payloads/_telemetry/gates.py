"""What a GPU's telemetry says of its work: heat, throttling, clocks, its link to the host.

A mask of throttle reasons is tested bit by bit. Compared whole, 0x44 (hot, and at the power limit)
equals neither reason and would count as none. Names and values are those of NVML's clocks event
reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
HEAT, BRAKE = (REASONS[0x20], REASONS[0x40]), REASONS[0x80]
HARMFUL = 0x8 | 0x20 | 0x40 | 0x80  # heat, or a supply that cannot keep up

HOT, MARGIN = 85.0, 2.0  # C: warn from here; fail this close to where the hardware slows itself
SLOWED_WARN, SLOWED_FAIL = 0.01, 0.10  # share of the load time slowed by heat or power supply
LOADED = 95.0  # per cent
LINK_FAIL = 0.5  # of the rate to the host; some boards wire half of the lanes
LOCKED = 0.95  # of the usual clock
EXPLAINING = [name for bit, name in REASONS.items() if bit not in (0x1, 0x2, 0x100)]

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
    return [*_heat(load), *_throttling(load), *_host_link(load), *_clocks(load)]


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
        code, cause = _cause(load)
        reason = f"slowed by {cause} {share:.1%} of the time ({why or 'counted'})"
        yield "FAIL" if share > SLOWED_FAIL else "WARN", code, reason


def _cause(load: Load) -> tuple[str, str]:
    """Return the code and the name of what slowed a GPU longest.

    A hardware slowdown of which the driver names no cause may be either: it is looked for as heat.
    """
    heat_s = max(load.heat_s, *(load.throttled.get(name, 0.0) for name in HEAT))
    brake_s = load.throttled.get(BRAKE, 0.0)
    if brake_s > heat_s:
        return "throttled_power", "its power supply"
    return "throttled_thermal", "heat" if heat_s else "heat or power supply"


def _host_link(load: Load) -> Iterator[Finding]:
    """Judge the best link that was seen: an idle GPU lowers its generation, a busy one does not."""
    gen, width = load.pcie_gen.largest, load.pcie_width.largest
    most_gen, most_width = load.after.pcie_max_gen, load.after.pcie_max_width
    if gen is None or width is None or most_gen is None or most_width is None:
        return
    status = link_status(gen, width, most_gen, most_width)
    if status != "PASS":
        now, most = f"generation {gen:.0f} x{width:.0f}", f"generation {most_gen} x{most_width}"
        reason = f"PCIe link at {now} under load, where {most} is possible"
        yield status, "pcie_degraded", reason


def link_status(gen: float, width: float, most_gen: int, most_width: int) -> str:
    """Judge a link to the host by its rate: FAIL below half of the most, WARN below the most."""
    part = width / most_width * 2.0 ** (gen - most_gen) if most_width else 1.0
    if part < LINK_FAIL:
        return "FAIL"
    return "WARN" if part < 1 else "PASS"


def _clocks(load: Load) -> Iterator[Finding]:
    """Judge a clock that is low though the driver names no reason: `nvidia-smi -lgc` does that."""
    known = (load.after.max_sm_mhz, load.after.default_applications_mhz)
    usual = min((each for each in known if each), default=0.0)
    clock = load.clock
    if clock is not None and clock < LOCKED * usual and _is_unexplained(load):
        reason = f"clock {clock:.0f} MHz of {usual:.0f} under load, neither hot nor at a power cap"
        yield "WARN", "clocks_capped", f"{reason}: locked or capped"


def _is_unexplained(load: Load) -> bool:
    """Whether the GPU was busy, and neither heat nor power held its clock for half of the time."""
    explained = sum(load.throttled.get(name, 0.0) for name in EXPLAINING)
    is_busy = (load.utilisation.value or 0.0) >= LOADED
    return is_busy and load.masks > 0 and explained < load.seconds / 2
