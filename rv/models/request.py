"""What the user asked for: a command, and the GPUs, time and limits to run it with."""

from datetime import timedelta
from enum import StrEnum
from typing import Final

from rv.dataclass import dataclass
from rv.models.notice import Notice

DEFAULT_WALLTIME: Final = timedelta(hours=2, minutes=59)
"""Just under three hours: short jobs are backfilled soonest."""

DEFAULT_MAX_SUBMISSIONS: Final = 12


class Launcher(StrEnum):
    """Who starts the ranks of a command."""

    PLAIN = "plain"
    TORCHRUN = "torchrun"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"
    MPI = "mpi"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pins:
    """Layout that the command itself fixes, such as `--nproc_per_node=4`; None where it is free."""

    processes_per_node: int | None = None
    nodes: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command as the job's shell will run it.

    `line` is shell text, `typed` what the user wrote; `payload` names a bundled payload that it
    runs.
    """

    line: str
    typed: str = ""
    launcher: Launcher = Launcher.PLAIN
    pins: Pins = Pins()
    payload: str = ""


class NodeLimit(StrEnum):
    """Which layouts the user allows."""

    ANY = "any"
    SINGLE = "single-node"
    MULTI = "multi-node"


class Layouts(StrEnum):
    """How many multi-node layouts to enumerate: the narrowest useful one, or every divisor."""

    AUTO = "auto"
    ALL = "all"


class Fanout(StrEnum):
    """How submissions are sent: in waves, or all at once, each strategy in a job of its own."""

    AUTO = "auto"
    EACH = "each"


class Objective(StrEnum):
    """What strategies are ranked by: the expected start, the expected end, or the cost."""

    START = "start"
    FINISH = "finish"
    COST = "cost"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """How much there is to compute: hours of one GPU of a model, "" for the usual."""

    gpu_hours: float
    reference: str = ""


class ChainSignal(StrEnum):
    """The signal at which a resumable command saves its work and ends."""

    USR1 = "USR1"
    USR2 = "USR2"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """GPUs, time and limits of one launch. Memory and CPUs are per node; None means rv chooses.

    `types` are the words the user typed, not yet resolved against the catalogue.
    `constraint` is an expression of node features in Slurm's form. `preemptible` accepts partitions
    and QOS whose jobs others may preempt, `power_up` nodes that Slurm has to power up first.
    `command` None means a shell in the allocation. `min_walltime` is the least that a shorter job
    in a backfill window must have. `checkpoint`: the command can resume, so that its time may be
    split; `switch`: each segment may have a faster layout. `max_cost` is in the site's unit.
    `only_nodes` are the nodes it may run on, () for any; `no_avoid`: also nodes that acceptance
    found bad. `allow_busy_gpus`: also GPUs that others use. `retry` is how often the watching
    client starts a race again whose node was lost. `outputs` are patterns of the files that the
    command writes and the user wants back. `setup` are shell lines that run before the command.
    `venv` and `conda` name the environment that it runs in: paths on the cluster once they were
    looked for. `container` is the image that it runs in, `container_mounts` are `SRC:DST[:ro]`.
    `notices` are sent by the job that wins. `sizes` are the numbers of GPUs that would do, smallest
    first, () for `gpus` alone, which is else the largest of them. `spare` is the part of the
    walltime that a limit may cut off.
    """

    gpus: int = 1
    types: tuple[str, ...] = ()
    min_vram_mib: int | None = None
    walltime: timedelta = DEFAULT_WALLTIME
    walltime_given: bool = False
    memory_mib: int | None = None
    cpus: int | None = None
    mig: bool = False
    partitions: tuple[str, ...] = ()
    account: str = ""
    qos: str = ""
    exclude_nodes: tuple[str, ...] = ()
    only_nodes: tuple[str, ...] = ()
    no_avoid: bool = False
    constraint: str = ""
    preemptible: bool = False
    power_up: bool = False
    node_limit: NodeLimit = NodeLimit.ANY
    layouts: Layouts = Layouts.AUTO
    strict_gpu: bool = False
    allow_busy_gpus: bool = False
    command: Command | None = None
    name: str = ""
    modules: tuple[str, ...] = ()
    sbatch: tuple[tuple[str, str], ...] = ()
    fanout: Fanout = Fanout.AUTO
    max_submissions: int = DEFAULT_MAX_SUBMISSIONS
    widen_after: timedelta = timedelta(seconds=5)
    wait_timeout: timedelta | None = None
    min_walltime: timedelta | None = None
    checkpoint: bool = False
    checkpoint_buffer: timedelta | None = None
    checkpoint_signal: ChainSignal = ChainSignal.USR1
    switch: bool = False
    max_cost: float | None = None
    retry: int = 0
    outputs: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    venv: str = ""
    conda: str = ""
    container: str = ""
    container_mounts: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    sizes: tuple[int, ...] = ()
    work: Work | None = None
    objective: Objective = Objective.START
    spare: timedelta = timedelta(0)

    @property
    def is_timed(self) -> bool:
        """Whether each strategy has a time of its own: what it takes for the work."""
        return bool(self.sizes or self.work) or self.objective is not Objective.START

    @property
    def reservations(self) -> tuple[str, ...]:
        """The reservations of which the job may run in any, () where it needs none."""
        return tuple(filter(None, dict(self.sbatch).get("reservation", "").split(",")))

    @property
    def accepts_preemption(self) -> bool:
        """Whether others may preempt the job: the user allows it, or the command can resume."""
        return self.preemptible or self.checkpoint
