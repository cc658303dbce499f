"""Directories that belong to the user and that nobody else can change or replace.

Other people use a shared scratch too. A race directory holds what its jobs run and with which
environment, so whoever could replace it would run programs as this user.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rv.errors import ErrorKind, RvError

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def make_private(directory: Path) -> None:
    """Create a directory and those above it that are missing, each 0700 whatever the umask.

    Raises `OSError`. `Path.mkdir` gives only the last of them its mode.
    """
    missing = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def require_safe_root(root: Path) -> None:
    """Raise `RvError(STAGE)` where another user could put something in the place of a race.

    Raises `OSError` where there is no such directory.
    """
    for path in (root, *root.parents):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode) and not _is_trusted(status.st_uid):
            raise _unsafe(root, f"{path} is a link that belongs to {_owner(status.st_uid)}")
    status = root.stat()
    if not _is_trusted(status.st_uid):
        raise _unsafe(root, f"it belongs to {_owner(status.st_uid)}")
    if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        raise _unsafe(root, f"others may rename what is in it (mode {status.st_mode & 0o7777:04o})")


@contextmanager
def own_directory(directory: Path) -> Iterator[Path]:
    """Give a directory of this user's by a path that stays, whoever renames what leads to it.

    Raises `OSError` where it, or a link on the way to it, belongs to another user.
    """
    for path in (directory.absolute(), *directory.absolute().parents):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode) and not _is_trusted(status.st_uid):
            raise PermissionError(errno.EPERM, f"a link of {_owner(status.st_uid)}'s", str(path))
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        owner = os.fstat(descriptor).st_uid
        if owner != os.geteuid():
            raise PermissionError(errno.EPERM, f"it belongs to {_owner(owner)}", str(directory))
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def require_private(directory: Path) -> None:
    """Raise `RvError(STAGE)` where a file system did not make a new directory the user's alone."""
    status = directory.stat()
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
        raise RvError(
            ErrorKind.STAGE,
            f"the file system keeps no owners and permissions, on {directory.parent}",
            hint="a race holds your environment: name another disk with RV_RACE_ROOT=/path",
        )


def is_own(path: str | Path) -> bool:
    """Whether this is a directory, no link, of this user's that no other user can write to."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    is_directory = stat.S_ISDIR(status.st_mode)
    return is_directory and status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE


def _is_trusted(uid: int) -> bool:
    return uid in (0, os.geteuid())


def _owner(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _unsafe(root: Path, why: str) -> RvError:
    return RvError(
        ErrorKind.STAGE,
        f"another user could change your races there: {why}, on {root}",
        hint="name a directory of your own with RV_RACE_ROOT=/path (chmod go-w where it is yours)",
    )
