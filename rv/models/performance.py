"""How fast GPUs are: as measured on a cluster, or as published, each value with its source."""

from dataclasses import dataclass
from typing import Final

DEFAULT_REFERENCE: Final = "a100-80"


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
