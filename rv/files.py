"""Files of this machine: replaced whole, read and written where other users may plant others.

A file that is replaced whole has the old contents or the new ones for whoever reads it.
"""

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomically(
    path: Path, contents: str | bytes, *, mode: int | None = None, durable: bool = False
) -> None:
    """Replace a file by a new one written beside it, or leave it as it was.

    `mode` is the new file's mode whatever the umask; without one it is 0666 less the umask.
    `durable` waits until the contents are on the disk, for what a crash of the machine must not
    lose. Raises `OSError`; no temporary file is left then.
    """
    data = contents.encode() if isinstance(contents, str) else contents
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    # O_EXCL neither follows a link nor takes a file that another user put there.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = os.open(temporary, flags, 0o666 if mode is None else mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_own(path: Path, text: str) -> None:
    """Replace a file that is new, or one of this user's, and keep its mode: no link, no device.

    Raises `OSError`, also for what another user laid there; the old file is as it was then.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        write_atomically(path, text)
        return
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it is no file of yours", str(path))
    write_atomically(path, text, mode=stat.S_IMODE(status.st_mode))


@contextmanager
def locked(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold a lock file, its folder made; a file system without locks is used without one.

    Raises `TimeoutError` where another process holds it for longer than `timeout_s` seconds, and
    `OSError` where the folder cannot be made.
    """
    import filelock  # most who read files lock none

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path, timeout=timeout_s, mode=0o600, fallback_to_soft=False)
    try:
        lock.acquire()
    except TimeoutError:
        raise
    except OSError:
        pass  # what is written under it is replaced whole, and says itself where that cannot be
    try:
        yield
    finally:
        lock.release()


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read, without waiting. Raises `OSError`, also for a FIFO or device."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return file


def read_regular(path: Path, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes, without waiting for anything.

    Raises `OSError`, also for a larger file, a FIFO or a device.
    """
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"more than {limit:,} bytes are too many", str(path))
    return data


def modified_at(path: Path) -> float:
    """Return when a file was last written, in seconds since the epoch; 0 where nothing says."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def files_below(folder: Path, most: int) -> tuple[list[Path], dict[Path, str]]:
    """Name the files below a folder, sorted; links to folders are not followed.

    Give also the folders that were not read to their end, each with the reason: that it cannot be
    opened, or for `folder` itself that there are more than `most` files and folders.
    """
    files, folders, unread, left = list[Path](), [folder], dict[Path, str](), most
    while folders and left >= 0:
        place = folders.pop()
        try:
            with os.scandir(place) as entries:
                for entry in itertools.islice(entries, left + 1):
                    is_folder = entry.is_dir(follow_symlinks=False)
                    (folders if is_folder else files).append(Path(entry.path))
                    left -= 1
        except FileNotFoundError:
            continue
        except OSError as error:
            unread[place] = error.strerror or str(error)
    if left < 0:
        unread[folder] = f"more than {most:,} files and folders: not all of them were read"
    return sorted(files)[:most], unread


def why_not_private(directory: Path) -> str:
    """Return why another user could replace a directory or what is in it, "" where none could.

    It and what leads to it belong to this user or to root, and nobody else may write there, but to
    a sticky folder above it. What does not exist yet is nobody's.
    """
    place = directory.resolve()
    for path in (place, *place.parents):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        is_ours = (
            status.st_uid == os.geteuid() if path == place else status.st_uid in (0, os.geteuid())
        )
        if not is_ours:
            return f"{path} belongs to another user"
        is_sticky = path != place and bool(status.st_mode & stat.S_ISVTX)
        if others_may_write(status) and not is_sticky:
            return f"others may write to {path} (mode {status.st_mode & 0o7777:04o})"
    return ""


def others_may_write(status: os.stat_result) -> bool:
    """Return whether the mode lets others write; a user's own group of that name is nobody else."""
    if not status.st_mode & stat.S_IWGRP or status.st_gid != os.getegid():
        return bool(status.st_mode & 0o022)
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(status.st_gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return True
    is_private = group.gr_name == user.pw_name and not group.gr_mem
    return not is_private or bool(status.st_mode & stat.S_IWOTH)
