"""What estimates rest on: how fast GPUs are, each value with its source, and past races."""

from enum import StrEnum
from math import isfinite
from typing import Final

from rv.dataclass import dataclass

DEFAULT_REFERENCE: Final = "a100-80"

LONGEST_S: Final = 3650 * 86400.0
"""Ten years, in seconds: what is to take longer was read wrongly, or will not be awaited."""


class Source(StrEnum):
    """How rv knows when a strategy would start.

    IDLE: the resources are free and nobody waits for them. BACKFILL_WINDOW: they are free, others
    wait, and it ends before those are planned to start. PLANNED: from the ends of running jobs and
    the planned starts of pending ones.
    """

    IDLE = "idle"
    BACKFILL_WINDOW = "hole"
    PLANNED = "planned"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """What one GPU does in a second, by some measure: only values of one `kind` are comparable.

    `gpu` is the product's name, or a model's.
    """

    gpu: str
    kind: str
    value: float
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AllReduce:
    """The bus bandwidth of an all-reduce in GB/s (nccl-tests' busbw), on so many GPUs and nodes."""

    gpu: str
    gpus: int
    nodes: int
    value: float
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Performance:
    """What is known of GPUs.

    `rates` are in the order of preference of their kinds. `nvlinked` names the models of which all
    GPUs of a node are linked by NVLink. `reference` is the model in whose hours work is counted,
    unless a request names another, and `reference_origin` who says so.
    """

    rates: tuple[Rate, ...] = ()
    all_reduce: tuple[AllReduce, ...] = ()
    nvlinked: tuple[str, ...] = ()
    reference: str = DEFAULT_REFERENCE
    reference_origin: str = "rv's default"


@dataclass(frozen=True, kw_only=True, slots=True)
class PastRace:
    """One race that has started: its winner, with what the plan expected. Times are in seconds.

    `submitted_at` is since the epoch. `predicted_s` is None where the start was not known;
    `waited_s` is from the submission to the start of the command. `predicted_run_s` is how long the
    command was to take, None where nobody said how much work it is; `run_s` how long it took, None
    unless it ended well. `work` is in GPU-hours of `reference`, 0 where it is not known.
    """

    race_id: str
    submitted_at: float
    source: Source
    waited_s: float
    gpus: int
    predicted_s: float | None = None
    name: str = ""
    gpu: str = ""
    nodes: int = 1
    partition: str = ""
    predicted_run_s: float | None = None
    run_s: float | None = None
    work: float = 0.0
    reference: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether it can have happened: records lie in a file, and clocks of nodes may be wrong."""
        times = (self.waited_s, self.predicted_s, self.predicted_run_s, self.run_s)
        return (
            all(time is None or 0 <= time <= LONGEST_S for time in times)
            and self.gpus >= 0
            and self.nodes > 0
            and self.work >= 0
            and isfinite(self.work)
        )
