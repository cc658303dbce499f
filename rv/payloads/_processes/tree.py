"""All processes below this one, and their end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from . import identity

if TYPE_CHECKING:
    from .identity import Identity

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def adopt_orphans() -> None:
    """Let processes whose parents die become this one's children, not init's: none gets lost."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Let this process be killed when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def below(pid: int) -> list[Identity]:
    """Give every descendant of a process, children before grandchildren."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := identity.stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        for child in children.get(waiting.pop(0), []):
            waiting.append(child)
            known = identity.of(child)
            if known is not None:
                found.append(known)
    return found


def end(processes: list[Identity], grace: float = 5.0) -> None:
    """End these processes: TERM, and KILL for those that are still there after the grace."""
    _signal(processes, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and any(identity.alive(process) for process in processes):
        time.sleep(0.02)
    _signal(processes, signal.SIGKILL)


def _signal(processes: list[Identity], number: int) -> None:
    for process in processes:
        if identity.alive(process):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)
