"""The strategy families: which kinds of layout become jobs, and with which defaults."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from rv.models.plan import Mode


class Serves(StrEnum):
    """The kind of layout that a family turns into jobs; CHECKPOINT any kind, in segments."""

    SINGLE_NODE = "single-node"
    MULTI_NODE = "multi-node"
    MIG = "mig"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One family. CPUs and memory are a node's; `memory_mib` caps what MIG asks for.

    `buffer` is how long before a segment's end its command is told to save its work, `min_usable`
    what a segment must leave to the command.

    `cpus` is fixed where it is not 0; otherwise a node asks `cpus_per_gpu` a GPU up to `max_cpus`.
    """

    name: str
    serves: Serves
    template: str
    mode: Mode = Mode.DIRECT
    enabled: bool = True
    cpus: int = 0
    cpus_per_gpu: int = 4
    max_cpus: int = 32
    memory_mib: int | None = None
    min_gpus_per_node: int = 1
    buffer: timedelta = timedelta(seconds=120)
    min_usable: timedelta = timedelta(seconds=60)
