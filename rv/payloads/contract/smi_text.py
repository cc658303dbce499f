"""What `nvidia-smi -q -x` and `nvidia-smi nvlink` print, read: one query tells of all GPUs.

The names of elements changed over the years: `clocks_throttle_reasons` until driver 535,
`sram_uncorrectable_parity` and `_secded` since 555, `single_bit` and `double_bit` before Turing,
`power_readings` until 530. Application clocks are called deprecated since 575.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from . import repairs
from .readings import NO_LINKS, Counters, Links, bare, bus_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

MOST = 16 * 2**20  # characters: 16 GPUs with all their clocks print under 2 MiB
FIGURE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)x?(?: (?:W|MHz|C|us|banks?\(s\)))?", re.ASCII)
ABSENT = ("", "n/a", "not supported", "disabled", "none", "deprecated")
"""How what a GPU does not have, or has switched off, is told: the last words."""
UNCORRECTED = (
    "sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded",
    "dram_uncorrectable", "double_bit/total",
)  # fmt: skip
CORRECTED = ("sram_correctable", "dram_correctable", "single_bit/total")
REPAIRS = {
    "ecc_errors/channel_repair_pending": repairs.CHANNEL,
    "ecc_errors/tpc_repair_pending": repairs.TPC,
    "ecc_errors/unrepairable_memory": repairs.UNREPAIRABLE,
    "ecc_errors/aggregate/sram_threshold_exceeded": repairs.SRAM,
    "gpu_reset_status/reset_required": repairs.RESET,
    "retired_pages/pending_retirement": repairs.PAGE,
}
GPU_LINE = re.compile(r"GPU \d+:.{0,200}\(UUID: (GPU-[0-9A-Fa-f-]{1,40})\)")
LINK = re.compile(r"\s*Link \d{1,3}: (?:(\d[\d.]{0,12} GB/s)|(<inactive>))")
NO_LINK_UP = re.compile(
    r".{0,40}Unable to retrieve NVLink information .{0,40}all links are inactive", re.IGNORECASE
)
"""What stands in place of the links where a GPU that has some has none that is up."""
LOST = ("requires reset", "is lost", "fallen off the bus")
"""How a figure is told of a GPU that does not answer any more."""
LISTED = re.compile(r"\(UUID: (GPU-[0-9A-Fa-f-]{1,40})\)")
BUS = re.compile(r"\b([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\b")
NO_PERMISSION = 4  # nvidia-smi's exit code
LINK_ERRORS = re.compile(r"\s*Link \d{1,3}: (Replay|Recovery|CRC)[A-Za-z ]{0,20}: (\d{1,18})\s*$")


def parse_query(text: str) -> dict[str, Counters]:
    """Read `nvidia-smi -q -x`: by UUID what each GPU counted, its limits, and what it hid.

    {} for what is no such document. Throttling times and energy are not told here.
    """
    from xml.etree.ElementTree import ParseError, fromstring

    if len(text) > MOST or "<!ENTITY" in text:
        return {}
    try:
        log = fromstring(text)  # noqa: S314 - of bounded size, and without entities of its own
    except (ParseError, ValueError):
        return {}
    read = (_Gpu(gpu).counters() for gpu in log.findall("gpu"))
    return {uuid: counters for uuid, counters in read if uuid.startswith("GPU-")}


class _Gpu:
    """One `gpu` element, and what could not be read of it."""

    def __init__(self, element: Element) -> None:
        self._element, self._unreadable = element, []  # type: Element, list[str]
        self._lost = ""

    def counters(self) -> tuple[str, Counters]:
        """Return the UUID and all that is known."""
        whole, (limit, default) = self._whole, self._power()
        remapped = self._yes_or_no("remapped_rows/remapped_row_failure", "remapped rows")
        found = Counters(
            ecc_uncorrected=self._errors(UNCORRECTED),
            ecc_corrected=self._errors(CORRECTED),
            rows_pending=self._yes_or_no("remapped_rows/remapped_row_pending", "remapped rows"),
            rows_failed=remapped,
            rows_remapped=whole("remapped_rows/remapped_row_unc", "remapped rows"),
            pcie_replays=whole("pci/replay_counter", "PCIe replays"),
            pcie_max_gen=whole("pci/pci_gpu_link_info/pcie_gen/max_link_gen", "PCIe link"),
            pcie_max_width=whole("pci/pci_gpu_link_info/link_widths/max_link_width", "PCIe link"),
            slowdown_c=self._figure("temperature/gpu_temp_slow_threshold", "temperature"),
            max_sm_mhz=self._figure("max_clocks/sm_clock", "clocks"),
            applications_mhz=self._figure("applications_clocks/graphics_clock", "clocks"),
            default_applications_mhz=self._figure(
                "default_applications_clocks/graphics_clock", "clocks"
            ),
            power_limit_w=limit,
            default_power_w=default,
            bus=bus_of(self._text("pci/pci_bus_id"))[:40],
            model=self._text("product_name")[:100],
        )
        repair = "; ".join(filter(None, (self._lost, *self._repairs())))
        return self._text("uuid")[:50], replace(
            found, repair=repair, unreadable=tuple(self._unreadable)
        )

    def _power(self) -> tuple[float | None, float | None]:
        """Return the limit and its default, under this driver's name of the group."""
        names = ("gpu_power_readings", "power_readings")
        group = next((name for name in names if self._element.find(name) is not None), names[0])
        limits = ("enforced_power_limit", "current_power_limit", "power_limit")
        found = [self._figure(f"{group}/{name}", "power limit") for name in limits]
        default = self._figure(f"{group}/default_power_limit", "power limit")
        known = [limit for limit in found if limit is not None]
        return min(known, default=None), default

    def _errors(self, names: tuple[str, ...]) -> int | None:
        """Add up the volatile errors of one kind, of memory and of caches; None of no count."""
        paths = (f"ecc_errors/volatile/{name}" for name in names)
        counts = [self._whole(path, "memory errors") for path in paths]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def _repairs(self) -> Iterator[str]:
        action = self._text("gpu_recovery_action")
        if action.lower() not in ABSENT and _letters(action):
            yield repairs.asked_for(action[:40])
        for path, meaning in REPAIRS.items():
            if self._text(path).lower() == "yes":
                yield meaning

    def _text(self, path: str) -> str:
        return (self._element.findtext(path) or "").strip()

    def _figure(self, path: str, subject: str) -> float | None:
        text = self._text(path)
        found = FIGURE.fullmatch(text)
        if found is None:
            self._note(text, subject)
            return None
        return float(found[1])

    def _whole(self, path: str, subject: str) -> int | None:
        value = self._figure(path, subject)
        return None if value is None else int(value)

    def _yes_or_no(self, path: str, subject: str) -> bool | None:
        text = self._text(path).lower()
        if text in ("yes", "no"):
            return text == "yes"
        self._note(text, subject)
        return None

    def _note(self, text: str, subject: str) -> None:
        """Note a figure that the GPU has and that was not told; one it does not have is none."""
        if any(word in text.lower() for word in LOST):
            self._lost = f"the driver says {text[:40]!r}"
        is_absent = text.lower() in ABSENT or text.lower().endswith(ABSENT[1:])
        if not is_absent and subject not in self._unreadable:
            self._unreadable.append(subject)


def _letters(text: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9 _-]+", text, re.ASCII))


def parse_lost(code: int, said: str, buses: dict[str, str]) -> dict[str, str]:
    """Read `nvidia-smi -L` and its exit code: which of these GPUs it does not know any more.

    By UUID their PCI buses. It names the bus of one whose handle it does not get, and may break off
    there: then the others are not lost. None is where it may not tell.
    """
    said = said[:MOST]
    if code == NO_PERMISSION or "permission" in said.lower():
        return {}
    listed = {bare(uuid) for uuid in LISTED.findall(said)}
    missing = [uuid for uuid in buses if bare(uuid) not in listed]
    named = {bus_of(f"{bus}.0") for bus in BUS.findall(said)}
    accused = [uuid for uuid in missing if buses[uuid] in named]
    return dict.fromkeys(accused or missing, _how_lost(said))


def _how_lost(said: str) -> str:
    """Say that a GPU is not listed, with the first line that lists none."""
    line = next((line for line in said.splitlines() if not LISTED.search(line)), "")
    why = "".join(letter if letter.isprintable() else "?" for letter in line[:120]).strip()
    return f"nvidia-smi does not list it any more{f' ({why})' if why else ''}"


def parse_links(states: str, errors: str) -> dict[str, Links]:
    """Read `nvidia-smi nvlink -s` and `-e`: the NVLinks by UUID; one without them is left out."""
    found: dict[str, Links] = {}
    for uuid, line in _of_gpus(states):
        if NO_LINK_UP.match(line):
            found[uuid] = Links(0, 0)
        elif match := LINK.match(line):
            known = found.get(uuid, Links(0, 0))
            up, down = known.up or 0, known.down or 0
            found[uuid] = replace(known, up=up + bool(match[1]), down=down + bool(match[2]))
    _add_errors(found, errors)
    return found


def _add_errors(found: dict[str, Links], errors: str) -> None:
    """Add the errors of each GPU's links to what is known of them."""
    for uuid, line in _of_gpus(errors):
        if match := LINK_ERRORS.match(line):
            known, count = found.get(uuid, NO_LINKS), int(match[2])
            if match[1] == "CRC":
                found[uuid] = replace(known, crc=(known.crc or 0) + count)
            else:
                found[uuid] = replace(known, replays=(known.replays or 0) + count)


def _of_gpus(text: str) -> Iterator[tuple[str, str]]:
    """Go through the lines of a text, each with the UUID of the GPU that it is about."""
    uuid = ""
    for line in text[:MOST].splitlines():
        if match := GPU_LINE.match(line):
            uuid = match[1]
        elif uuid:
            yield uuid, line
