"""Files of this machine that are replaced whole: a reader sees the old contents or the new ones."""

import os
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
