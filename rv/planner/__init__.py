"""Plan: from what is asked and what the cluster is to what to submit, and why not the rest.

Pure: no clock, no environment, no files. What commands show beside a plan is in
`rv.planner.report`.
"""

from rv.planner.planning import plan, require_feasible, require_strategies

__all__ = ["plan", "require_feasible", "require_strategies"]
