"""The slots that workers are given: GPUs of the inherited mask, or CPUs of the affinity mask.

A GPU is named by UUID, which means the same in every process: indices are counted anew under each
CUDA_VISIBLE_DEVICES, and on MIG slices they do not work at all. nvidia-smi reports their memory.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


CPU_SLOTS = 2


class Slot(NamedTuple):
    """One place: `name` as reports show it, `key` the UUID, or the number of a CPU."""

    name: str
    key: str
    kind: str


def gpus(devices: list[dict[str, Any]], mask: str) -> list[Slot]:
    """Give the GPUs that torch sees, in its order; `mask` is the inherited CUDA_VISIBLE_DEVICES."""
    named = [word for word in mask.split(",") if word.startswith(("GPU-", "MIG-"))]
    keys = [_uuid(device, place, named) for place, device in enumerate(devices)]
    return [Slot(f"cuda:{place}", key, "cuda") for place, key in enumerate(keys)]


def _uuid(device: dict[str, Any], place: int, named: list[str]) -> str:
    """Prefer the mask's own word; a MIG slice's properties may hold its parent's UUID."""
    if place < len(named):
        return named[place]
    if device.get("mig"):
        slices = _mig_uuids()
        if place < len(slices):
            return slices[place]
    uuid = str(device["uuid"])
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


def _mig_uuids() -> list[str]:
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], check=True, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return re.findall(r"UUID: (MIG-[^)]+)\)", listed.stdout)


def cpus(most: int = CPU_SLOTS) -> list[Slot]:
    """Give CPUs that this process may run on."""
    allowed = sorted(os.sched_getaffinity(0))[:most]
    return [Slot(f"cpu:{number}", str(number), "cpu") for number in allowed]


def round_robin(slots: list[Slot], workers: int) -> list[Slot]:
    """Give each worker its slot: the i-th has slot i mod n."""
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


def used_memory() -> dict[str, int]:
    """Give MiB in use by GPU UUID; {} where nvidia-smi is absent or does not say."""
    words = ["nvidia-smi", "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = [line.split(", ") for line in asked.stdout.splitlines()]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


@contextlib.contextmanager
def telemetry(path: Path | None) -> Iterator[None]:
    """Let nvidia-smi write utilisation and memory once a second into a file, where it is there."""
    if path is None:
        yield
        return
    fields = "timestamp,index,utilization.gpu,memory.used"
    words: list[Any] = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv", "-l", "1"]
    with path.open("w") as file:
        try:
            recorder = subprocess.Popen(words, stdout=file, stderr=subprocess.DEVNULL)
        except OSError:
            yield
            return
        try:
            yield
        finally:
            recorder.kill()
            recorder.wait()
