"""The slots that workers are given: GPUs of the inherited mask, or CPUs of the affinity mask.

A GPU is named by UUID, which means the same in every process: indices are counted anew under each
CUDA_VISIBLE_DEVICES, and on MIG slices they do not work at all.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from contract.nvidia import mig_uuids

CPU_SLOTS = 2


class Slot(NamedTuple):
    """One place: `name` as reports show it, `key` the UUID, or the number of a CPU."""

    name: str
    key: str
    kind: str


def gpus(devices: list[dict[str, Any]], mask: str) -> list[Slot]:
    """Return the GPUs that torch sees, in its order; `mask` is CUDA_VISIBLE_DEVICES."""
    named = [word for word in mask.split(",") if word.startswith(("GPU-", "MIG-"))]
    keys = [_uuid(device, place, named) for place, device in enumerate(devices)]
    return [Slot(f"cuda:{place}", key, "cuda") for place, key in enumerate(keys)]


def _uuid(device: dict[str, Any], place: int, named: list[str]) -> str:
    """Prefer the mask's own word; a MIG slice's properties may hold its parent's UUID."""
    if place < len(named):
        return named[place]
    if device.get("mig"):
        slices = mig_uuids()
        if place < len(slices):
            return slices[place]
    uuid = str(device["uuid"])
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


def cpus(most: int = CPU_SLOTS) -> list[Slot]:
    """Return CPUs that this process may run on."""
    allowed = sorted(os.sched_getaffinity(0))[:most]
    return [Slot(f"cpu:{number}", str(number), "cpu") for number in allowed]


def round_robin(slots: list[Slot], workers: int) -> list[Slot]:
    """Return the slot of each worker: the i-th has slot i mod n."""
    return [slots[worker % len(slots)] for worker in range(workers)]


def reachable(devices: int) -> int:
    """Count the GPUs of this node that can be opened beyond the ones that were given."""
    nodes = [name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]  # noqa: PTH208
    opened = 0
    for name in nodes:
        try:
            os.close(os.open(f"/dev/{name}", os.O_RDWR))
            opened += 1
        except OSError:
            continue
    return max(0, opened - devices)
