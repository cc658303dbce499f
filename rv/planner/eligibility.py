"""Which nodes can serve a request: their states, reservations, and expressions of node features."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.plan import Exclusion
from rv.models.request import Request
from rv.models.site import Site
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
class Choice:
    """One way to meet a constraint: Slurm's spelling, and how many nodes must have what.

    Without `counts` every node must meet the text. `exact`: the counts are all of the job's nodes.
    """

    text: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    exact: bool = False

    def allows(self, features: Features) -> bool:
        """Whether a node may be among the job's."""
        return not self.text or bool(self.counts) or holds(self.text, features)

    def too_few(self, nodes: Iterable[Features], layout_nodes: int) -> str:
        """Say which count the nodes, or the layout, cannot meet; "" where all can be met."""
        every = list(nodes)
        asked = sum(count for _, count in self.counts)
        if asked > layout_nodes or (self.exact and asked < layout_nodes):
            return f"the constraint counts {asked} nodes, the layout has {layout_nodes}"
        for expression, count in self.counts:
            found = sum(holds(expression, features) for features in every)
            if found < count:
                return f"{count} nodes with {expression} asked, there are {found}"
        return ""

    def within(self, constraint: str) -> "Choice | None":
        """Return the choice among nodes that meet another constraint too; None for no such form."""
        if not constraint:
            return self
        if not self.counts:
            return replace(self, text=_both(self.text, constraint) if self.text else constraint)
        counts = [(_chained(expression, constraint), count) for expression, count in self.counts]
        if not all(expression for expression, _ in counts):
            return None
        text = "&".join(f"({expression})*{count}" for expression, count in counts)
        return Choice(text=f"[{text}]", counts=tuple(counts), exact=True)


def choices(text: str) -> tuple[Choice, ...]:
    """Return the ways to meet a constraint; one that allows all for "".

    Raises `RvError(USAGE)` for what is no expression.
    """
    if not text or _EXPRESSION.fullmatch(text):
        return (Choice(text=text),)
    if _COUNTS.fullmatch(text) or _COUNTED.fullmatch(text):
        found = _COUNTED.findall(text)
        return (Choice(text=text, counts=tuple((part, int(count)) for part, count in found)),)
    if _ONE_OF.fullmatch(text):
        return tuple(Choice(text=part) for part in _alternatives(text[1:-1]))
    raise RvError(
        ErrorKind.USAGE,
        f"{text!r} is no constraint",
        hint="write --constraint a, 'a&b', 'a|b', '[a|b]', 'a*2' or '[a*2&b*2]'",
    )


def holds(expression: str, features: Features) -> bool:
    """Whether a node with these features meets an expression without counts."""
    met, operator = True, "&"
    for part in _PARTS.findall(expression):
        if part in ("&", "|"):
            operator = part
        elif operator == "&":
            met = met and _has(part, features)
        else:
            met = met or _has(part, features)
    return met


def feature_names(text: str) -> tuple[str, ...]:
    """Return the features that an expression names."""
    return tuple(re.findall(_NAME, re.sub(r"\*\d+", "", text)))


def _has(part: str, features: Features) -> bool:
    return holds(part[1:-1], features) if part.startswith("(") else part in features


def _alternatives(text: str) -> tuple[str, ...]:
    found = [""]
    for part in _PARTS.findall(text):
        if part == "|":
            found.append("")
        else:
            found[-1] += part
    return tuple(found)


def _both(first: str, second: str) -> str:
    """Join two expressions; parentheses do not nest, and what comes first needs none."""
    parts = (first, second)
    return "&".join(f"({p})" if "|" in p and "(" not in p else p for p in parts)


def _chained(expression: str, constraint: str) -> str:
    """Join two expressions without parentheses, so that they can stand in some; "" where not."""
    inner = expression.removeprefix("(").removesuffix(")")
    first, second = (constraint, inner) if "|" in constraint else (inner, constraint)
    return "" if "(" in f"{first}{second}" or "|" in second else f"{first}&{second}"


def avoided(request: Request, snapshot: Snapshot, site: Site) -> tuple[Exclusion, ...]:
    """Name the nodes that are not asked for because they failed, each with the reason.

    One that the user excludes, or asks for by name, is no matter of ours.
    """
    if request.no_avoid:
        return ()
    spoken_for = {*request.exclude_nodes, *request.only_nodes}
    here = {node.name for node in snapshot.nodes} - spoken_for
    names = sorted(here & site.avoided.keys())
    return tuple(Exclusion(what=name, reason=site.avoided[name]) for name in names)
