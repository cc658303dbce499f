"""One Slurm job as one command reported it, and Slurm's job states."""

import re
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final

from rv.dataclass import dataclass


class JobState(StrEnum):
    """Slurm's job states (squeue(1)), and two of rv's own.

    ENDED: a loser that has left the queue, however it ended. UNKNOWN: no command reported the job,
    or it reported a state that is not listed here.
    """

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    COMPLETING = "COMPLETING"
    STAGE_OUT = "STAGE_OUT"
    SIGNALING = "SIGNALING"
    SUSPENDED = "SUSPENDED"
    STOPPED = "STOPPED"
    RESIZING = "RESIZING"
    REQUEUED = "REQUEUED"
    REQUEUE_FED = "REQUEUE_FED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    EXPEDITING = "EXPEDITING"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NODE_FAIL = "NODE_FAIL"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    PREEMPTED = "PREEMPTED"
    REVOKED = "REVOKED"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    RECONFIG_FAIL = "RECONFIG_FAIL"
    ENDED = "ENDED"
    UNKNOWN = "UNKNOWN"

    # That of Enum is written in Python, and sets of states are asked for each of 50,000 jobs.
    __hash__ = str.__hash__

    @property
    def is_pending(self) -> bool:
        """Whether the job waits in the queue."""
        return self in _PENDING

    @property
    def is_terminal(self) -> bool:
        """Whether Slurm says that the job has ended for good."""
        return self in _TERMINAL


_PENDING: Final = frozenset(
    {
        "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "EXPEDITING", "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
    }
)  # fmt: skip
_TERMINAL: Final = frozenset(
    {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL",
        "DEADLINE", "PREEMPTED", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL", "ENDED",
    }
)  # fmt: skip
_FIRST_WORD: Final = re.compile(r"[A-Z_]+", re.ASCII)


@lru_cache(maxsize=256)
def job_state(text: str) -> JobState:
    """Read a state as Slurm's commands print it, `CANCELLED by 123` and `COMPLETED+` too."""
    match = _FIRST_WORD.match(text.strip().upper())
    word = match[0] if match else ""
    return JobState(word) if word in JobState.__members__ else JobState.UNKNOWN


def is_live(state: JobState) -> bool:
    """Whether Slurm says that a job waits or runs; an unknown state is not live."""
    return state is not JobState.UNKNOWN and not state.is_terminal


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """What one command says of one job. Times are on Slurm's own clock; `source` is the command.

    `array_id` is the id of the job array that it is one of, its own where there is none, 0 where
    the command does not say. `directory` is the working directory, as accounting says it.
    `exit_code` and `signal` are the two halves of Slurm's `code:signal`, None where not yet known.
    `started` is None while the job waits: Slurm's estimate is `planned_start`. `ended` is
    None until it ended. `reason` of a cancelled job is who did it ("by uid 0"), of an unknown state
    what Slurm printed.
    """

    job_id: int
    name: str
    state: JobState
    source: str
    reason: str = ""
    partition: str = ""
    nodes: str = ""
    submitted: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    restarts: int = 0
    planned_start: datetime | None = None
    directory: str = ""
    array_id: int = 0

    @property
    def cancel_id(self) -> int:
        """What scancel knows it by: of one job of an array, the array, which is cancelled whole."""
        return self.array_id or self.job_id

    @property
    def planned_wait(self) -> timedelta | None:
        """How long after its submission Slurm plans to start it, None where that is not known."""
        if self.planned_start is None or self.submitted is None:
            return None
        return max(self.planned_start - self.submitted, timedelta(0))


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingJob:
    """One job that waits in the queue, anybody's. `priority` is 0 where it is held."""

    job_id: int
    partitions: tuple[str, ...]
    priority: int
    reason: str
