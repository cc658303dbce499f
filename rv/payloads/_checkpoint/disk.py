"""A disk that is soon full: a small tmpfs that only this process sees, or a limit on file sizes."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000


def small_disk(folder: Path, nbytes: int) -> str:
    """Put a disk of so many bytes on an empty-looking folder, for this process alone; say how.

    Where a process may not mount, files over half of it are refused instead.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS) != 0:
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
            return _limited(nbytes)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    # Without the first of them everybody would see the second.
    private = libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
    size = f"size={nbytes}".encode()
    if not private or libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, size) != 0:
        return _limited(nbytes)
    return f"tmpfs of {nbytes} bytes"


def _limited(nbytes: int) -> str:
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes // 2, nbytes // 2))
    return f"files limited to {nbytes // 2} bytes"
