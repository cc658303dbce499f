"""The least of a file system that is not broken or overrun, by its type.

For one process, as `storage_net.py` measures it. The floors are rv's own, and generous: below them
a file system is some ten times slower than what is published of its kind.

| kind | MB/s written and synced | files made a second | published for one process |
|---|---|---|---|
| Lustre | 100 | 50 | 500 and 1100 files made a second (Dell Storage for HPC with Intel EE for Lustre; Dell HPC Lustre with Omni-Path: mdtest, one thread, disks of 15,000 revolutions) |
| GPFS, BeeGFS | 100 | 50 | thousands of files made a second over all clients, as of Lustre (Dell's white papers on BeeGFS) |
| NFS | 20 | 10 | hundreds (Dell HPC NFS Storage Solution, mdtest with -y: each file is synced) |
| local disk | 50 | 200 | an NVMe disk writes 1,000 MB/s and more |
"""  # noqa: E501 - a table

from __future__ import annotations

import re
from typing import NamedTuple


class Floors(NamedTuple):
    """The least of one process: MB/s written and synced, and small files made a second."""

    kind: str
    write: float
    create: float


LUSTRE, NFS, LOCAL = "Lustre", "NFS", "local disk"
_PARALLEL = (100.0, 50.0)
FLOORS = {
    "lustre": Floors(LUSTRE, *_PARALLEL),
    "gpfs": Floors("GPFS", *_PARALLEL),
    "beegfs": Floors("BeeGFS", *_PARALLEL),
    "fhgfs": Floors("BeeGFS", *_PARALLEL),
    "nfs": Floors(NFS, 20.0, 10.0),
    "nfs4": Floors(NFS, 20.0, 10.0),
    **dict.fromkeys(("ext4", "xfs", "btrfs", "zfs", "f2fs"), Floors(LOCAL, 50.0, 200.0)),
}
"""By the type that the kernel mounts; of others nothing is expected."""

_OCTAL = re.compile(r"\\([0-7]{3})")
_MOST_CHARACTERS = 4 << 20


def parse_mount_type(mountinfo: str, path: str) -> str:
    """Return the type of the file system that an absolute path is on; "" where nothing tells.

    `mountinfo` is /proc/self/mountinfo, in which the last mount on a folder hides those before.
    """
    found, deepest = "", -1
    for line in mountinfo[:_MOST_CHARACTERS].splitlines():
        before, dash, after = line.partition(" - ")
        words, types = before.split(" "), after.split(" ")
        if not dash or len(words) < 5:
            continue
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), words[4])
        if _is_below(path, point) and len(point) >= deepest:
            found, deepest = types[0][:40], len(point)
    return found


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
