"""Plan: from what is asked and what the cluster is to what to submit, and why not the rest.

Pure: no clock, no environment, no I/O but the two loaders, which read `strategies/`.
"""

from rv.planner.catalogue import Catalogue, GpuModel, load_catalogue
from rv.planner.families import Family, load_families
from rv.planner.feasible import require_feasible
from rv.planner.overview import overview
from rv.planner.planning import plan

__all__ = [
    "Catalogue",
    "Family",
    "GpuModel",
    "load_catalogue",
    "load_families",
    "overview",
    "plan",
    "require_feasible",
]
