"""Why a file could not be written: the same words here and on a login node."""

import errno
import os
from typing import Final

_WORDS: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
}


def why_not_written(error: OSError) -> str:
    """Return what an error of this machine's means."""
    return _WORDS.get(error.errno or 0) or error.strerror or "I/O error"


def why_not_written_there(text: str) -> str:
    """Return the same from what programs said, in the C locale; "" where none of it is known."""
    causes = (words for number, words in _WORDS.items() if os.strerror(number) in text)
    return next(causes, "")
