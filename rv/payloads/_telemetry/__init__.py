"""What GPUs report while they work, sampled and judged: heat, throttling, memory errors."""

from contract.nvidia import Counters, Reading, Source, bare, open_source

from .gates import Finding, findings, underloaded
from .sampler import Load, Sampler

__all__ = [
    "Counters",
    "Finding",
    "Load",
    "Reading",
    "Sampler",
    "Source",
    "bare",
    "findings",
    "open_source",
    "underloaded",
]
