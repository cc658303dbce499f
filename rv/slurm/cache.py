"""Slurm's answers, shared for some seconds by all rv processes of a user on this machine."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from rv.dataclass import dataclass
from rv.files import write_atomically
from rv.transport.own_folder import is_own
from rv.transport.private_directories import is_own_file, make_private


@dataclass(frozen=True, kw_only=True, slots=True)
class CachedAnswer:
    """A script's output, its sentinel, and when it came (seconds since the epoch, our clock)."""

    text: str
    sentinel: str
    at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotCache:
    """Keeps answers in `directory`, one file (0600) for each kind of answer of the cluster `key`.

    A cache that cannot be read or written, or that other users can write to, is an empty one: it
    never makes a command fail.
    """

    directory: Path
    key: str
    clock: Callable[[], float] = time.time

    def load(self, kind: str, max_age: timedelta) -> CachedAnswer | None:
        """Return the stored answer, None where there is none or it is older than `max_age`."""
        answer = self._read(kind)
        if answer is None or not 0 <= self.clock() - answer.at_s < max_age.total_seconds():
            return None
        return answer

    def store(self, kind: str, text: str, sentinel: str) -> None:
        """Keep an answer, in place of the one before, for readers at any moment."""
        head = json.dumps({"at": self.clock(), "sentinel": sentinel})
        contents = f"{head}\n{text}".encode("utf-8", "surrogatepass")
        with suppress(OSError):
            make_private(self.directory)
            if is_own(self.directory):
                write_atomically(self._path(kind), contents, mode=0o600)

    def forget(self) -> None:
        """Drop the answers that describe the queue, after something that changed it."""
        for kind in ("probe", "queue"):
            with suppress(OSError):
                self._path(kind).unlink(missing_ok=True)

    def _path(self, kind: str) -> Path:
        import hashlib  # OpenSSL's: a login node is asked sooner without

        name = hashlib.sha256(self.key.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        return self.directory / f"{name}.{kind}"

    def _read(self, kind: str) -> CachedAnswer | None:
        try:
            path = self._path(kind)
            if not is_own(self.directory) or not is_own_file(path):
                return None
            head, _, text = path.read_bytes().decode("utf-8", "surrogatepass").partition("\n")
            about = json.loads(head)
            return CachedAnswer(text=text, sentinel=str(about["sentinel"]), at_s=float(about["at"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
