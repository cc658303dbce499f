"""Plan: from what is asked and what the cluster is to what to submit, and why not the rest.

Pure: no clock, no environment, no I/O but the two loaders, which read `strategies/`.
"""

from rv.planner.catalogue import Catalogue, GpuModel, load_catalogue
from rv.planner.changes import Planner, changes, without_jobs
from rv.planner.compare import cheapest
from rv.planner.families import Family, load_families
from rv.planner.feasible import require_feasible, require_strategies
from rv.planner.overview import overview
from rv.planner.planning import plan
from rv.planner.standing import standing

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
    "require_feasible",
    "require_strategies",
    "standing",
    "without_jobs",
]
