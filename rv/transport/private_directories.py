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
from rv.files import others_may_write

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_MOST_LINKS: Final = 40  # as the kernel


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

    Everything on the way to it, behind links too, belongs to root or to the user, and nobody else
    may rename what is in it. Raises `OSError` where there is no such directory.
    """
    for path in _on_the_way_to(root):
        status = path.lstat()
        is_link = stat.S_ISLNK(status.st_mode)
        if not _is_trusted(status.st_uid):
            kind = "is a link that belongs" if is_link else "belongs"
            raise _unsafe(root, f"{path} {kind} to {_owner(status.st_uid)}")
        is_sticky = bool(status.st_mode & stat.S_ISVTX)
        if not is_link and not is_sticky and others_may_write(status):
            mode = f"mode {status.st_mode & 0o7777:04o}"
            raise _unsafe(root, f"others may rename what is in {path} ({mode})")


def _on_the_way_to(path: Path) -> Iterator[Path]:
    """Give each directory and link that the kernel passes, in its order, the last one too."""
    here, names, links = Path("/"), list(reversed(path.absolute().parts[1:])), 0
    yield here
    while names:
        name = names.pop()
        here = here.parent if name == ".." else here / name
        yield here
        if here.is_symlink():
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = here.readlink()
            here = Path("/") if target.is_absolute() else here.parent
            names += reversed(target.parts[1:] if target.is_absolute() else target.parts)


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


def is_own_file(path: str | Path) -> bool:
    """Whether this is a file of this user's; to read a pipe or a device may never end."""
    try:
        status = Path(path).stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


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
