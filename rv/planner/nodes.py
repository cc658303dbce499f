"""Which nodes can serve a job at all, and which could start one now."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rv.models.snapshot import Node

_LOST: Final = {
    "DOWN": "down",
    "DRAIN": "drained",
    "DRAINED": "drained",
    "DRAINING": "drained",
    "ERROR": "down",
    "FAIL": "failing",
    "FAILING": "failing",
    "MAINT": "in maintenance",
    "RESERVED": "reserved",
    "NOT_RESPONDING": "not responding",
    "NO_RESPOND": "not responding",
    "POWERED_DOWN": "powered down",
    "POWER_DOWN": "powered down",
    "POWERING_DOWN": "powered down",
    "INVAL": "misconfigured",
    "INVALID_REG": "misconfigured",
    "REBOOT_REQUESTED": "rebooting",
    "REBOOT_ISSUED": "rebooting",
    "FUTURE": "not there yet",
    "UNKNOWN": "in an unknown state",
    "UNK": "in an unknown state",
}
_PASSING: Final = frozenset({"COMPLETING", "POWERING_UP", "POWER_UP", "BLOCKED", "PERFCTRS"})
_SETTLED: Final = frozenset({"IDLE", "MIXED", "ALLOCATED"})


def lost_because(node: Node, excluded: frozenset[str]) -> str:
    """Say why no job can be sent to a node ("drained"); "" where one can."""
    if node.name in excluded:
        return "excluded"
    words = [_LOST[state] for state in sorted(node.states) if state in _LOST]
    return words[0] if words else ""


def is_settled(node: Node) -> bool:
    """Whether what the node holds now says what it will hold: no job is just coming or going."""
    return bool(node.states & _SETTLED) and not node.states & _PASSING


def count_losses(reasons: Iterable[str]) -> str:
    """Count the reasons of lost nodes, as in "2 drained, 1 down"."""
    counts = Counter(reasons)
    return ", ".join(f"{counts[reason]} {reason}" for reason in sorted(counts))
