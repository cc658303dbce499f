"""What a profile can say: the schema, as frozen values.

A profile is a YAML file whose keys are the fields below (`schema.py` reads it and complains with
the line). Its values come as the text that is written there, so `1:00:00` is no number of seconds.
Sizes are MiB or text such as `384G`. Keys named `options` and `slurm_conf` pass any other setting
to Slurm under Slurm's own name.
"""

import hashlib
import re
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from rv.config.schema import Schema, must_be, problem, refusal

SIZES: Final = {"": 1, "M": 1, "G": 1024, "T": 1024**2}


def _mebibytes(value: Any) -> int:
    if isinstance(value, int):
        return value
    match = re.fullmatch(r" *(\d+) *([MGT]?)(?:i?B)? *", str(value), re.IGNORECASE)
    if match is None:
        raise ValueError(value)
    return int(match[1]) * SIZES[match[2].upper()]


def _line(value: Any) -> Any:
    if isinstance(value, str) and "\n" in value:
        raise ValueError(value)
    return value.strip() if isinstance(value, str) else value


def _pairs(value: Any) -> Any:
    if isinstance(value, tuple):
        return value
    if not isinstance(value, dict):
        raise refusal("a mapping of names to values")
    for key, text in value.items():
        if text is not None and (not isinstance(text, str) or "\n" in text):
            raise problem(f"{key!r} is one value", key=key)
    return tuple((str(key), text or "") for key, text in value.items())


def _many(value: Any) -> Any:
    """Take a single item for a list of one."""
    return value if isinstance(value, list | tuple) else (value,)


Line = Annotated[str, BeforeValidator(_line), must_be("one value")]
Count = Annotated[int, Field(ge=0), must_be("a whole number")]
Switch = Annotated[bool, must_be("true or false")]
Mebibytes = Annotated[int, BeforeValidator(_mebibytes), must_be("a size such as 384G or 8000")]
Pairs = Annotated[tuple[tuple[str, str], ...], BeforeValidator(_pairs)]
Lines = Annotated[tuple[Line, ...], BeforeValidator(_many)]


class ProfileSchema(Schema):
    """A mapping of a profile, whose numbers and switches are read from text."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=False)


class Gres(ProfileSchema):
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

    type: Line | None = None
    count: Count
    product: Line = "NVIDIA A100-SXM4-80GB"
    memory: Mebibytes = 81920
    mig: Line | None = None
    slices: Count = 7
    files: Lines = ()

    @property
    def physical(self) -> int:
        """How many GPUs nvidia-smi lists for them."""
        return -(-self.count // self.slices) if self.mig else self.count


class NodeGroup(ProfileSchema):
    """`count` equal nodes named prefix1, prefix2, …

    Attributes:
        cloud: powered down, and never there: Slurm would have to switch them on for a job.
    """

    prefix: Line
    count: Count = 1
    cpus: Count = 32
    memory: Mebibytes = 262144
    features: Lines = ()
    weight: Count = 1
    gres: Annotated[tuple[Gres, ...], BeforeValidator(_many)] = ()
    cloud: Switch = False
    options: Pairs = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The node names."""
        return tuple(f"{self.prefix}{number}" for number in range(1, self.count + 1))


class Partition(ProfileSchema):
    """A partition over node groups (named by their prefix)."""

    name: Line
    nodes: Lines
    default: Switch = False
    max_time: Line | None = None
    default_time: Line | None = None
    max_nodes: Count | None = None
    max_cpus_per_node: Count | None = None
    max_mem_per_cpu: Mebibytes | None = None
    max_mem_per_node: Mebibytes | None = None
    def_mem_per_cpu: Mebibytes | None = None
    qos: Line | None = None
    allow_accounts: Lines = ()
    allow_qos: Lines = ()
    exclusive: Switch = False
    hidden: Switch = False
    state: Line = "UP"
    priority: Count | None = None
    billing: Pairs = ()
    options: Pairs = ()


class Qos(ProfileSchema):
    """A QOS and its limits; TRES limits are mappings such as {cpu: 1, gres/gpu: 1}."""

    name: Line
    max_tres_per_job: Pairs = ()
    max_tres_per_user: Pairs = ()
    grp_tres: Pairs = ()
    max_wall: Line | None = None
    max_jobs_per_user: Count | None = None
    max_submit_per_user: Count | None = None
    priority: Count | None = None
    flags: Lines = ()
    options: Pairs = ()

    @property
    def counts_gpus(self) -> bool:
        """Whether a limit names gres/gpu, which Slurm must have seen before it can be set."""
        pairs = (*self.max_tres_per_job, *self.max_tres_per_user, *self.grp_tres, *self.options)
        return any("gres/" in f"{key}={value}" for key, value in pairs)


class Account(ProfileSchema):
    """An account; where it has only a name, the name alone may stand in its place.

    Attributes:
        parent: the account above it, defined before it.
        joined: false where nobody who may submit belongs to it.
        options: limits under sacctmgr's own names; its users inherit those that are not Grp*.
    """

    name: Line
    parent: Line | None = None
    joined: Switch = True
    options: Pairs = ()

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data

    @property
    def counts_gpus(self) -> bool:
        """Whether a limit names gres/gpu, which Slurm must have seen before it can be set."""
        return any("gres/" in value for _, value in self.options)


class Profile(ProfileSchema):
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

    cluster: Line
    description: Line = ""
    nodes: Annotated[tuple[NodeGroup, ...], BeforeValidator(_many)]
    partitions: Annotated[tuple[Partition, ...], BeforeValidator(_many)]
    qos: Annotated[tuple[Qos, ...], BeforeValidator(_many)] = ()
    accounts: Annotated[tuple[Account, ...], BeforeValidator(_many)] = Field(
        default_factory=lambda: (Account(name="lab"),)
    )
    users: Lines = ()
    grants: Lines = ()
    accounting: Switch = True
    enforce: Line = "associations,limits,qos"
    min_job_age: Count = 60
    kill_wait: Count = 5
    cred_expire: Count | None = None
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
