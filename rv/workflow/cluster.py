"""A cluster as commands use it."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from rv.dataclass import dataclass
from rv.slurm.cache import SnapshotCache
from rv.slurm.script import new_sentinel
from rv.transport import Transport
from rv.transport.query_retry import Patience

if TYPE_CHECKING:
    from rv.models.snapshot import Snapshot
    from rv.slurm.squeue import OwnJobs

_USUAL_PATIENCE: Final = Patience()
_FRESH: Final = timedelta(seconds=2)
_FRESH_QUEUE: Final = timedelta(seconds=1)


class Early(StrEnum):
    """What a command is about to need: of a login node elsewhere it is asked at once."""

    NOTHING = "nothing"
    PLAN = "plan"
    RACES = "races"
    RACES_AND_QUEUE = "races and queue"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginNode:
    """What a login on another machine has: its environment, and the directory it starts in.

    `connection` says in words how it is reached: "openssh, shared".
    """

    environ: Mapping[str, str]
    home: str
    connection: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """A cluster as commands use it. `key` tells its races from other clusters'.

    `answer` waits for a snapshot that is on its way already, `asking` until the queue's answer is
    kept; `patience` is with a controller that is
    silent; `login` is None where Slurm's commands run on this machine; `name` is what the
    configuration files call it, "" for others. `read_ahead` reads in one round trip what a command
    is about to look at, None where that is no trip.
    """

    key: str
    label: str
    transport: Transport
    cache: SnapshotCache
    race_root: str
    slurm_path: str
    answer: "Callable[[], Snapshot] | None" = None
    asking: Callable[[], None] | None = None
    patience: Patience = _USUAL_PATIENCE
    login: LoginNode | None = None
    name: str = ""
    read_ahead: Callable[[Early], None] | None = None

    def take_snapshot(self) -> "Snapshot":
        """Ask the cluster what it is now, or take another process's answer of the last 30 s."""
        from rv.slurm.probe import take_snapshot  # most commands take none

        return take_snapshot(self.transport, self.cache, patience=self.patience, early=self.answer)

    def take_fresh_snapshot(self) -> "Snapshot":
        """Ask the cluster what it is just now, as news about its jobs has to fit."""
        from rv.slurm.probe import take_snapshot

        return take_snapshot(self.transport, self.cache, max_age=_FRESH, patience=self.patience)

    @property
    def queue(self) -> "OwnJobs":
        """The user's queue there."""
        from rv.slurm.squeue import OwnJobs  # a login node elsewhere is asked sooner without

        return OwnJobs(transport=self.transport, cache=self.cache, asking=self.asking)

    def ask_queue(self) -> None:
        """Keep the queue's answer for what comes; that there was none for long is one too."""
        if self.queue.records(_FRESH_QUEUE) is None:
            self.cache.store("queue", "", new_sentinel())
