"""Hold what a file system reached against the floors of its type, and ranks against each other."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from contract.filesystems import FLOORS, Floors, parse_mount_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOUNTS = Path("/proc/self/mountinfo")
LEAST_MIB, LEAST_FILES = 256.0, 500
"""What has to be written for a rate to say anything of the file system; a quick run has less."""

SLOW_PART = 0.5
"""Below this part of the others' median a rank's storage is slow: its node's mount or network."""

SLOW_PART_OF_LITTLE = 0.05
"""The same where too little is written: what else runs on the node halves such a rate by chance."""


def mount_type(path: Path) -> str:
    """Return the type of the file system that a folder is on; "" where the kernel does not say."""
    try:
        text = MOUNTS.read_text(errors="replace")
    except OSError:
        return ""
    return parse_mount_type(text, str(path.resolve()))


def floors_of(kind: str) -> Floors | None:
    """Return the floors of a type of file system; None where nothing is expected of it."""
    return FLOORS.get(kind)


def below_floors(rates: Mapping[str, float], floors: Floors | None) -> str:
    """Say which rates are below their floors: `write` in MB/s, `create` in files a second."""
    if floors is None:
        return ""
    wanted = {"write": (floors.write, "MB/s"), "create": (floors.create, "files/s")}
    found = [
        f"{name} {rates[name]:.3g} {unit}, where {floors.kind} gives {least:g} at least"
        for name, (least, unit) in wanted.items()
        if name in rates and rates[name] < least
    ]
    return "; ".join(found)


def slow_ranks(
    rates: Sequence[float], hosts: Sequence[str], unit: str, part: float = SLOW_PART
) -> str:
    """Name the ranks that reach less than a part of the others' median; "" for none, or for two."""
    found = []
    for rank, rate in enumerate(rates):
        others = [other for at, other in enumerate(rates) if at != rank]
        if len(others) < 2:
            return ""
        usual = statistics.median(others)
        if rate < part * usual:
            found.append(f"rank {rank} on {hosts[rank]} {rate:.3g} {unit}, the others {usual:.3g}")
    return "; ".join(found)
