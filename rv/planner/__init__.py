"""Plan: from what is asked and what the cluster is to what to submit, and why not the rest.

Pure: no clock, no environment, no files. What commands show beside a plan is in
`rv.planner.report`.
"""

from rv.planner.planning import plan, require_feasible, require_strategies
from rv.planner.room import require_room

__all__ = ["plan", "require_feasible", "require_room", "require_strategies"]
