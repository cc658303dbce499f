"""The user's queue: one squeue for all of a user's rv processes on this machine."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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
    """Hold a lock file; go on without it where there are no locks, or it stays taken."""
    from filelock import FileLock

    lock = FileLock(path, timeout=_ASK_TIMEOUT_S, mode=0o600, fallback_to_soft=False)
    with ExitStack() as stack:
        with suppress(OSError):  # filelock's Timeout is one
            make_private(path.parent)
            stack.enter_context(lock)
        yield
