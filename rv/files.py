"""Files of this machine: replaced whole, read and written where other users may plant others.

A file that is replaced whole has the old contents or the new ones for whoever reads it.
"""

import errno
import itertools
import os
import stat
from contextlib import suppress
from pathlib import Path


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
    """Write a file that is new, or one of this user's: through no link, and into no device.

    Raises `OSError`, also for what another user laid there.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "w", encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it is no file of yours", str(path))
        file.truncate(0)
        file.write(text)


def read_regular(path: Path, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes, without waiting for anything.

    Raises `OSError`, also for a larger file, a FIFO or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"more than {limit:,} bytes are too many", str(path))
    return data


def files_below(folder: Path, most: int) -> list[Path]:
    """Name the files below a folder, sorted, at most so many; links to folders are not followed."""
    files, folders = list[Path](), [folder]
    while folders and len(files) < most:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in itertools.islice(entries, most):
                is_folder = entry.is_dir(follow_symlinks=False)
                (folders if is_folder else files).append(Path(entry.path))
    return sorted(files)[:most]
