"""Which nodes are eligible for a request: by state, name, reservation, and node features.

Constraints have Slurm's forms: `a&b`, `a|b`, `(a|b)&c`, read from the left; `[a|b]`, all nodes from
one of them; `a*2` and `[a*2&b*1]`, at least so many nodes with each. Tried on 22.05: a count in
brackets says nothing of the job's other nodes, and brackets do not go with anything beside them.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.plan import Exclusion
from rv.models.request import Request
from rv.models.site import Site
from rv.models.snapshot import Node, Snapshot

ASLEEP: Final = "powered down"

_RESERVED: Final = "reserved"
_MAINTENANCE: Final = "in maintenance"
_UNKNOWN: Final = "in an unknown state"
_SOON_OVER: Final = timedelta(days=7)
"""A job waits for a reservation that ends within this time; a longer one is a group's own nodes."""

_UNUSABLE: Final = {
    "DOWN": "down", "ERROR": "down",
    "DRAIN": "drained", "DRAINED": "drained", "DRAINING": "drained",
    "FAIL": "failing", "FAILING": "failing",
    "MAINT": _MAINTENANCE, "RESERVED": _RESERVED,
    "NOT_RESPONDING": "not responding", "NO_RESPOND": "not responding",
    "POWERED_DOWN": ASLEEP, "POWER_DOWN": ASLEEP, "POWERING_DOWN": ASLEEP,
    "INVAL": "misconfigured", "INVALID_REG": "misconfigured",
    "REBOOT_REQUESTED": "rebooting", "REBOOT_ISSUED": "rebooting",
    "FUTURE": "not there yet",
    "UNKNOWN": _UNKNOWN, "UNK": _UNKNOWN,
}  # fmt: skip
"""Slurm's states of nodes that take no jobs, with what reasons call them."""

_TRANSIENT: Final = frozenset(
    {
        "COMPLETING", "POWERING_UP", "POWER_UP", "BLOCKED", "PERFCTRS",
        "POWERED_DOWN", "POWER_DOWN", "POWERING_DOWN",
    }
)  # fmt: skip
_SETTLED: Final = frozenset({"IDLE", "MIXED", "ALLOCATED"})

_NAME: Final = r"[A-Za-z0-9_.:=/-]+"
_CHAIN: Final = rf"{_NAME}(?:[&|]{_NAME})*"
_TERM: Final = rf"(?:{_NAME}|\({_CHAIN}\))"
_EXPRESSION: Final = re.compile(rf"{_TERM}(?:[&|]{_TERM})*", re.ASCII)
_COUNTED: Final = re.compile(rf"({_TERM})\*(\d{{1,6}})", re.ASCII)
_ONE_OF: Final = re.compile(rf"\[{_TERM}(?:[&|]{_TERM})*\]", re.ASCII)
_COUNTS: Final = re.compile(rf"\[{_TERM}\*\d{{1,6}}(?:&{_TERM}\*\d{{1,6}})*\]", re.ASCII)
_PARTS: Final = re.compile(r"\([^()]*\)|[&|]|[^&|()]+")

Features = frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFilter:
    """Which nodes a request may have.

    `failing` are nodes that acceptance found bad, `excluded` those the user excludes, `only` the
    only ones asked for, and `reserved` those of the reservation it names; None for any. `returning`
    are nodes that a reservation gives back soon: a job can wait for them. `tolerated` are reasons
    of unusable nodes that do not count.
    """

    excluded: frozenset[str] = frozenset()
    failing: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    reserved: frozenset[str] | None = None
    returning: frozenset[str] = frozenset()
    tolerated: frozenset[str] = frozenset()

    def why_unusable(self, node: Node) -> str:
        """Say why no job can be sent to a node ("drained"); "" where one can."""
        if node.name in self.failing:
            return "failing acceptance"
        if node.name in self.excluded:
            return "excluded"
        if self.only is not None and node.name not in self.only:
            return "not asked for"
        if self.reserved is not None and node.name not in self.reserved:
            return "outside the reservation"
        return self._state_reason(node)

    def _state_reason(self, node: Node) -> str:
        tolerated = self.tolerated
        if node.name in self.returning:
            tolerated |= {_RESERVED, _MAINTENANCE}
        for state in sorted(node.states):
            reason = _UNUSABLE.get(state, "")
            if reason and reason not in tolerated:
                return reason
        return ""


def node_filter(request: Request, snapshot: Snapshot, failing: Iterable[str] = ()) -> NodeFilter:
    """Read from a request and a snapshot which nodes may be had; `failing` ones may not."""
    tolerated = set()
    if request.power_up:
        tolerated.add(ASLEEP)
    if _has_just_started(snapshot):
        tolerated.add(_UNKNOWN)
    reserved = None
    if request.reservations:
        tolerated |= {_RESERVED, _MAINTENANCE}
        usable = (r for r in snapshot.reservations if r.name in request.reservations)
        reserved = frozenset(name for reservation in usable for name in reservation.nodes)
    return NodeFilter(
        excluded=frozenset(request.exclude_nodes),
        failing=frozenset(failing),
        only=frozenset(request.only_nodes) if request.only_nodes else None,
        reserved=reserved,
        tolerated=frozenset(tolerated),
    )


def returning_nodes(snapshot: Snapshot) -> frozenset[str]:
    """Return the nodes in reservations of now that end soon; the schedule says when."""
    now = snapshot.taken_at
    held, kept = set[str](), set[str]()
    for reservation in snapshot.reservations:
        if reservation.start <= now < reservation.end:
            is_soon_over = reservation.end - now <= _SOON_OVER
            (held if is_soon_over else kept).update(reservation.nodes)
    return frozenset(held - kept)


def _has_just_started(snapshot: Snapshot) -> bool:
    """Whether the controller may still wait for its nodes to register: none of them is lost yet."""
    booted = snapshot.config.booted_at
    return booted is not None and snapshot.taken_at - booted < snapshot.config.slurmd_timeout


def failing_nodes(request: Request, snapshot: Snapshot, site: Site) -> list[Exclusion]:
    """Return the nodes to avoid because they failed, each with the reason.

    A node that the user excludes, or asks for by name, is the user's decision.
    """
    if request.no_avoid:
        return []
    decided = {*request.exclude_nodes, *request.only_nodes}
    present = {node.name for node in snapshot.nodes} - decided
    names = sorted(present & site.avoided.keys())
    return [Exclusion(what=name, reason=site.avoided[name], is_aside=True) for name in names]


def is_settled(node: Node) -> bool:
    """Whether the node's use will last: no job just starts or ends there.

    Nor does the node itself power up or down, which takes a time that Slurm does not say.
    """
    return _are_settled(node.states)


@lru_cache(maxsize=256)
def _are_settled(states: frozenset[str]) -> bool:
    return bool(states & _SETTLED) and not states & _TRANSIENT


def count_reasons(reasons: Iterable[str]) -> str:
    """Count the reasons of unusable nodes, as in "2 drained, 1 down"."""
    counts = Counter(reasons)
    return ", ".join(f"{counts[reason]} {reason}" for reason in sorted(counts))


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraint:
    """One way to meet a constraint: Slurm's spelling, and how many nodes must have what.

    Without `counts` every node must meet the text. `exact`: the counts are all of the job's nodes.
    """

    text: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    exact: bool = False

    def allows(self, features: Features) -> bool:
        """Whether a node may be among the job's."""
        return not self.text or bool(self.counts) or meets(features, self.text)

    def shortage(self, nodes: Iterable[Features], layout_nodes: int) -> str:
        """Say which count the nodes, or the layout, cannot meet; "" where all can be met."""
        every = list(nodes)
        asked = sum(count for _, count in self.counts)
        if asked > layout_nodes or (self.exact and asked < layout_nodes):
            return f"the constraint counts {asked} nodes, the layout has {layout_nodes}"
        for expression, count in self.counts:
            present = sum(meets(features, expression) for features in every)
            if present < count:
                return f"{count} nodes with {expression} asked, there are {present}"
        return ""

    def combined_with(self, expression: str) -> "Constraint | None":
        """Return the constraint for nodes that meet an expression too; None for no such form."""
        if not expression:
            return self
        if not self.counts:
            both = _joined(self.text, expression) if self.text else expression
            return replace(self, text=both)
        counts = [(_joined_plainly(counted, expression), count) for counted, count in self.counts]
        if not all(counted for counted, _ in counts):
            return None
        text = "&".join(f"({counted})*{count}" for counted, count in counts)
        return Constraint(text=f"[{text}]", counts=tuple(counts), exact=True)


def parse_constraint(text: str) -> tuple[Constraint, ...]:
    """Return the ways to meet a constraint; one that allows all for "".

    Raises `RvError(USAGE)` for what is no expression.
    """
    if not text or _EXPRESSION.fullmatch(text):
        return (Constraint(text=text),)
    if _COUNTS.fullmatch(text) or _COUNTED.fullmatch(text):
        counts = tuple((part, int(count)) for part, count in _COUNTED.findall(text))
        return (Constraint(text=text, counts=counts),)
    if _ONE_OF.fullmatch(text):
        return tuple(Constraint(text=part) for part in _alternatives(text[1:-1]))
    raise RvError(
        ErrorKind.USAGE,
        f"{text!r} is no constraint",
        hint="write --constraint a, 'a&b', 'a|b', '[a|b]', 'a*2' or '[a*2&b*2]'",
    )


def meets(features: Features, expression: str) -> bool:
    """Whether a node with these features meets an expression without counts."""
    result, operator = True, "&"
    for part in _PARTS.findall(expression):
        if part in ("&", "|"):
            operator = part
        elif operator == "&":
            result = result and _has(features, part)
        else:
            result = result or _has(features, part)
    return result


def _has(features: Features, part: str) -> bool:
    return meets(features, part[1:-1]) if part.startswith("(") else part in features


def feature_names(text: str) -> tuple[str, ...]:
    """Return the features that a constraint names."""
    return tuple(re.findall(_NAME, re.sub(r"\*\d+", "", text)))


def _alternatives(text: str) -> tuple[str, ...]:
    """Split at each `|` that is not in parentheses."""
    alternatives = [""]
    for part in _PARTS.findall(text):
        if part == "|":
            alternatives.append("")
        else:
            alternatives[-1] += part
    return tuple(alternatives)


def _joined(first: str, second: str) -> str:
    """Join two expressions; parentheses do not nest, and what comes first needs none."""
    parts = (first, second)
    return "&".join(f"({p})" if "|" in p and "(" not in p else p for p in parts)


def _joined_plainly(counted: str, expression: str) -> str:
    """Join two expressions so that they can stand in parentheses; "" where they cannot."""
    inner = counted.removeprefix("(").removesuffix(")")
    first, second = (expression, inner) if "|" in expression else (inner, expression)
    return "" if "(" in f"{first}{second}" or "|" in second else f"{first}&{second}"
