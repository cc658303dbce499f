"""Strategies, estimates and the plan that a dry run prints and a launch submits."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from enum import StrEnum
from math import ceil
from typing import Final

from rv.dataclass import dataclass
from rv.models.performance import Source
from rv.models.request import Objective, Work

SIGNAL_EARLY: Final = timedelta(seconds=60)
"""Limits are whole minutes, and Slurm sends a job's signal up to a minute early."""


def usable(walltime: timedelta, buffer: timedelta) -> timedelta:
    """Return how much of a segment a command can use before the signal to save its work."""
    return walltime - buffer - SIGNAL_EARLY


def segments(total: timedelta, walltime: timedelta, buffer: timedelta) -> int:
    """Count the jobs that the whole time takes. One that fits a single job needs no second."""
    if walltime >= total:
        return 1
    return max(1, ceil(total / max(usable(walltime, buffer), timedelta(seconds=1))))


class Mode(StrEnum):
    """How a strategy spends its time.

    BACKFILL: its whole walltime fits before what Slurm has planned next on its nodes. DIRECT: it
    asks for the whole time and waits for it, or nothing is planned behind it. CHECKPOINT: the whole
    time does not fit, so it is spent in segments, by a command that can resume.
    """

    DIRECT = "direct"
    BACKFILL = "backfill"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """When a strategy would start; `start_in` is None exactly where the source is unknown.

    `window` is how long the backfill window lasts, None where nothing ends it.
    """

    source: Source
    start_in: timedelta | None = None
    window: timedelta | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """A time that is not certain: in half of the cases no longer than `p50`, in 90 % than `p90`.

    `source` says what the two rest on.
    """

    p50: timedelta
    p90: timedelta
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTime:
    """How long a command takes with a strategy's GPUs: quantiles as in a `Spread`.

    `modelled` is what the rates say, before it is corrected by what such sayings came to. `rate` is
    what the GPUs do together, in GPUs of the reference model; `rated_by` says how the rate of one
    is known, `scaled_by` how the loss to communication, `corrected_by` what past runs changed.
    """

    p50: timedelta
    p90: timedelta
    modelled: timedelta
    rate: float
    rated_by: str
    scaled_by: str
    corrected_by: str = ""


UNKNOWN_START = Estimate(source=Source.UNKNOWN)
STARTS_NOW = Estimate(source=Source.IDLE, start_in=timedelta(0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategy:
    """One concrete way to serve a request. Memory and CPUs are per node; a node has one task.

    `gpu` is the canonical model ("a100-80"), `gres` what Slurm is asked for per node
    ("gpu:a100:4", "" without GPUs). `name_pattern` is an extended regular expression that the
    node's nvidia-smi name must match, "" where the catalogue has none. `vram_mib` is the memory
    that each GPU must have to pass the node check, and `allow_busy_gpus` lets others be on it.
    `node_names` are the nodes that could serve it, best first. `walltime` is what one job asks for.
    Of a resumable command, `total` is the whole time, `buffer` how long before its job's end it
    gets the signal to save its work; both are None or 0 for others. `shortened`: less than the time
    asked for, as `--min-time` allows. `cost` is that of the whole time in the plan's unit,
    `priced_by` the source of the price. `preemptible`: jobs of others may end or requeue it.
    `covered_by` is the id of a strategy that makes it needless. `start` is when it is likely to
    start, None where nothing tells. `run` is how long the command takes there, `finish` when it is
    done, and `left_out` why it is not raced though it could be: known where the request says how
    much work there is.
    """

    id: str
    family: str
    template: str
    mode: Mode
    gpu: str
    gres: str
    gpus: int
    nodes: int
    gpus_per_node: int
    partition: str
    walltime: timedelta
    memory_mib: int
    cpus_per_task: int
    mig_profile: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    exclude_nodes: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()
    name_pattern: str = ""
    vram_mib: int = 0
    strict_gpu: bool = False
    allow_busy_gpus: bool = False
    extra: tuple[tuple[str, str], ...] = ()
    preemptible: bool = False
    estimate: Estimate = UNKNOWN_START
    cost: float | None = None
    priced_by: str = ""
    covered_by: str = ""
    total: timedelta | None = None
    buffer: timedelta = timedelta(0)
    shortened: bool = False
    start: Spread | None = None
    run: RunTime | None = None
    finish: Spread | None = None
    left_out: str = ""
    segment_starts: tuple[timedelta, ...] = ()

    @property
    def segments(self) -> int:
        """How many jobs the whole time takes, one after the other."""
        return segments(self.total, self.walltime, self.buffer) if self.total else 1

    @property
    def cost_per_gpu_hour(self) -> float | None:
        """The cost of one of its GPUs for an hour, None where it is not priced or has no GPUs."""
        hours = (self.total or self.walltime).total_seconds() / 3600
        if self.cost is None or not self.gpus:
            return None
        return round(self.cost / (self.gpus * hours), 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Exclusion:
    """Something that cannot serve the request, and the sentence that says why.

    `by_limit`: the reason is a limit of the site (QOS, account, partition), not its machines.
    `is_aside`: it is about one avoided node, or about nodes that the request does not name, and so
    does not say by itself why nothing can serve the request.
    """

    what: str
    reason: str
    by_limit: bool = False
    is_aside: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
    """How one native job serves several strategies.

    `form` is what the job asks for, written as a strategy. By `homes` the job finds which of them
    it became: for each in turn, the nodes of its partition that are its own, () where all are.
    """

    form: Strategy
    homes: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """One Slurm job to submit: its number in the race, from 1, and the strategies it carries.

    `instead_of` numbers the merged submission that this is a part of, 0 where it is none. `slots`
    is how many tasks of a sweep each of its jobs runs at a time.
    """

    number: int
    strategies: tuple[Strategy, ...]
    merged: Merged | None = None
    instead_of: int = 0
    slots: int = 1

    @property
    def strategy(self) -> Strategy:
        """What the job asks for: its one strategy, or the native form of several."""
        return self.merged.form if self.merged else self.strategies[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Ranked strategies, excluded ones with reasons, and the jobs they compile to, in waves.

    `waves` holds the numbers of the submissions sent together, first wave first.
    `notes` are sentences for the user, such as a layout pinned by the command. `cost_unit` is what
    the site calls the unit of costs, "" where it has no name for it. `spares` are the parts of
    merged submissions, sent only where Slurm refuses those. `job_notes` are about the jobs.
    `possible_gpus` is how many GPUs the request could have where it can have none as it stands.
    `card_sizes` is the memory, in MiB, of the GPU models that the cluster has. `objective` is what
    the strategies are ranked by, `work` what there is to compute where that is known. `room` has,
    by submission, what limits its number of jobs and how many more are allowed there. `moves` has,
    by submission, those whose layout the next segment of a chain may have instead, fastest first.
    """

    strategies: tuple[Strategy, ...]
    excluded: tuple[Exclusion, ...]
    submissions: tuple[Submission, ...]
    waves: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()
    job_notes: tuple[str, ...] = ()
    cost_unit: str = ""
    spares: tuple[Submission, ...] = ()
    possible_gpus: int = 0
    card_sizes: tuple[int, ...] = ()
    objective: Objective = Objective.START
    work: Work | None = None
    room: Mapping[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    moves: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeShare:
    """One node's GPUs of one GRES type: in all, free, and those that no job can have now."""

    node: str
    gres_type: str
    total: int
    free: int
    lost: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolView:
    """The GPUs of one model in one partition.

    `free` counts GPUs that a job could be given now, `largest` the most of them on one node;
    `lost` GPUs are on nodes that take no jobs. `waiting` jobs are everybody's, in the partition;
    `queued` of them ask for these GPUs or for any, `queued_gpus` in all.
    `limits` are the user's ("4 a user (3 in use)"), `still_allowed` is how many GPUs they leave and
    `most_a_job` how many each job may have, None where nothing is set; `closed` says why the user
    cannot use it. `shares` are its nodes'.
    """

    gpu: str
    partition: str
    free: int
    total: int
    largest: int
    lost: int
    waiting: int
    max_time: timedelta | None
    queued: int = 0
    queued_gpus: int = 0
    limits: tuple[str, ...] = ()
    still_allowed: int | None = None
    most_a_job: int | None = None
    closed: str = ""
    shares: tuple[NodeShare, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelView:
    """The GPUs of one model in all its partitions: a node that is in several counts once."""

    gpu: str
    free: int
    total: int
    lost: int
    pools: tuple[PoolView, ...]


def by_model(pools: Sequence[PoolView]) -> tuple[ModelView, ...]:
    """Put the pools of each model together, in the order in which the models come first."""
    views = []
    for gpu in dict.fromkeys(pool.gpu for pool in pools):
        own = tuple(pool for pool in pools if pool.gpu == gpu)
        shares = {(share.node, share.gres_type): share for pool in own for share in pool.shares}
        views.append(
            ModelView(
                gpu=gpu,
                free=sum(share.free for share in shares.values()),
                total=sum(share.total for share in shares.values()),
                lost=sum(share.lost for share in shares.values()),
                pools=own,
            )
        )
    return tuple(views)
