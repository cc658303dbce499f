"""What the flags of `stress.py` come to: one job a device."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from contract.verdicts import NotPassed

from .torch_burn import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (16384, 12288, 8192, 4096)  # the first that fits
ON_CPU = (256,)
UNITS = {"": 2**20, "M": 2**20, "G": 2**30}


def memory(text: str) -> float:
    """Read `90%` as a share, `512`, `512M` and `2G` as bytes."""
    try:
        if text.endswith("%"):
            value = float(text[:-1]) / 100
            fits = 0 < value <= 1
        else:
            number = text.rstrip("MG")
            value = float(number) * UNITS[text[len(number) :]]
            fits = value >= 2**20
    except (ValueError, KeyError):
        fits, value = False, 0.0
    if not fits:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a share (90%) nor MiB (512, 2G)")
    return value


def jobs(torch: Any, devices: Sequence[str], options: argparse.Namespace) -> list[Job]:
    """Plan one job a device; on a CPU `--workers` of them. Raises NotPassed for too much memory."""
    on_cpu = devices == ["cpu"]
    places = ["cpu"] * options.workers if on_cpu else list(devices)
    memory = _memory_of_each(torch, places, options.memory)
    sizes = ON_CPU if on_cpu else SIZES
    return [
        Job(
            device=place,
            index=index,
            dtype=options.dtype or _dtype(torch, place),
            sizes=(options.size,) if options.size else sizes,
            memory=memory,
            seed=options.seed,
            faults=_faults(options, index),
            pulse=1.0 if options.mode == "pulse" else 0.0,
        )
        for index, place in enumerate(places)
    ]


def _memory_of_each(torch: Any, places: list[str], asked: float | None) -> float:
    """Return bytes of each job, or on a GPU a share of what is free. Raises NotPassed."""
    on_cpu = places[0] == "cpu"
    memory = asked or (2**24 if on_cpu else 0.9)
    for place in places:
        _check_memory(torch, place, memory * (len(places) if on_cpu else 1))
    return memory * available() / len(places) if on_cpu and memory <= 1 else memory


def label(job: Job) -> str:
    """Name a job's device for people; there may be several on a CPU."""
    return job.device if job.device.startswith("cuda") else f"cpu:{job.index}"


def available() -> int:
    """Give the bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _check_memory(torch: Any, device: str, wanted: float) -> None:
    if wanted <= 1:
        return
    on_cpu = device == "cpu"
    has = available() if on_cpu else torch.cuda.get_device_properties(device).total_memory
    if wanted > has:
        reason = f"--memory asks for {wanted / 2**20:.0f} MiB of {device}'s {has / 2**20:.0f}"
        raise NotPassed("ERROR", "out_of_memory", reason)


def _dtype(torch: Any, device: str) -> str:
    """Take the type that loads a device most: bfloat16 is emulated before capability 8."""
    if device == "cpu":
        return "float32"
    major = torch.cuda.get_device_capability(device)[0]
    return "bfloat16" if major >= 8 else "float16" if major >= 7 else "float32"


def _faults(options: argparse.Namespace, index: int) -> dict[str, dict[str, str]]:
    """Pick the faults that strike this worker: without a rank, those of the first one."""
    return {
        fault.name: fault.where
        for fault in options.inject
        if int(fault.where.get("rank", 0)) == index
    }
