"""Which nodes can serve a job at all, and which could start one now."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rv.models.request import Request
from rv.models.snapshot import Node, Snapshot

ASLEEP: Final = "powered down"

_RESERVED: Final = "reserved"
_MAINTAINED: Final = "in maintenance"
_SILENT: Final = "in an unknown state"
_LOST: Final = {
    "DOWN": "down",
    "DRAIN": "drained",
    "DRAINED": "drained",
    "DRAINING": "drained",
    "ERROR": "down",
    "FAIL": "failing",
    "FAILING": "failing",
    "MAINT": _MAINTAINED,
    "RESERVED": _RESERVED,
    "NOT_RESPONDING": "not responding",
    "NO_RESPOND": "not responding",
    "POWERED_DOWN": ASLEEP,
    "POWER_DOWN": ASLEEP,
    "POWERING_DOWN": ASLEEP,
    "INVAL": "misconfigured",
    "INVALID_REG": "misconfigured",
    "REBOOT_REQUESTED": "rebooting",
    "REBOOT_ISSUED": "rebooting",
    "FUTURE": "not there yet",
    "UNKNOWN": _SILENT,
    "UNK": _SILENT,
}
_PASSING: Final = frozenset(
    {
        "COMPLETING", "POWERING_UP", "POWER_UP", "BLOCKED", "PERFCTRS",
        "POWERED_DOWN", "POWER_DOWN", "POWERING_DOWN",
    }
)  # fmt: skip
_SETTLED: Final = frozenset({"IDLE", "MIXED", "ALLOCATED"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """Which nodes a request may have: those it avoids are out, and what it asks for is in.

    `failing` are nodes that acceptance found bad, `wanted` the only ones it asks for, None for any.
    `reserved` are the nodes of the reservation it names, None where it names none. `tolerated`
    are reasons of lost nodes that do not count.
    """

    avoided: frozenset[str] = frozenset()
    failing: frozenset[str] = frozenset()
    wanted: frozenset[str] | None = None
    reserved: frozenset[str] | None = None
    tolerated: frozenset[str] = frozenset()

    def lost_because(self, node: Node) -> str:
        """Say why no job can be sent to a node ("drained"); "" where one can."""
        if node.name in self.failing:
            return "failing acceptance"
        if node.name in self.avoided:
            return "excluded"
        if self.wanted is not None and node.name not in self.wanted:
            return "not asked for"
        if self.reserved is not None and node.name not in self.reserved:
            return "outside the reservation"
        words = [_LOST[state] for state in sorted(node.states) if state in _LOST]
        return next((word for word in words if word not in self.tolerated), "")


def offer(request: Request, snapshot: Snapshot, failing: Iterable[str] = ()) -> Offer:
    """Read from a request and a snapshot which nodes may be had; `failing` ones may not."""
    tolerated = set()
    if request.power_up:
        tolerated.add(ASLEEP)
    if _has_just_started(snapshot):
        tolerated.add(_SILENT)
    reserved = None
    if request.reservations:
        tolerated |= {_RESERVED, _MAINTAINED}
        named = (r for r in snapshot.reservations if r.name in request.reservations)
        reserved = frozenset(name for reservation in named for name in reservation.nodes)
    return Offer(
        avoided=frozenset(request.exclude_nodes),
        failing=frozenset(failing),
        wanted=frozenset(request.only_nodes) if request.only_nodes else None,
        reserved=reserved,
        tolerated=frozenset(tolerated),
    )


def _has_just_started(snapshot: Snapshot) -> bool:
    """Whether the controller may still wait for its nodes' first word: none of them is lost yet."""
    booted = snapshot.config.booted_at
    return booted is not None and snapshot.taken_at - booted < snapshot.config.slurmd_timeout


def is_settled(node: Node) -> bool:
    """Whether what the node holds now says what it will hold: no job is just coming or going.

    Nor is the node: nobody knows how long it takes to power up.
    """
    return bool(node.states & _SETTLED) and not node.states & _PASSING


def count_losses(reasons: Iterable[str]) -> str:
    """Count the reasons of lost nodes, as in "2 drained, 1 down"."""
    counts = Counter(reasons)
    return ", ".join(f"{counts[reason]} {reason}" for reason in sorted(counts))
