"""The user's queue: one squeue for all of a user's rv processes on this machine."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rv.models.job import JobRecord
from rv.slurm.cache import Answer, SnapshotCache
from rv.slurm.jobs import parse_queue, queue_script
from rv.slurm.probe import new_sentinel
from rv.transport import Transport
from rv.transport.patience import ask_again
from rv.transport.places import make_private

_ASK_TIMEOUT_S = 25.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """Answers about the user's jobs, at most so old as the caller can bear."""

    transport: Transport
    cache: SnapshotCache

    def records(self, max_age: timedelta) -> tuple[JobRecord, ...] | None:
        """The records of rv's jobs; None where no controller answered.

        A younger answer of another rv process serves too; two that ask at once ask once.
        """
        stored = self.cache.load("queue", max_age)
        if stored is None:
            with _one_at_a_time(self.cache.directory / "queue.lock"):
                stored = self.cache.load("queue", max_age) or self._ask()
        return parse_queue(stored.text, stored.sentinel) if stored else None

    def _ask(self) -> Answer | None:
        return ask_again(self._ask_once)

    def _ask_once(self) -> Answer | None:
        sentinel = new_sentinel()
        completed = self.transport.run(queue_script(sentinel), timeout=_ASK_TIMEOUT_S)
        if parse_queue(completed.stdout, sentinel) is None:
            return None
        self.cache.store("queue", completed.stdout, sentinel)
        return Answer(text=completed.stdout, sentinel=sentinel, at=self.cache.clock())


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Hold a lock file where one can be had; without one, everybody may ask."""
    try:
        make_private(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield
        return
    try:
        _lock(handle)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    """Wait for the lock for a while; where there are no locks, or no end, go on without."""
    deadline = time.monotonic() + _ASK_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            return
        else:
            return
