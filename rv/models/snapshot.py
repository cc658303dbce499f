"""What a cluster is at one moment, and its JSON form.

Every time is on Slurm's own clock, without a zone. In JSON times are ISO 8601, durations are
seconds, memory is MiB; a file of a newer rv may hold more, what is missing has its default.
"""

import json
from dataclasses import field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.job import JobState
from rv.models.plain import build, plain

FORMAT: Final = "rv.snapshot/1"
NO_LIMIT: Final = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuGroup:
    """The GPUs of one GRES type on one node. `type` is "" where the site left GRES untyped."""

    type: str
    total: int
    used: int

    @property
    def free(self) -> int:
        """How many are not allocated; never negative, whatever the controller printed."""
        return max(0, self.total - self.used)


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One node. `states` are Slurm's, such as {"IDLE", "DRAIN"}; memory in MiB."""

    name: str
    states: frozenset[str]
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    gpus: tuple[GpuGroup, ...] = ()
    features: frozenset[str] = frozenset()
    partitions: tuple[str, ...] = ()
    weight: int = 1
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """One partition and its limits; None where it has none. An empty allow list means everybody."""

    name: str
    nodes: tuple[str, ...]
    state: str = "UP"
    is_default: bool = False
    hidden: bool = False
    root_only: bool = False
    needs_reservation: bool = False
    exclusive: bool = False
    max_time: timedelta | None = NO_LIMIT
    default_time: timedelta | None = NO_LIMIT
    max_nodes: int | None = NO_LIMIT
    min_nodes: int = 0
    max_cpus_per_node: int | None = NO_LIMIT
    max_memory_per_cpu_mib: int | None = NO_LIMIT
    max_memory_per_node_mib: int | None = NO_LIMIT
    allow_accounts: frozenset[str] = frozenset()
    deny_accounts: frozenset[str] = frozenset()
    allow_qos: frozenset[str] = frozenset()
    deny_qos: frozenset[str] = frozenset()
    allow_groups: frozenset[str] = frozenset()
    qos: str = ""
    priority_tier: int = 1
    priority_job_factor: int = 1
    preempt_mode: str = "OFF"
    billing_weights: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of a QOS, an association or an account, by TRES name (`cpu`, `mem` in MiB, …).

    `least_per_job` is what a job must ask for. `group`, `group_jobs` and `group_submit` count all
    who share it; those per account count the jobs of one account under a QOS.
    """

    per_job: tuple[tuple[str, int], ...] = ()
    least_per_job: tuple[tuple[str, int], ...] = ()
    per_node: tuple[tuple[str, int], ...] = ()
    per_user: tuple[tuple[str, int], ...] = ()
    per_account: tuple[tuple[str, int], ...] = ()
    group: tuple[tuple[str, int], ...] = ()
    max_wall: timedelta | None = NO_LIMIT
    max_jobs_per_user: int | None = NO_LIMIT
    max_submit_per_user: int | None = NO_LIMIT
    max_jobs_per_account: int | None = NO_LIMIT
    max_submit_per_account: int | None = NO_LIMIT
    group_jobs: int | None = NO_LIMIT
    group_submit: int | None = NO_LIMIT


@dataclass(frozen=True, kw_only=True, slots=True)
class Qos:
    """One quality of service, what it limits, and whose jobs it may preempt.

    `preempt_mode` is what happens to its own jobs then, "" for what the cluster does.
    """

    name: str
    limits: Limits = Limits()
    flags: frozenset[str] = frozenset()
    preempts: frozenset[str] = frozenset()
    preempt_mode: str = ""
    usage_factor: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """One account, the one above it ("" for the root), and what its users share."""

    name: str
    parent: str = ""
    limits: Limits = Limits()


@dataclass(frozen=True, kw_only=True, slots=True)
class Association:
    """One (account, partition) that the user may charge, with the QOS it may use."""

    account: str
    partition: str = ""
    qos: tuple[str, ...] = ()
    default_qos: str = ""
    is_default: bool = False
    limits: Limits = Limits()


class QueuedJob(NamedTuple):
    """One job in the queue, anybody's.

    CPUs, memory and GPUs are what it holds or asks for, on all its nodes. `start` and `end` are
    those of a running job, or Slurm's plan for a pending one with `planned_nodes`. A named tuple,
    because a large cluster has 50,000 of them: it is made in a fifth of a data class's time.
    """

    job_id: str
    user: str
    partition: str
    state: JobState
    account: str = ""
    qos: str = ""
    nodes: tuple[str, ...] = ()
    planned_nodes: tuple[str, ...] = ()
    start: datetime | None = None
    end: datetime | None = None
    cpus: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_type: str = ""
    name: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """A reservation of nodes between two times, and who may use it."""

    name: str
    nodes: tuple[str, ...]
    start: datetime
    end: datetime
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterConfig:
    """The few settings of slurm.conf that rv's promises and plans depend on.

    `priority_flags` says how billing weights add up (`MAX_TRES`), `private_data` what the user may
    not see of others (`jobs`), `enforces` what AccountingStorageEnforce names; all as Slurm
    writes them. `preempt_type` is "none", "partition_prio", "qos", or "" where unknown;
    `booted_at` is when the controller started. Indices of job arrays are below `max_array_size`.
    """

    name: str = ""
    version: str = ""
    min_job_age: timedelta = timedelta(seconds=300)
    message_timeout: timedelta = timedelta(seconds=10)
    slurmd_timeout: timedelta = timedelta(seconds=300)
    accounting: bool = True
    priority_flags: frozenset[str] = frozenset()
    enforces: frozenset[str] | None = None
    private_data: frozenset[str] = frozenset()
    preempt_type: str = ""
    preempt_mode: str = ""
    booted_at: datetime | None = None
    max_memory_per_cpu_mib: int | None = NO_LIMIT
    max_memory_per_node_mib: int | None = NO_LIMIT
    max_array_size: int = 1001


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A cluster at `taken_at`, as `user` may see it. `notes` says what could not be read, and why.

    `groups` are the user's Unix groups; `associations` is None without a database to ask
    (no slurmdbd), which is not the same as a user without any.
    """

    taken_at: datetime
    user: str
    groups: frozenset[str] = frozenset()
    config: ClusterConfig = ClusterConfig()
    partitions: tuple[Partition, ...] = ()
    nodes: tuple[Node, ...] = ()
    jobs: tuple[QueuedJob, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    qos: tuple[Qos, ...] = ()
    associations: tuple[Association, ...] | None = None
    accounts: tuple[Account, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def hides_jobs(self) -> bool:
        """Whether other users' jobs are kept from this user (PrivateData)."""
        return "jobs" in self.config.private_data and self.user != "root"


def write_snapshot(snapshot: Snapshot) -> str:
    """Write a snapshot as one JSON object; equal snapshots give equal text."""
    fields = {"format": FORMAT, **plain(snapshot)}
    return json.dumps(fields, indent=1, ensure_ascii=True) + "\n"


def read_snapshot(text: str, name: str) -> Snapshot:
    """Read a snapshot back; `name` is its file's. Raises `RvError(CONFIG)` where it is not one."""
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise ValueError(f"it does not say {FORMAT}")
        return build(Snapshot, fields)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise RvError(
            ErrorKind.CONFIG,
            f"{name} is no snapshot: {error}",
            hint="rv snapshot > cluster.json writes one",
        ) from error
