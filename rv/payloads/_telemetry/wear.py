"""What a GPU's counters and limits say of its health: memory, links, caps, and the driver's Xids.

Rates of link errors and replays follow DCGM's health checks: any replay or recovery of an NVLink is
a failure, and so are 100 CRC errors a second over a minute, of which fewer are a warning; more than
eight PCIe replays a minute are too many.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from contract.rates import mesh_rate
from contract.readings import NOTHING, Counters, grown
from contract.xids import judge_xid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract.xids import Xid

CORRECTED_A_MINUTE = 10.0  # rv's own: HBM that is well corrects a few a day
REPLAYS_A_MINUTE = 8.0
CRC_A_SECOND = 100.0
LIMITED = 0.99  # of the default: less is a cap, and not the rounding of a limit

Finding = tuple[str, str, str]  # status, code, reason


@dataclass(frozen=True)
class Wear:
    """One GPU before and after the work; `peer_links` is the most NVLinks that one like it has."""

    before: Counters = NOTHING
    after: Counters = NOTHING
    seconds: float = 0.0
    xids: tuple[Xid, ...] = ()
    peer_links: int = 0

    @property
    def minutes(self) -> float:
        """The length of the run, at least one minute: a rate of less is chance."""
        return max(1.0, self.seconds / 60)


def findings(wear: Wear) -> list[Finding]:
    """Judge one GPU, the worst first; an empty list where nothing is wrong."""
    xids = [judge_xid(xid) for xid in wear.xids]
    found = [*xids, *_memory(wear), *_links(wear), *_caps(wear.after), *_unreadable(wear)]
    return sorted(found, key=lambda finding: finding[0] != "FAIL")


def details(wear: Wear) -> dict[str, Any]:
    """Return what was counted in the run, and how things stand after it."""
    counted = {
        "ecc_uncorrected_delta": grown(wear.before.ecc_uncorrected, wear.after.ecc_uncorrected),
        "ecc_corrected_delta": grown(wear.before.ecc_corrected, wear.after.ecc_corrected),
        "pcie_replay_delta": grown(wear.before.pcie_replays, wear.after.pcie_replays),
        "nvlink_replay_delta": grown(wear.before.links.replays, wear.after.links.replays),
        "nvlink_crc_delta": grown(wear.before.links.crc, wear.after.links.crc),
        "xids": [xid.number for xid in wear.xids],
    }
    return {**{k: v for k, v in counted.items() if v is not None}, "after": asdict(wear.after)}


def _memory(wear: Wear) -> Iterator[Finding]:
    before, after = wear.before, wear.after
    wrong = grown(before.ecc_uncorrected, after.ecc_uncorrected)
    if wrong:
        yield "FAIL", "ecc_uncorrectable", f"{wrong} uncorrectable memory error(s) in this run"
    elif after.ecc_uncorrected:
        since = f"{after.ecc_uncorrected} uncorrectable memory error(s) before this run"
        yield "WARN", "ecc_before", f"{since}, since the driver was loaded"
    if after.rows_failed:
        yield "FAIL", "row_remap", "a memory row could not be remapped"
    if after.rows_pending:
        yield "FAIL", "row_remap", "a memory row waits for a reset to be remapped"
    elif after.rows_remapped:
        yield "WARN", "rows_remapped", f"{after.rows_remapped} memory row(s) were remapped before"
    if after.repair:
        yield "FAIL", "gpu_needs_repair", after.repair
    corrected = grown(before.ecc_corrected, after.ecc_corrected) or 0
    if corrected > CORRECTED_A_MINUTE * wear.minutes:
        rate = f"{corrected} corrected memory errors in {wear.seconds:.0f} s"
        yield "WARN", "ecc_corrected", f"{rate}: over {CORRECTED_A_MINUTE:g} a minute"


def _links(wear: Wear) -> Iterator[Finding]:
    before, after = wear.before, wear.after
    replays = grown(before.pcie_replays, after.pcie_replays) or 0
    if replays > REPLAYS_A_MINUTE * wear.minutes:
        many = f"{replays} PCIe replays in {wear.seconds:.0f} s: over {REPLAYS_A_MINUTE:g} a minute"
        yield "WARN", "pcie_replays", many
    again = grown(before.links.replays, after.links.replays)
    if again:
        yield "FAIL", "link_errors", f"{again} replay(s) and recoveries of NVLinks"
    wrong = grown(before.links.crc, after.links.crc) or 0
    if wrong:
        rate = wrong / (60 * wear.minutes)
        many = f"{wrong} CRC error(s) of NVLinks in {wear.seconds:.0f} s"
        if rate >= CRC_A_SECOND:
            yield "FAIL", "link_errors", f"{many}: {rate:.3g} a second over a minute or more"
        else:
            yield "WARN", "link_crc", many
    yield from _inactive(wear)


def _inactive(wear: Wear) -> Iterator[Finding]:
    """Judge NVLinks that are down: fewer than a peer has fail; a bridge may be for some alone."""
    up, down = wear.after.links.up, wear.after.links.down
    if up is None or down is None:
        return
    if _has_lost_links(wear, up):
        most = max(wear.peer_links, up + down, wear.before.links.up or 0)
        yield "FAIL", "link_down", f"{up} NVLinks are up, of {most}"
    elif up and down:
        yield "WARN", "link_down", f"{down} of {up + down} NVLinks are inactive"
    elif wear.peer_links > up:
        yield "WARN", "link_down", f"no NVLink is up, where a GPU like it has {wear.peer_links}"


def _has_lost_links(wear: Wear, up: int) -> bool:
    """Whether links are down that were up before, or that a peer has.

    One with none at all may be without a bridge, but where every GPU of its model has links.
    """
    if (grown(up, wear.before.links.up) or 0) > 0:
        return True
    is_linked = up > 0 or mesh_rate(wear.after.model) is not None
    return is_linked and up < wear.peer_links


def _caps(after: Counters) -> Iterator[Finding]:
    limit, default = after.power_limit_w, after.default_power_w
    if limit is not None and default is not None and limit < LIMITED * default:
        yield "WARN", "power_capped", f"power limit {limit:.0f} W, by default {default:.0f} W"
    clock, usual = after.applications_mhz, after.default_applications_mhz
    if clock is not None and usual is not None and clock < LIMITED * usual:
        capped = f"application clock {clock:.0f} MHz, by default {usual:.0f} MHz"
        yield "WARN", "clocks_capped", capped


def _unreadable(wear: Wear) -> Iterator[Finding]:
    if wear.after == NOTHING:
        since = "" if wear.before == wear.after else ", which it did before this run"
        yield "WARN", "telemetry_unreadable", f"the driver tells nothing of its wear{since}"
    elif wear.after.unreadable:
        yield "WARN", "telemetry_unreadable", f"not told: {', '.join(wear.after.unreadable)}"
