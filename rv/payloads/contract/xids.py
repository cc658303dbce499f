"""Xids: the faults that NVIDIA's driver writes into the kernel's log, and what each points to.

    NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python, GPU has fallen off the bus.

Meanings follow NVIDIA's "Xid Errors" guide. What a program may cause by itself is told as such: a
faulty GPU shows it too, but other things as well.

SXids are those of an NVSwitch (NVIDIA's Fabric Manager guide); the line says itself whether the
fault is fatal, and two more with numbers follow it:

    nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 24007, Fatal, Link 30 sourcetrack timeout error
    nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 24007, Severity 1 Engine instance 30 Sub-engine ...
    nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 24007, Data {0x00000001, 0x00000001, ...
"""

from __future__ import annotations

import collections
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .readings import bus_of

if TYPE_CHECKING:
    from collections.abc import Iterable

LINE = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})[^)]{0,40}\):"
    r" (\d{1,4})\b(.{0,200})"
)
SWITCH_LINE = re.compile(
    r"nvidia-nvswitch\d{0,4}: SXid \((?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})"
    r"[^)]{0,40}\): (\d{1,6}), (?!Severity |Data )(.{0,200})"
)
FATAL = re.compile(r"Fatal\b")  # not `Non-fatal`, nor `Nonfatal`
NOT_FATAL = re.compile(r"\bNon-?fatal\b", re.IGNORECASE)
MOST_LINES = 10_000

MEANINGS = {
    13: "a program's kernel failed", 31: "a program reached for memory that is not its own",
    43: "a program's channel was stopped", 45: "a program was ended on the GPU",
    32: "corrupted commands for the GPU", 38: "firmware error", 48: "uncorrectable memory error",
    61: "microcontroller stopped", 62: "microcontroller halted", 63: "a memory row was remapped",
    64: "a memory row could not be remapped", 69: "graphics engine error", 74: "NVLink error",
    79: "GPU has fallen off the bus", 92: "many corrected memory errors",
    94: "contained memory error", 95: "uncontained memory error",
    109: "context switch timed out", 110: "security fault", 119: "GSP does not answer",
    120: "GSP error",
    121: "C2C link error", 122: "SPI failure", 123: "PMU failure", 136: "event of links",
    137: "NVLink error: FLA privilege", 140: "unrecovered memory error",
    143: "GPU initialization error",
    144: "NVLink error: SAW", 145: "NVLink error: RLW", 146: "NVLink error: TLW",
    147: "NVLink error: TREX", 148: "NVLink error: NVLPW", 149: "NVLink error: NETIR",
    150: "NVLink error: MSE", 154: "GPU needs to be recovered", 156: "resource retired",
    158: "fatal timeout of the GPU", 160: "memory channel retired", 171: "uncorrectable DRAM error",
    172: "uncorrectable SRAM error",
}  # fmt: skip
OF_PROGRAMS = (13, 31, 43, 45)
OF_LINKS = (74, 137, *range(144, 151))
ONLY_TOLD = (63, 92, 136, 154, 156, 160)
"""What went well (a row was remapped), or follows another Xid that says what it was."""


@dataclass(frozen=True)
class Xid:
    """One line: the GPU by its PCI bus (`0000:1b:00`), the number, and the rest."""

    bus: str
    number: int
    text: str = ""

    @property
    def meaning(self) -> str:
        """What NVIDIA's guide calls it."""
        return MEANINGS.get(self.number, "see NVIDIA's guide")


@dataclass(frozen=True)
class SwitchXid:
    """One event of an NVSwitch, which is all GPUs' of its node: its PCI bus, number and text."""

    bus: str
    number: int
    text: str = ""


def parse_xids(log: str) -> list[str]:
    """Return a kernel log's lines of Xids and SXids, as they are: a line names one event.

    The last ones, where there are very many.
    """
    lines = (line for line in log.splitlines() if LINE.search(line) or SWITCH_LINE.search(line))
    return list(collections.deque(lines, MOST_LINES))


def read_xid(line: str) -> Xid | SwitchXid | None:
    """Read one line of the log."""
    if found := LINE.search(line):
        return Xid(bus_of(f"{found[1]}.0"), int(found[2]), _printable(found[3]))
    if found := SWITCH_LINE.search(line):
        return SwitchXid(bus_of(f"{found[1]}.0"), int(found[2]), _printable(found[3]))
    return None


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text.strip(" ,"))


def judge_switches(events: Iterable[SwitchXid]) -> list[tuple[str, str, str]]:
    """Return status, code and reason by NVSwitch and number: the driver says what is fatal."""
    groups: dict[tuple[str, int], list[SwitchXid]] = {}
    for each in events:
        groups.setdefault((each.bus, each.number), []).append(each)
    return [_of_switch(sorted(same, key=_is_harmless)) for same in groups.values()]


def _is_harmless(event: SwitchXid) -> bool:
    return not FATAL.match(event.text)


def _of_switch(same: list[SwitchXid]) -> tuple[str, str, str]:
    """Judge the events of one number on one switch, the worst of them first."""
    worst = same[0]
    often = f" ({len(same)} times)" if len(same) > 1 else ""
    said = f"NVSwitch {worst.bus}: SXid {worst.number}, {worst.text}{often}"
    return "WARN" if _is_harmless(worst) else "FAIL", "sxid", said


def worst_of_each(xids: Iterable[Xid]) -> tuple[Xid, ...]:
    """Return one Xid of each number, the worst: NVML and the kernel's log may tell of one event.

    Only the log's line says whether it is fatal; NVML's event without text counts where no line is.
    """
    groups: dict[int, list[Xid]] = {}
    for each in xids:
        groups.setdefault(each.number, []).append(each)
    worded = ([xid for xid in same if xid.text] or same for same in groups.values())
    return tuple(max(same, key=_is_failure) for same in worded)


def _is_failure(xid: Xid) -> bool:
    return judge_xid(xid)[0] == "FAIL"


def judge_xid(xid: Xid) -> tuple[str, str, str]:
    """Return status, code and reason of an Xid that came while the GPU was tested."""
    said = f"Xid {xid.number}, {xid.meaning}{f' ({xid.text})' if xid.text else ''}"
    if xid.number in OF_PROGRAMS:
        return "WARN", "xid_of_program", said
    if xid.number in OF_LINKS:
        return "WARN" if NOT_FATAL.search(xid.text) else "FAIL", "link_errors", said
    is_known = xid.number in MEANINGS and xid.number not in ONLY_TOLD
    return "FAIL" if is_known else "WARN", "xid", said
