"""What a profile can say: the schema, as frozen values.

A profile is a YAML file whose keys are the fields below (`schema.py` reads it and complains with
the line). Sizes are MiB or text such as `384G`. Keys named `options` and `slurm_conf` pass any
other setting to Slurm under Slurm's own name.
"""

import hashlib
from dataclasses import dataclass
from typing import NewType

Mebibytes = NewType("Mebibytes", int)
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gres:
    """GPUs of one kind on each node of a group.

    Attributes:
        type: the GRES type; null leaves it untyped, as sites with features do.
        count: how many Slurm schedules (MIG slices are counted, not the GPUs they are cut from).
        product: what nvidia-smi calls the GPU.
        memory: the GPU's memory as nvidia-smi reports it.
        mig: the profile of its slices, such as 1g.10gb.
        slices: how many such slices one GPU is cut into.
        files: real device files, one a GPU; without them the devices are fake.
    """

    type: str | None = None
    count: int
    product: str = "NVIDIA A100-SXM4-80GB"
    memory: Mebibytes = Mebibytes(81920)
    mig: str | None = None
    slices: int = 7
    files: tuple[str, ...] = ()

    @property
    def physical(self) -> int:
        """How many GPUs nvidia-smi lists for them."""
        return -(-self.count // self.slices) if self.mig else self.count


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeGroup:
    """`count` equal nodes named prefix1, prefix2, …

    Attributes:
        cloud: powered down, and never there: Slurm would have to switch them on for a job.
    """

    prefix: str
    count: int = 1
    cpus: int = 32
    memory: Mebibytes = Mebibytes(262144)
    features: tuple[str, ...] = ()
    weight: int = 1
    gres: tuple[Gres, ...] = ()
    cloud: bool = False
    options: Pairs = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The node names."""
        return tuple(f"{self.prefix}{number}" for number in range(1, self.count + 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """A partition over node groups (named by their prefix)."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    max_time: str | None = None
    default_time: str | None = None
    max_nodes: int | None = None
    max_cpus_per_node: int | None = None
    max_mem_per_cpu: Mebibytes | None = None
    max_mem_per_node: Mebibytes | None = None
    def_mem_per_cpu: Mebibytes | None = None
    qos: str | None = None
    allow_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    exclusive: bool = False
    hidden: bool = False
    state: str = "UP"
    priority: int | None = None
    billing: Pairs = ()
    options: Pairs = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Qos:
    """A QOS and its limits; TRES limits are mappings such as {cpu: 1, gres/gpu: 1}."""

    name: str
    max_tres_per_job: Pairs = ()
    max_tres_per_user: Pairs = ()
    grp_tres: Pairs = ()
    max_wall: str | None = None
    max_jobs_per_user: int | None = None
    max_submit_per_user: int | None = None
    priority: int | None = None
    flags: tuple[str, ...] = ()
    options: Pairs = ()

    @property
    def counts_gpus(self) -> bool:
        """Whether a limit names gres/gpu, which Slurm must have seen before it can be set."""
        pairs = (*self.max_tres_per_job, *self.max_tres_per_user, *self.grp_tres, *self.options)
        return any("gres/" in f"{key}={value}" for key, value in pairs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """An account; where it has only a name, the name alone may stand in its place.

    Attributes:
        parent: the account above it, defined before it.
        joined: false where nobody who may submit belongs to it.
        options: limits under sacctmgr's own names; its users inherit those that are not Grp*.
    """

    name: str
    parent: str | None = None
    joined: bool = True
    options: Pairs = ()

    @property
    def counts_gpus(self) -> bool:
        """Whether a limit names gres/gpu, which Slurm must have seen before it can be set."""
        return any("gres/" in value for _, value in self.options)


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """A whole cluster.

    Attributes:
        cluster: its ClusterName.
        accounts: accounts that exist; the first that has members is everybody's default.
        users: local users, besides whoever brings it up, that may submit (root's sandboxes only).
        grants: QOS that everybody may ask for with --qos, besides `normal`.
        accounting: false leaves slurmdbd and MariaDB out.
        min_job_age: seconds that a finished job stays known to the controller.
        cred_expire: seconds that a requeued job is held (Slurm's own default is 120).
        scheduler: entries of SchedulerParameters.
    """

    cluster: str
    description: str = ""
    nodes: tuple[NodeGroup, ...]
    partitions: tuple[Partition, ...]
    qos: tuple[Qos, ...] = ()
    accounts: tuple[Account, ...] = (Account(name="lab"),)
    users: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    accounting: bool = True
    enforce: str = "associations,limits,qos"
    min_job_age: int = 60
    kill_wait: int = 5
    cred_expire: int | None = None
    scheduler: Pairs = (("bf_interval", "3"), ("bf_continue", ""), ("sched_interval", "5"))
    slurm_conf: Pairs = ()

    @property
    def node_names(self) -> tuple[str, ...]:
        """All nodes, in the order of their groups."""
        return tuple(name for group in self.nodes for name in group.names)

    @property
    def running_nodes(self) -> tuple[str, ...]:
        """The nodes that have a slurmd."""
        return tuple(name for group in self.nodes if not group.cloud for name in group.names)

    @property
    def counts_gpus(self) -> bool:
        """Whether any limit names gres/gpu."""
        return any(qos.counts_gpus for qos in self.qos) or any(
            account.counts_gpus for account in self.accounts
        )

    @property
    def digest(self) -> str:
        """A name for exactly this content."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    @property
    def accounting_digest(self) -> str:
        """A name for what of it the accounting database holds."""
        held = (self.cluster, self.qos, self.accounts, self.users, self.grants)
        return hashlib.sha256(repr(held).encode()).hexdigest()[:16]
