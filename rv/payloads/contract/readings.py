"""What a GPU says of itself at one time: readings, counters, and who is on it.

Every figure is optional: what a driver, a MIG slice or a container does not tell is None, never an
error. GPUs are named by UUID, because indices mean different things to torch and to the driver.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .xids import SwitchXid, Xid


@dataclass(frozen=True)
class Reading:
    """One reading of one GPU."""

    utilisation: float | None = None  # per cent
    temperature_c: float | None = None
    power_w: float | None = None
    sm_mhz: float | None = None
    memory_used_mib: float | None = None
    reasons: int | None = None  # why the clock is not higher: a mask of NVML's clocks event reasons
    pcie_gen: float | None = None  # of the link now: an idle GPU lowers it
    pcie_width: float | None = None  # lanes


@dataclass(frozen=True)
class Links:
    """The NVLinks of one GPU; all None where it has none or does not tell."""

    up: int | None = None
    down: int | None = None
    replays: int | None = None  # and recoveries, of all links together
    crc: int | None = None


NO_LINKS = Links()


@dataclass(frozen=True)
class Counters:
    """Counters and limits of one GPU: the differences of two are what happened in between."""

    ecc_uncorrected: int | None = None  # volatile: since the driver was loaded
    ecc_corrected: int | None = None
    rows_pending: bool | None = None  # a row waits for a reset to be remapped
    rows_failed: bool | None = None  # a row could not be remapped
    rows_remapped: int | None = None  # for uncorrectable errors, in the life of the GPU
    repair: str = ""  # what the driver says must be done to the GPU; "" for nothing
    thermal_ns: int | None = None  # time spent slowed down by heat
    power_ns: int | None = None  # time spent at the power limit
    pcie_replays: int | None = None
    pcie_max_gen: int | None = None  # of GPU and host together
    pcie_max_width: int | None = None
    links: Links = NO_LINKS
    energy_mj: int | None = None
    slowdown_c: float | None = None  # the temperature at which the hardware slows itself down
    max_sm_mhz: float | None = None
    applications_mhz: float | None = None  # the clock that was asked for, and what it is by default
    default_applications_mhz: float | None = None
    power_limit_w: float | None = None
    default_power_w: float | None = None
    bus: str = ""  # 0000:1b:00, as in the kernel's log
    model: str = ""
    unreadable: tuple[str, ...] = ()  # what this GPU has and the driver would not tell


NOTHING = Counters()
"""Of a GPU that tells nothing."""


def tells(counters: Counters) -> bool:
    """Whether a GPU told any figure; its bus and model a driver may know of one that is gone."""
    return replace(counters, bus="", model="", unreadable=()) != NOTHING


@dataclass(frozen=True)
class Occupant:
    """A process on a GPU, by the number that the driver knows it by."""

    pid: int
    name: str = ""
    memory_mib: float | None = None


def grown(before: int | None, after: int | None) -> int | None:
    """Return what a counter grew by; None unless both ends are known, 0 after a counter's reset."""
    if before is None or after is None:
        return None
    return max(0, after - before)


def bare(uuid: str) -> str:
    """Strip the kind from a UUID: torch says `5c…`, the driver `GPU-5c…` or `MIG-5c…`."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()


class Source(Protocol):
    """Readings of GPUs, by the UUIDs that the source was opened with."""

    name: str
    interval: float  # seconds between two readings that do not disturb the work

    def read(self) -> dict[str, Reading]:
        """Read every GPU once."""
        ...

    def counters(self) -> dict[str, Counters]:
        """Read the counters and limits of every GPU."""
        ...

    def occupants(self) -> dict[str, list[Occupant]]:
        """List the processes on every GPU; one that does not tell is left out."""
        ...

    def xids(self) -> dict[str, list[Xid | SwitchXid]] | None:
        """Return the Xids since the last call, the first of which returns none; None if untold.

        Those of no GPU that was asked for are under "".
        """
        ...

    def lost(self, buses: dict[str, str]) -> dict[str, str]:
        """Return which of these GPUs the driver does not know any more, and how it is told.

        By UUID their PCI buses are given, by which the driver's messages name them.
        """
        ...


def bus_of(text: str) -> str:
    """Return `0000:1b:00` of a PCI bus id as nvidia-smi, NVML or the kernel writes it."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain[-4:].zfill(4)}:{rest.partition('.')[0]}" if rest else ""
