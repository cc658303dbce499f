"""What a GPU says of itself while it works: load, heat, power, clocks, throttling, memory errors.

Every figure is optional: what a driver, a MIG slice or a container does not tell is None, never an
error. GPUs are named by UUID, because indices mean different things to torch and to the driver.
"""

from .gates import Finding, findings, underloaded
from .readings import Counters, Reading, bare
from .sampler import Load, Sampler
from .source import Source, open_source

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
