"""Processes: their identity, their descendants, and their end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")
PID_MAX_LIMIT = 4 * 1024 * 1024  # the kernel's own constant


@dataclass(frozen=True)
class Identity:
    """One process of one boot of one machine."""

    pid: int
    start: int  # clock ticks since boot, /proc/PID/stat field 22
    boot: str


def identify(pid: int) -> Identity | None:
    """Identify a running process; None for one that ended, a zombie too."""
    fields = proc_stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return Identity(pid, int(fields[19]), boot_id())


def is_alive(identity: Identity) -> bool:
    """Return whether this very process still runs: not another with its number."""
    return identify(identity.pid) == identity


def boot_id() -> str:
    """Return the id of this boot of this machine."""
    return BOOT.read_text().strip()


def proc_stat(pid: int) -> list[str] | None:
    """Read /proc/PID/stat from the state on: the name before it may hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None


def is_there(pid: int) -> bool:
    """Whether a process runs: one that can be read, or another user's that /proc hides (hidepid).

    The kernel refuses to signal another user's, and says of a number that it is nobody's.
    """
    if not 0 < pid < PID_MAX_LIMIT:
        return False
    if proc_stat(pid) is not None:
        return True
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def parents(pid: int) -> list[int]:
    """Return the parent of a process, that one's parent, and so on."""
    found: list[int] = []
    while (fields := proc_stat(pid)) and (pid := int(fields[1])) > 0 and pid not in found:
        found.append(pid)
    return found


def slurm_job(pid: int) -> str:
    """Return the Slurm job of a process, by its cgroup or its environment; "" where none tells."""
    try:
        named = re.search(r"/job_(\d+)(?:/|$)", Path(f"/proc/{pid}/cgroup").read_text(), re.M)
        if named:
            return named[1]
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    ids = (each for each in variables if each.startswith(b"SLURM_JOB_ID="))
    return next(ids, b"=").decode(errors="replace").partition("=")[2]


def user_of(pid: int) -> str:
    """Return the name of a process's user, or its number."""
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return "somebody"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


FIRST_PID_NAMESPACE = "pid:[4026531836]"  # the kernel's own constant


def has_first_numbers() -> bool:
    """Return whether processes have the numbers here that they have outside of all containers."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == FIRST_PID_NAMESPACE
    except OSError:
        return False


PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def adopt_orphans() -> None:
    """Adopt processes whose parents die (PR_SET_CHILD_SUBREAPER), so that none is lost to init."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def below(pid: int) -> list[Identity]:
    """Return every descendant of a process, children before grandchildren."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := proc_stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    descendants, waiting = [], [pid]
    while waiting:
        for child in children.get(waiting.pop(0), []):
            waiting.append(child)
            identity = identify(child)
            if identity is not None:
                descendants.append(identity)
    return descendants


def end(processes: list[Identity], grace_s: float = 5.0) -> None:
    """End these processes: TERM, and KILL for those that are still there after `grace_s`."""
    _signal(processes, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and any(is_alive(process) for process in processes):
        time.sleep(0.02)
    _signal(processes, signal.SIGKILL)


def _signal(processes: list[Identity], number: int) -> None:
    for process in processes:
        if is_alive(process):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)
