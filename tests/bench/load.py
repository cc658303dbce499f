"""The jobs of other people, as values. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rv.sandbox.profile import Profile

CPUS_PER_GPU: Final = 4
OTHER_USER: Final = "nobody"

Shape = Mapping[str, tuple[str, ...]]
"""The nodes of each partition."""


class Role(StrEnum):
    """What a job of the load must have become before anybody types: RUNS, PLANNED (pending, and
    Slurm says on which nodes it will start), WAITS (pending), LATER (it comes after the typing)."""

    RUNS = "runs"
    PLANNED = "planned"
    WAITS = "waits"
    LATER = "later"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadJob:
    """One job: `gpus` a node, a wall limit of `minutes`, and its real length in seconds.

    `after` is when a LATER one comes, in seconds after the typing. `node` "" leaves the choice to
    Slurm.
    """

    partition: str
    gpus: int
    minutes: int
    seconds: float
    nodes: int = 1
    node: str = ""
    role: Role = Role.RUNS
    after: float = 0.0


def shape_of(profile: Profile) -> Shape:
    """The partitions of a profile with the names of their nodes."""
    names = {group.prefix: group.names for group in profile.nodes}
    return {
        partition.name: tuple(name for prefix in partition.nodes for name in names[prefix])
        for partition in profile.partitions
    }


def gpus_per_node(profile: Profile) -> int:
    """GPUs of each node; the benches' profiles have the same number on all."""
    (count,) = {sum(gres.count for gres in group.gres) for group in profile.nodes}
    return count


def sbatch_words(job: LoadJob, number: int) -> list[str]:
    """The sbatch command of a job, as root submits it for another user."""
    place = [f"--nodelist={job.node}"] if job.node else []
    return [
        "sbatch",
        "--parsable",
        f"--uid={OTHER_USER}",
        f"--job-name=load-{number}",
        f"--partition={job.partition}",
        *place,
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={job.gpus * CPUS_PER_GPU}",
        f"--gpus-per-node={job.gpus}",
        f"--mem={job.gpus}G",
        f"--time={job.minutes}",
        "--output=/dev/null",
        "--chdir=/",
        "--no-requeue",
        f"--wrap=exec sleep {job.seconds:.1f}",
    ]
