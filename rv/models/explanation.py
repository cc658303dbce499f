"""Why a race still waits, and what would start now instead."""

from datetime import timedelta

from rv.dataclass import dataclass
from rv.models.plan import Strategy
from rv.models.race import JobStatus, RaceStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePlace:
    """A job's place, from 1, among those of a partition that wait for their turn.

    Jobs of its own race do not count; `behind_own` says that one is ahead of it.
    """

    partition: str
    place: int
    waiting: int
    behind_own: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainedJob:
    """One submission; `planned_in` is Slurm's own plan for its start, from now."""

    job: JobStatus
    partition: str
    place: QueuePlace | None = None
    planned_in: timedelta | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What to ask for instead (`--time 50m`), and the strategy that would then start now."""

    options: str
    strategy: Strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Why a race waits, and what could be changed.

    `has_room` is a strategy of the request as it stands for which the cluster seems to have room.
    """

    status: RaceStatus
    jobs: tuple[ExplainedJob, ...] = ()
    has_room: Strategy | None = None
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
