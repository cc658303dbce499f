"""Where a result is from, and figures as text. Pure."""

from collections.abc import Sequence
from typing import Final

from rv.accept.pairs import KIND
from rv.accept.results import Metric, RunResult, TestResult

UNKNOWN: Final = "an unknown node"
BETWEEN: Final = "between nodes"


def host_of(run: RunResult) -> str:
    """Name the node that a run reported from; that of links, of a sweep over pairs, is none."""
    return run.hostname or run.nodelist or (BETWEEN if run.test_type == KIND else UNKNOWN)


def where(run: RunResult) -> str:
    """Name the nodes that a run was on, the first three of many."""
    hosts = list(dict.fromkeys(host for host in run.hosts if host))
    if not hosts:
        return host_of(run)
    more = f" and {len(hosts) - 3} more" if len(hosts) > 3 else ""
    return ", ".join(hosts[:3]) + more


def place_of(run: RunResult, test: TestResult) -> str:
    """Name the node, rank and device that a test speaks of."""
    rank = f"rank {test.rank}" if test.rank is not None and run.world_size > 1 else ""
    return ", ".join(filter(None, (test.host or host_of(run), rank, test.device)))


def figures_of(metrics: Sequence[Metric]) -> str:
    """Write the values of a test in a line."""
    measured = [metric for metric in metrics if metric.value is not None]
    return ", ".join(f"{m.name} {number(m.value)} {m.unit}".strip() for m in measured)


def number(value: float | None) -> str:
    """Write a figure with four digits or all of its whole ones; "-" for none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
