"""Plan: from what is asked and what the cluster is to what to submit, and why not the rest.

Pure: no clock, no environment, no I/O but the two loaders, which read `strategies/`.
"""

from rv.planner.catalogue import Catalogue, GpuModel, load_catalogue
from rv.planner.families import Family, load_families
from rv.planner.planning import plan, require_feasible, require_strategies
from rv.planner.report import Planner, changes, cheapest, overview, queue_place, without_jobs

__all__ = [
    "Catalogue",
    "Family",
    "GpuModel",
    "Planner",
    "changes",
    "cheapest",
    "load_catalogue",
    "load_families",
    "overview",
    "plan",
    "queue_place",
    "require_feasible",
    "require_strategies",
    "without_jobs",
]
