"""Who else is on the GPUs of this job: asked of the driver before, during and after the work.

A process is the job's own where it descends from what launched the ranks, or where its cgroup or
environment names the same Slurm job. Where MPS runs a GPU is shared on purpose, and nobody is
foreign. One that /proc hides from this user (hidepid) is there all the same, without a name. Who
cannot be seen, because a container has process numbers of its own, shows by the memory
that is in use before the work, and by the time that this process does not get
(`_harness.timing.own_share`).
"""

from __future__ import annotations

import os
import statistics
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _processes import processes

if TYPE_CHECKING:
    from contract.readings import Occupant, Source

HELD_MIB = 1024.0
"""In use before the work: an idle driver has some hundred MiB, a CUDA context up to about 600."""
EVERY_S, EVERY_CALL_S = 5.0, 20.0  # between looks: NVML's cost nothing, nvidia-smi is a program
PART_WARN, PART_FAIL = 0.90, 0.80
"""Of the GPU's time: one that is not shared gives more than 0.97."""
MPS, MPS_FOLDER = "nvidia-cuda-mps", "/tmp/nvidia-mps"  # noqa: S108 - CUDA's own default

Finding = tuple[str, str]  # code, reason


@dataclass
class Seen:
    """What was seen on one GPU; `is_told` is whether the driver says who is on it."""

    is_told: bool = False
    foreign: dict[int, str] = field(default_factory=dict)  # in words, by process
    held_mib: float = 0.0  # before the work, by nobody who could be seen
    shares: list[float] = field(default_factory=list)  # of the time that this process got


class Watch:
    """Looks at the GPUs, named by their labels, until it is stopped."""

    def __init__(self, source: Source | None, uuids: dict[str, str], ranks_here: int = 1) -> None:
        self.seen = {label: Seen() for label in uuids}
        self._source, self._uuids, self._ranks_here = source, uuids, ranks_here
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._look_again, daemon=True)

    def start(self) -> None:
        """Look before the work, and from time to time while it runs."""
        if self._source is not None:
            self._look(before=True)
            self._thread.start()

    def stop(self) -> None:
        """Look after the work."""
        if self._thread.is_alive() and not self._stop.is_set():
            self._stop.set()
            self._thread.join(3)  # a hung driver must not hold the verdict back
            self._look()

    def add_share(self, label: str, share: float | None) -> None:
        """Note what part of the GPU's time this process got just now; None where it is unknown."""
        if share is not None:
            self.seen.setdefault(label, Seen()).shares.append(share)

    def findings(self, label: str) -> list[Finding]:
        """Say who else was on a GPU, who held its memory, and how much of its time was gone."""
        seen = self.seen[label]
        found = []
        if seen.foreign:
            who = ", ".join(list(seen.foreign.values())[:5])
            found.append(("gpu_busy", f"{label} is not this job's alone: {who}"))
        if seen.held_mib > 0:
            held = (
                f"{seen.held_mib:.0f} MiB were in use before this job began, by nobody it can see"
            )
            found.append(("memory_held", f"{label}: {held}"))
        if seen.shares and statistics.fmean(seen.shares) < PART_WARN:
            got = f"{statistics.fmean(seen.shares):.0%} of the time"
            found.append(("contended", f"{label} worked for this job {got}, else for another"))
        return found

    def is_failure(self, label: str) -> bool:
        """Whether what was found takes more than a bit of the GPU."""
        seen = self.seen[label]
        lost = bool(seen.shares) and statistics.fmean(seen.shares) < PART_FAIL
        return bool(seen.foreign) or seen.held_mib > 0 or lost

    def details(self, label: str) -> dict[str, Any]:
        """Return what was looked at."""
        seen = self.seen[label]
        source = self._source.name if self._source is not None and seen.is_told else None
        least = min(seen.shares, default=None)
        return {"asked": source, "probes": len(seen.shares), "least_share": least}

    def _look_again(self) -> None:
        assert self._source is not None
        every_s = EVERY_S if self._source.interval < 1 else EVERY_CALL_S
        while not self._stop.wait(every_s):
            self._look()

    def _look(self, *, before: bool = False) -> None:
        assert self._source is not None
        occupants = self._source.occupants()
        readings = self._source.read() if before else {}
        with self._lock:
            for label, uuid in self._uuids.items():
                if uuid in occupants:
                    self._note(self.seen[label], occupants[uuid])
                if before and uuid in readings:
                    used = readings[uuid].memory_used_mib or 0.0
                    self._note_memory(self.seen[label], used, occupants.get(uuid, []))

    def _note(self, seen: Seen, occupants: list[Occupant]) -> None:
        # Where the driver hides processes, it hides this job's, too.
        own = any(is_own(each.pid) for each in occupants)
        seen.is_told = seen.is_told or own or processes.has_first_numbers()
        for each in others(occupants):
            seen.foreign.setdefault(each.pid, in_words(each))

    def _note_memory(self, seen: Seen, used: float, occupants: list[Occupant]) -> None:
        """Note memory that nobody explains who can be seen; ranks beside this one have contexts."""
        if is_shared(occupants):
            return
        named = [*others(occupants), *(each for each in occupants if is_own(each.pid))]
        rest = used - sum(each.memory_mib or 0.0 for each in named)
        if rest > HELD_MIB * self._ranks_here:
            seen.held_mib = rest


def others(occupants: list[Occupant]) -> list[Occupant]:
    """Pick the processes that are there, though /proc may hide them, and are not of this job.

    The driver's number may be another process's in a container. It counts in the first namespace of
    process numbers, and where it was right for a process of this job.
    """
    own = [each for each in occupants if is_own(each.pid)]
    if is_shared(occupants) or not (own or processes.has_first_numbers()):
        return []
    return [each for each in occupants if each not in own and processes.is_there(each.pid)]


def is_shared(occupants: list[Occupant]) -> bool:
    """Whether MPS runs: by its server's name or, where /proc hides it, by its clients' pipe.

    CUDA looks for the pipe at the same place: where it is, this process is a client, too.
    """
    if any(MPS in each.name for each in occupants):
        return True
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", MPS_FOLDER))
    is_hidden = any(processes.proc_stat(each.pid) is None for each in occupants)
    return is_hidden and (folder / "control").exists()


def is_own(pid: int) -> bool:
    """Whether a process is of this job: below what launched it, or of the same Slurm job."""
    if processes.proc_stat(pid) is None:
        return False
    launch = os.getppid() if "LOCAL_RANK" in os.environ else os.getpid()
    job = os.environ.get("SLURM_JOB_ID")
    is_below = launch in (pid, *processes.parents(pid))
    return is_below or bool(job and processes.slurm_job(pid) == job)


def in_words(occupant: Occupant) -> str:
    """Name a process, its user and its memory; names are other users' and may hold anything."""
    words = [] if occupant.name.startswith("[") else occupant.name.split()  # [Not Found]
    name = (words or ["a program"])[0].rpartition("/")[2]
    name = "".join(letter if letter.isprintable() else "?" for letter in name)[:60]
    memory = "" if occupant.memory_mib is None else f", {occupant.memory_mib:.0f} MiB"
    return f"{name} of {processes.user_of(occupant.pid)} (process {occupant.pid}{memory})"
