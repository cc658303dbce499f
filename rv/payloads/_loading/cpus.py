"""The CPUs that a job may use, which can be fewer than the node has."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def effective() -> tuple[int, dict[str, int | None]]:
    """Return the least of what affinity, cgroup and Slurm allow, and each of them."""
    per_task = os.environ.get("SLURM_CPUS_PER_TASK", "")
    limits = {
        "visible": os.cpu_count(),
        "affinity": len(os.sched_getaffinity(0)),
        "cgroup": quota(Path("/proc/self/cgroup"), CGROUPS),
        "slurm_cpus_per_task": int(per_task) if per_task.isdecimal() else None,
    }
    return max(1, min(limit for limit in limits.values() if limit)), limits


def quota(membership: Path, root: Path) -> int | None:
    """Return the CPUs that the cgroup and those above it allow, rounded up; None for no limit."""
    quotas = [_v1(root)]
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        number, _, path = line.split(":", 2)
        if number == "0":
            here = root / path.lstrip("/")
            quotas += [
                _v2(folder) for folder in (here, *here.parents) if root in (folder, *folder.parents)
            ]
    limits = [limit for limit in quotas if limit]
    return min(limits) if limits else None


def _v2(folder: Path) -> int | None:
    try:
        most, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if most == "max" else math.ceil(int(most) / int(period))


def _v1(root: Path) -> int | None:
    try:
        most = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        period = int((root / "cpu" / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return math.ceil(most / period) if most > 0 else None
