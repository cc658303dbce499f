"""Expressions of node features, as `--constraint` has them: which nodes they allow.

Slurm's forms: `a&b`, `a|b`, `(a|b)&c`, read from the left; `[a|b]`, all nodes from one of them;
`a*2` and `[a*2&b*1]`, at least so many nodes with each. Tried on 22.05: a count in brackets says
nothing of the job's other nodes, and brackets do not go with anything beside them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from rv.errors import ErrorKind, RvError

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


def names(text: str) -> tuple[str, ...]:
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
