"""The profile `gpu`: this machine's real NVIDIA devices under a Slurm of its own."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.sandbox import processes
from rv.sandbox.profile import Gres, NodeGroup, Partition, Profile

QUERY: Final = "--query-gpu=index,name,memory.total"
# What stands in product names beside the model.
NOT_MODELS: Final = {"nvidia", "tesla", "geforce", "quadro", "graphics", "device", "gpu"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One real GPU."""

    index: int
    name: str
    memory: int
    file: str


def gpu_profile(devices: Sequence[Device], *, cpus: int, memory: int) -> Profile:
    """One node with these devices; models in the order of their first device."""
    groups: dict[tuple[str, int], list[Device]] = {}
    for device in devices:
        groups.setdefault((device.name, device.memory), []).append(device)
    gres = tuple(
        Gres(
            type=gres_type(name),
            count=len(group),
            product=name,
            memory=size,
            files=tuple(device.file for device in group),
        )
        for (name, size), group in groups.items()
    )
    node = NodeGroup(prefix="gpu", cpus=cpus, memory=memory, gres=gres)
    partition = Partition(
        name="gpu", nodes=("gpu",), default=True, max_time="3-0", default_time="1:00:00"
    )
    return Profile(cluster="gpu", nodes=(node,), partitions=(partition,))


def gres_type(product: str) -> str:
    """A GRES type as sites name it: `NVIDIA A100-SXM4-80GB` is a100."""
    words = [word for word in re.split(r"[ _]", product.lower()) if word not in NOT_MODELS]
    joined = "".join(words[:2]) if words and words[0] in ("rtx", "gtx") else "".join(words[:1])
    return re.sub(r"[^a-z0-9].*", "", joined) or "gpu"


def parse_devices(text: str, files: Sequence[str]) -> list[Device]:
    """The devices of nvidia-smi's csv that have a device file."""
    devices = []
    for line in text.splitlines():
        match = re.fullmatch(r"(\d+), (.+), (\d+)", line.strip())
        if match and (file := f"/dev/nvidia{match[1]}") in files:
            devices.append(
                Device(index=int(match[1]), name=match[2], memory=int(match[3]), file=file)
            )
    return devices


def machine_profile() -> Profile:
    """The profile of this machine, from nvidia-smi and /dev."""
    argv = [processes.program("nvidia-smi") or "nvidia-smi", QUERY, "--format=csv,noheader,nounits"]
    done = processes.run(argv, env=processes.environment({}))
    devices = parse_devices(done.stdout, [str(path) for path in Path("/dev").glob("nvidia[0-9]*")])
    if done.returncode or not devices:
        raise RvError(
            ErrorKind.SANDBOX,
            f"profile gpu found no NVIDIA device here: {done.complaint}",
            hint="rv sandbox up --profile small has fake GPUs",
        )
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return gpu_profile(devices, cpus=os.cpu_count() or 1, memory=pages // 2**20 * 9 // 10)
