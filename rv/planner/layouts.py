"""How a request is spread over nodes, and what it asks of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

from rv.models.command import Launcher, Pins
from rv.models.quantities import short_memory
from rv.models.request import Layouts, NodeLimit, Request
from rv.models.snapshot import Partition
from rv.planner.eligibility import ASLEEP, Choice, count_losses
from rv.planner.families import Family
from rv.planner.inventory import Pool, Slot
from rv.planner.limits import Infeasible, amount

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
            f"multi-node layouts are not considered: a {command.launcher} command starts on one "
            "node; --multi-node overrides"
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


_SHARE: Final = 0.9
"""How much of its proportion of a node's memory a job asks for, so that CPU jobs fit beside it."""

_READABLE: Final = 8 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What one node of the job has, and the nodes that have it, usable ones.

    `memory_mib` is 0 where the site's nodes declare none: Slurm is then asked for all there is.
    """

    cpus: int
    memory_mib: int
    slots: tuple[Slot, ...]
    notes: tuple[str, ...] = ()


def needs(pool: Pool, layout: Layout, family: Family, request: Request) -> Needs:
    """Work out CPUs and memory a node. Raises `Infeasible` where the user's wishes do not fit."""
    partition, gpus = pool.partition, layout.gpus_per_node
    slots = pool.with_at_least(gpus)
    cpus = request.cpus or _cpus(slots, gpus, family, partition)
    memory = request.memory_mib or _memory(slots, gpus, cpus, family, partition)
    notes: tuple[str, ...] = ()
    per_cpu = partition.max_memory_per_cpu_mib
    if per_cpu and request.memory_mib and memory > per_cpu * cpus:
        # Slurm would raise the CPUs by itself, unseen: do it here, where limits are then checked.
        cpus = _raised(request, ceil(memory / per_cpu), per_cpu, partition)
        notes = (_raised_note(partition, memory, per_cpu, cpus),)
    _check_node_limits(partition, cpus, memory)
    if pool.counts:
        _check_counts(pool.counts, slots, layout)
    fitting = tuple(s for s in slots if s.node.cpus >= cpus and s.node.memory_mib >= memory)
    if len(fitting) < layout.nodes:
        raise Infeasible(_too_much(slots, layout, cpus, memory))
    return Needs(cpus=cpus, memory_mib=memory, slots=fitting, notes=notes)


def _cpus(slots: tuple[Slot, ...], gpus: int, family: Family, partition: Partition) -> int:
    wanted = family.cpus or min(max(gpus, 1) * family.cpus_per_gpu, family.max_cpus)
    shares = [_proportion(slot, gpus, slot.node.cpus) for slot in slots]
    limits = [wanted, *([] if family.cpus else shares)]
    if partition.max_cpus_per_node is not None:
        limits.append(partition.max_cpus_per_node)
    return max(1, int(min(limits)))


def _memory(
    slots: tuple[Slot, ...], gpus: int, cpus: int, family: Family, partition: Partition
) -> int:
    shares = [
        _proportion(slot, gpus, slot.node.memory_mib)
        if slot.portion
        else slot.node.memory_mib * min(1.0, cpus / max(1, slot.node.cpus))
        for slot in slots
    ]
    limits = [_rounded(int(min(shares, default=0) * _SHARE))]
    if family.memory_mib is not None:
        limits.append(family.memory_mib)
    if partition.max_memory_per_cpu_mib:
        limits.append(partition.max_memory_per_cpu_mib * cpus)
    if partition.max_memory_per_node_mib:
        limits.append(partition.max_memory_per_node_mib)
    return max(0, min(limits))


def _proportion(slot: Slot, gpus: int, whole: int) -> float:
    # Rounded, because 49 parts of a forty-ninth are a little less than one.
    return round(whole * gpus * slot.portion, 6) if slot.portion else float(whole)


def _rounded(mib: int) -> int:
    """Round down to whole GiB where that costs little: a figure that people can read."""
    return mib - mib % 1024 if mib >= _READABLE else mib


def _check_counts(counts: Choice, slots: tuple[Slot, ...], layout: Layout) -> None:
    too_few = counts.too_few((slot.node.features for slot in slots), layout.nodes)
    if too_few:
        raise Infeasible(too_few)


def _raised(request: Request, cpus: int, per_cpu: int, partition: Partition) -> int:
    if request.cpus is None:
        return cpus
    reason = (
        f"{short_memory(request.memory_mib or 0)} needs {amount('cpu', cpus)} at MaxMemPerCPU "
        f"{per_cpu}M of partition {partition.name}, {request.cpus} asked"
    )
    raise Infeasible(reason, by_limit=True)


def _raised_note(partition: Partition, memory: int, per_cpu: int, cpus: int) -> str:
    return (
        f"{partition.name}: {short_memory(memory)} takes {amount('cpu', cpus)} a node, because "
        f"MaxMemPerCPU is {per_cpu}M"
    )


def _check_node_limits(partition: Partition, cpus: int, memory: int) -> None:
    most = partition.max_cpus_per_node
    if most is not None and cpus > most:
        reason = f"partition {partition.name} allows {amount('cpu', most)} a node, {cpus} needed"
        raise Infeasible(reason, by_limit=True)
    room = partition.max_memory_per_node_mib
    if room and memory > room:
        allowed = f"partition {partition.name} allows {amount('mem', room)} a node"
        raise Infeasible(f"{allowed}, {short_memory(memory)} asked", by_limit=True)


def _too_much(slots: tuple[Slot, ...], layout: Layout, cpus: int, memory: int) -> str:
    """Say which wish too few nodes can meet."""
    enough = [slot for slot in slots if slot.node.cpus >= cpus]
    if len(enough) < layout.nodes:
        most = max((slot.node.cpus for slot in slots), default=0)
        counted = f"the largest node has {most}" if layout.nodes == 1 or most < cpus else ""
        counted = counted or f"{len(enough)} of {layout.nodes} nodes have them"
        return f"{amount('cpu', cpus)} a node needed, {counted}"
    most = max((slot.node.memory_mib for slot in enough), default=0)
    return f"{amount('mem', memory)} a node needed, the largest node has {short_memory(most)}"
