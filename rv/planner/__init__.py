"""Plan: from what is asked and what the cluster is to what to submit, and why not the rest.

Pure: no clock, no environment, no I/O but the two loaders, which read `strategies/`. What commands
show beside a plan is in `rv.planner.report`.
"""

from rv.planner.catalogue import load_catalogue
from rv.planner.families import load_families
from rv.planner.planning import plan, require_feasible, require_strategies

__all__ = ["load_catalogue", "load_families", "plan", "require_feasible", "require_strategies"]
