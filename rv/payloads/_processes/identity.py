"""Which process a number means: numbers are given again, start times within one boot are not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Identity:
    """One process of one boot of one machine."""

    pid: int
    start: int  # clock ticks since boot, /proc/PID/stat field 22
    boot: str


def of(pid: int) -> Identity | None:
    """Identify a running process; None for one that ended, a zombie too."""
    fields = stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return Identity(pid, int(fields[19]), boot_id())


def alive(identity: Identity) -> bool:
    """Tell whether this very process still runs: not another of its number."""
    return of(identity.pid) == identity


def boot_id() -> str:
    """Give the name of this boot of this machine."""
    return BOOT.read_text().strip()


def stat(pid: int) -> list[str] | None:
    """Read /proc/PID/stat from the state on: the name before it may hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
