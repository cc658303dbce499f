"""A folder of this user's own, and the one for connections. Nearly nothing is loaded for it."""

import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_MOST_FOLDER: Final = 40
"""Characters: a socket's path has 104 at most, and ssh adds 58."""


def connections_folder() -> str:
    """Name the folder of shared connections; whether it is there and the user's is not said."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = f"{runtime.rstrip('/')}/rv"
    if not runtime or len(folder) > _MOST_FOLDER:
        folder = f"/tmp/rv-ssh-{os.getuid()}"  # noqa: S108 - made 0700, owner checked
    return folder


def is_own(path: "str | Path") -> bool:
    """Whether this is a directory, no link, of this user's that no other user can write to."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return is_own_status(status)


def is_own_status(status: os.stat_result) -> bool:
    """Whether this is the status of a directory of this user's that no other user can write to."""
    is_directory = stat.S_ISDIR(status.st_mode)
    return is_directory and status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE
