"""How the GPUs of a request may be spread over nodes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rv.models.command import Launcher, Pins
from rv.models.request import Layouts, NodeLimit, Request
from rv.planner.nodes import ASLEEP, count_losses
from rv.planner.pools import Pool
from rv.planner.reasons import amount

_MOST_NODES: Final = 4096
"""Layouts of more nodes are not looked for when a reason is put into words."""


@dataclass(frozen=True, order=True, slots=True)
class Layout:
    """So many nodes with so many GPUs each."""

    nodes: int
    gpus_per_node: int

    def __str__(self) -> str:
        """Write it as people do: 2x4."""
        return f"{self.nodes}x{self.gpus_per_node}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """What a request allows: one node, several, and what its command pins.

    `least` is the fewest GPUs a node of a multi-node layout has; `notes` are for the user.
    """

    gpus: int
    single: bool
    multi: bool
    every: bool
    least: int
    pins: Pins
    notes: tuple[str, ...] = ()

    def allows(self, layout: Layout) -> bool:
        """Whether the command's own flags allow the layout."""
        processes, nodes = self.pins.processes_per_node, self.pins.nodes
        return (nodes is None or layout.nodes == nodes) and (
            not layout.gpus_per_node or processes is None or layout.gpus_per_node == processes
        )


def spread(request: Request, least: int) -> Spread:
    """Read what the request allows; `least` is the families' fewest GPUs a node."""
    command, limit = request.command, request.node_limit
    pins = command.pins if command else Pins()
    torchrun = command is None or command.launcher is Launcher.TORCHRUN
    multi = limit is NodeLimit.MULTI or (limit is NodeLimit.ANY and torchrun)
    notes = []
    if command and not multi and limit is NodeLimit.ANY and _divisible(request.gpus, least):
        notes.append(
            f"multi-node layouts are left out: a {command.launcher} command starts on one node; "
            "--multi-node overrides"
        )
    pinned = pins.processes_per_node is not None or pins.nodes is not None
    if pinned:
        flags = " ".join(pins.flags) or "its flags"
        notes.append(f"the command pins the layout: {flags}")
    return Spread(
        gpus=request.gpus,
        single=limit is not NodeLimit.MULTI,
        multi=multi and request.gpus > 1,
        every=request.layouts is Layouts.ALL,
        # A command that pins a process a node, or a user who insists on nodes, gets one GPU a node.
        least=1 if pinned or request.layouts is Layouts.ALL else least,
        pins=pins,
        notes=tuple(notes),
    )


def _divisible(gpus: int, least: int) -> bool:
    most = min(_MOST_NODES, gpus // max(least, 1))
    return any(gpus % nodes == 0 for nodes in range(2, most + 1))


def layouts(pool: Pool, wanted: Spread) -> tuple[tuple[Layout, ...], tuple[tuple[str, str], ...]]:
    """Return the layouts that the pool's nodes can hold, and the others as (layout, reason)."""
    found: list[Layout] = []
    reasons: list[tuple[str, str]] = []
    single = Layout(1, wanted.gpus)
    if wanted.single and wanted.allows(single):
        reason = _too_small(pool, single)
        if reason:
            reasons.append((str(single), reason))
        else:
            found.append(single)
    if wanted.multi:
        several = list(_multi(pool, wanted, wanted.least))
        least = wanted.least
        if not several and not wanted.single:
            least = 1
            several = list(_multi(pool, wanted, least))
        found.extend(several)
        if not several:
            reasons.extend(_no_multi(pool, wanted, least))
    if not found and not reasons:
        reasons.append(("", _nothing_allowed(wanted)))
    return tuple(found), tuple(reasons)


def _candidates(wanted: Spread, least: int, nodes: int) -> Iterator[Layout]:
    most = min(nodes, wanted.gpus // max(1, least))
    for count in range(2, most + 1):
        layout = Layout(count, wanted.gpus // count)
        if wanted.gpus % count == 0 and wanted.allows(layout):
            yield layout


def _multi(pool: Pool, wanted: Spread, least: int) -> Iterator[Layout]:
    for layout in _candidates(wanted, least, len(pool.usable)):
        if not _too_small(pool, layout):
            yield layout
            if not wanted.every:
                return


def _no_multi(pool: Pool, wanted: Spread, least: int) -> Iterator[tuple[str, str]]:
    """Explain the narrowest layout that the pool's nodes would hold if none of them were lost."""
    candidates = list(_candidates(wanted, least, _MOST_NODES))
    for layout in candidates:
        if len(pool.with_at_least(layout.gpus_per_node, lost_too=True)) >= layout.nodes:
            yield str(layout), _too_small(pool, layout)
            return
    if candidates:
        yield str(candidates[0]), _too_small(pool, candidates[-1])


def _too_small(pool: Pool, layout: Layout) -> str:
    """Say why the nodes of the pool cannot hold a layout; "" where they can."""
    fit = len(pool.with_at_least(layout.gpus_per_node))
    if fit >= layout.nodes:
        return ""
    lost = [s.lost for s in pool.with_at_least(layout.gpus_per_node, lost_too=True) if s.lost]
    if fit + len(lost) >= layout.nodes:
        every = fit + len(lost)
        plural = "node is" if every == 1 else "nodes are"
        remedy = "; --power-up wakes nodes" if ASLEEP in lost else ""
        return f"{len(lost)} of {every} {plural} not usable ({count_losses(lost)}){remedy}"
    if layout.gpus_per_node > pool.largest:
        return (
            f"a node has at most {amount('gres/gpu', pool.largest)}, {layout.gpus_per_node} asked"
        )
    have = f"{fit + len(lost)} with {amount('gres/gpu', layout.gpus_per_node)} or more"
    return f"{layout.nodes} nodes asked, there is {have}"


def _nothing_allowed(wanted: Spread) -> str:
    if wanted.pins != Pins():
        flags = " ".join(wanted.pins.flags) or "its flags"
        return f"the command pins a layout that {wanted.gpus} GPUs cannot have ({flags})"
    return f"{amount('gres/gpu', wanted.gpus)} cannot be spread evenly over several nodes"
