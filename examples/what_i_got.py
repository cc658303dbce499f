"""Print what this job was given: its place, its GPUs, its CPUs and memory, and its variables."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

SLURM = ("SLURM_JOB_ID", "SLURM_JOB_PARTITION", "SLURM_JOB_NODELIST")
OTHERS = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MASTER_ADDR", "MASTER_PORT")


def show(name: str, value: object) -> None:
    """Print one fact."""
    print(f"{name:24} {value if value != '' else '(empty)'}", flush=True)


def gpus() -> list[str]:
    """Ask the driver which GPUs are here, at most for ten seconds."""
    if shutil.which("nvidia-smi") is None:
        return ["no nvidia-smi here"]
    try:
        command = ["nvidia-smi", "-L"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return ["nvidia-smi does not answer"]
    return ours((told.stdout + told.stderr).splitlines())


def ours(lines: list[str]) -> list[str]:
    """Leave out the node's other GPUs, which nvidia-smi lists where the site does not hide them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    given = [line for line in lines if line.partition(":")[0].removeprefix("GPU ") in visible]
    return given if len(given) == len(visible) else lines


def memory_limit() -> str:
    """Give the memory that Slurm promised, else what the control group allows."""
    for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU"):
        if name in os.environ:
            return f"{os.environ[name]} MiB ({name})"
    limit = Path("/sys/fs/cgroup/memory.max")
    return limit.read_text().strip() if limit.is_file() else "no limit known"


def main() -> None:
    """Print all there is to say."""
    show("host", socket.gethostname())
    for name in SLURM:
        show(name, os.environ.get(name, "-"))
    show("CPUs usable", len(os.sched_getaffinity(0)))
    show("CPUs per task", os.environ.get("SLURM_CPUS_PER_TASK", "-"))
    show("memory", memory_limit())
    for line in gpus():
        show("GPU", line)
    for name in sorted(os.environ):
        if name in OTHERS or name.startswith(("RV_", "PET_")):
            show(name, os.environ[name])


if __name__ == "__main__":
    main()
