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
            turns=_turns(torch, place) if options.rotate else (),
            turn_s=options.rotate or 0.0,
            peer=_peer(places, index) if options.with_p2p else "",
        )
        for index, place in enumerate(places)
    ]


def _faults(options: argparse.Namespace, index: int) -> dict[str, dict[str, str]]:
    """Return the faults of one job: the first one's, unless they name another's `rank`."""
    asked = (fault for fault in options.inject if int(fault.where.get("rank", 0)) == index)
    return {fault.name: fault.where for fault in asked}


def _peer(places: list[str], index: int) -> str:
    """Return the next device; "" for one alone."""
    return places[(index + 1) % len(places)] if len(places) > 1 else ""


def _memory_of_each(torch: Any, places: list[str], asked: float | None) -> float:
    """Return bytes of each job, or on a GPU a share of what is free. Raises NotPassed."""
    if places[0] == "cpu":
        memory, available = asked or 2.0**24, _cpu_memory()
        if memory <= 1:
            return memory * available / len(places)
        _require_memory("cpu", memory * len(places), available)
        return memory
    memory = asked or 0.9
    for place in places:
        if memory > 1:
            _require_memory(place, memory, torch.cuda.get_device_properties(place).total_memory)
    return memory


def _cpu_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _require_memory(device: str, asked: float, total: float) -> None:
    if asked > total:
        reason = f"--memory asks for {asked / 2**20:.0f} MiB of {device}'s {total / 2**20:.0f}"
        raise NotPassed("ERROR", "out_of_memory", reason)


def _turns(torch: Any, device: str) -> tuple[str, ...]:
    """Return the types that a device has, the one that loads it most first."""
    if device == "cpu":
        return ("float32", "float64", "bfloat16")
    major = torch.cuda.get_device_capability(device)[0]
    newer = ("bfloat16", "tf32") if major >= 8 else ()
    first = _dtype(torch, device)
    every = (*newer, "float16", "float32", "float64")
    return (first, *(dtype for dtype in every if dtype != first))


def _dtype(torch: Any, device: str) -> str:
    """Take the type that loads a device most: bfloat16 is emulated before capability 8."""
    if device == "cpu":
        return "float32"
    major = torch.cuda.get_device_capability(device)[0]
    return "bfloat16" if major >= 8 else "float16" if major >= 7 else "float32"
