"""How a request is spread over nodes, and what CPUs and memory it asks of each."""

from collections.abc import Iterator
from math import ceil
from typing import Final

from rv.dataclass import dataclass
from rv.models.quantities import short_memory
from rv.models.request import Launcher, Layouts, NodeLimit, Pins, Request
from rv.models.snapshot import Partition
from rv.planner.catalogue import Family
from rv.planner.eligibility import ASLEEP, count_reasons
from rv.planner.inventory import Pool, Slot
from rv.planner.limits import Infeasible, amount

_MOST_NODES: Final = 4096
"""Layouts of more nodes are not looked for when a reason is given."""

_MEMORY_SHARE: Final = 0.9
"""How much of its proportion of a node's memory a job asks for, so that CPU jobs fit beside it."""

_ROUNDED_FROM_MIB: Final = 8 * 1024


@dataclass(frozen=True, order=True, slots=True)
class Layout:
    """So many nodes with so many GPUs each."""

    nodes: int
    gpus_per_node: int

    def __str__(self) -> str:
        """Write it as people do: 2x4."""
        return f"{self.nodes}x{self.gpus_per_node}"


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRules:
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
        if self.pins.nodes not in (None, layout.nodes):
            return False
        gpus = layout.gpus_per_node
        return not gpus or self.pins.processes_per_node in (None, gpus)


def layout_rules(request: Request, least: int) -> LayoutRules:
    """Read what the request allows; `least` is the families' fewest GPUs a node."""
    pins = request.command.pins if request.command else Pins()
    pinned = pins.processes_per_node is not None or pins.nodes is not None
    every = request.layouts is Layouts.ALL
    return LayoutRules(
        gpus=request.gpus,
        single=request.node_limit is not NodeLimit.MULTI,
        multi=_may_use_several_nodes(request) and request.gpus > 1,
        every=every,
        # A command that pins a process a node, or a user who insists on nodes, gets one GPU a node.
        least=1 if pinned or every else least,
        pins=pins,
        notes=tuple(_layout_notes(request, least, pinned=pinned)),
    )


def _may_use_several_nodes(request: Request) -> bool:
    if request.node_limit is not NodeLimit.ANY:
        return request.node_limit is NodeLimit.MULTI
    return request.command is None or request.command.launcher is Launcher.TORCHRUN


def _layout_notes(request: Request, least: int, *, pinned: bool) -> Iterator[str]:
    command = request.command
    if command is None:
        return
    starts_on_one = command.launcher is not Launcher.TORCHRUN
    is_free = request.node_limit is NodeLimit.ANY
    if starts_on_one and is_free and _divisible(request.gpus, least):
        yield (
            f"multi-node layouts are not considered: a {command.launcher} command starts on one "
            "node; --multi-node overrides"
        )
    if pinned:
        yield f"the command pins the layout: {' '.join(command.pins.flags) or 'its flags'}"


def _divisible(gpus: int, least: int) -> bool:
    most = min(_MOST_NODES, gpus // max(least, 1))
    return any(gpus % nodes == 0 for nodes in range(2, most + 1))


def layouts(
    pool: Pool, rules: LayoutRules
) -> tuple[tuple[Layout, ...], tuple[tuple[str, str], ...]]:
    """Return the layouts that the pool's nodes can hold, and the others as (layout, reason)."""
    fitting: list[Layout] = []
    reasons: list[tuple[str, str]] = []
    single = Layout(1, rules.gpus)
    if rules.single and rules.allows(single):
        reason = _too_small(pool, single)
        if reason:
            reasons.append((str(single), reason))
        else:
            fitting.append(single)
    if rules.multi:
        several, why_none = _multi_node(pool, rules)
        fitting.extend(several)
        reasons.extend(why_none)
    if not fitting and not reasons:
        reasons.append(("", _nothing_allowed(rules)))
    return tuple(fitting), tuple(reasons)


def _multi_node(pool: Pool, rules: LayoutRules) -> tuple[list[Layout], list[tuple[str, str]]]:
    """Return the multi-node layouts; where the user wants no other, down to one GPU a node."""
    least = rules.least
    several = list(_fitting(pool, rules, least))
    if not several and not rules.single:
        least = 1
        several = list(_fitting(pool, rules, least))
    return several, [] if several else list(_why_no_multi_node(pool, rules, least))


def _candidates(rules: LayoutRules, least: int, most_nodes: int) -> Iterator[Layout]:
    most = min(most_nodes, rules.gpus // max(1, least))
    for count in range(2, most + 1):
        layout = Layout(count, rules.gpus // count)
        if rules.gpus % count == 0 and rules.allows(layout):
            yield layout


def _fitting(pool: Pool, rules: LayoutRules, least: int) -> Iterator[Layout]:
    for layout in _candidates(rules, least, len(pool.usable)):
        if not _too_small(pool, layout):
            yield layout
            if not rules.every:
                return


def _why_no_multi_node(pool: Pool, rules: LayoutRules, least: int) -> Iterator[tuple[str, str]]:
    """Explain the narrowest layout that the pool's nodes would hold if all were usable."""
    candidates = list(_candidates(rules, least, _MOST_NODES))
    for layout in candidates:
        if len(pool.with_at_least(layout.gpus_per_node, all_nodes=True)) >= layout.nodes:
            yield str(layout), _too_small(pool, layout)
            return
    if candidates:
        yield str(candidates[0]), _too_small(pool, candidates[-1])


def _too_small(pool: Pool, layout: Layout) -> str:
    """Say why the nodes of the pool cannot hold a layout; "" where they can."""
    gpus = layout.gpus_per_node
    if len(pool.with_at_least(gpus)) >= layout.nodes:
        return ""
    slots = pool.with_at_least(gpus, all_nodes=True)
    if len(slots) >= layout.nodes:
        return _too_few_usable(slots)
    if gpus > pool.largest:
        return f"a node has at most {amount('gres/gpu', pool.largest)}, {gpus} asked"
    return (
        f"{layout.nodes} nodes asked, there is {len(slots)} with {amount('gres/gpu', gpus)} or more"
    )


def _too_few_usable(slots: tuple[Slot, ...]) -> str:
    reasons = [slot.unusable for slot in slots if slot.unusable]
    plural = "node is" if len(slots) == 1 else "nodes are"
    remedy = "; --power-up wakes nodes" if ASLEEP in reasons else ""
    counted = count_reasons(reasons)
    return f"{len(reasons)} of {len(slots)} {plural} not usable ({counted}){remedy}"


def _nothing_allowed(rules: LayoutRules) -> str:
    if rules.pins != Pins():
        flags = " ".join(rules.pins.flags) or "its flags"
        return f"the command pins a layout that {rules.gpus} GPUs cannot have ({flags})"
    return f"{amount('gres/gpu', rules.gpus)} cannot be spread evenly over several nodes"


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeNeeds:
    """What the job asks of each node, and the usable slots of the nodes that have it.

    `memory_mib` is 0 where the site's nodes declare none: Slurm is then asked for all there is.
    """

    cpus: int
    memory_mib: int
    slots: tuple[Slot, ...]
    notes: tuple[str, ...] = ()


def node_needs(pool: Pool, layout: Layout, family: Family, request: Request) -> NodeNeeds:
    """Work out CPUs and memory a node: the user's where given, else a fair share of the node.

    Raises `Infeasible` where what the user asked for does not fit.
    """
    partition, gpus = pool.partition, layout.gpus_per_node
    slots = pool.with_at_least(gpus)
    cpus = request.cpus or _default_cpus(slots, gpus, family, partition)
    memory_mib = request.memory_mib or _default_memory_mib(slots, gpus, cpus, family, partition)
    needed_cpus = _cpus_for_memory(request, partition, cpus)
    notes: tuple[str, ...] = ()
    if needed_cpus > cpus:
        cpus = needed_cpus
        takes = f"{short_memory(memory_mib)} takes {amount('cpu', cpus)} a node"
        limit = f"MaxMemPerCPU is {partition.max_memory_per_cpu_mib}M"
        notes = (f"{partition.name}: {takes}, because {limit}",)
    _check_node_limits(partition, cpus, memory_mib)
    _check_counts(pool, slots, layout)
    fitting = tuple(s for s in slots if s.node.cpus >= cpus and s.node.memory_mib >= memory_mib)
    if len(fitting) < layout.nodes:
        raise Infeasible(_too_much(slots, layout, cpus, memory_mib))
    return NodeNeeds(cpus=cpus, memory_mib=memory_mib, slots=fitting, notes=notes)


def _check_counts(pool: Pool, slots: tuple[Slot, ...], layout: Layout) -> None:
    features = (slot.node.features for slot in slots)
    shortage = pool.counts.shortage(features, layout.nodes) if pool.counts else ""
    if shortage:
        raise Infeasible(shortage)


def _default_cpus(slots: tuple[Slot, ...], gpus: int, family: Family, partition: Partition) -> int:
    most = [family.cpus or min(max(gpus, 1) * family.cpus_per_gpu, family.max_cpus)]
    if not family.cpus:
        kinds = {(slot.portion, slot.node.cpus) for slot in slots}
        most.extend(int(_proportion(portion, gpus, whole)) for portion, whole in kinds)
    if partition.max_cpus_per_node is not None:
        most.append(partition.max_cpus_per_node)
    return max(1, min(most))


def _default_memory_mib(
    slots: tuple[Slot, ...], gpus: int, cpus: int, family: Family, partition: Partition
) -> int:
    # Of thousands of nodes few differ in what they have.
    kinds = {(slot.portion, slot.node.cpus, slot.node.memory_mib) for slot in slots}
    shares = [_memory_proportion(kind, gpus, cpus) for kind in kinds]
    share_mib = int(min(shares, default=0) * _MEMORY_SHARE)
    if share_mib >= _ROUNDED_FROM_MIB:
        share_mib -= share_mib % 1024  # whole GiB cost little there: a figure that people can read
    most = [share_mib]
    if family.memory_mib is not None:
        most.append(family.memory_mib)
    if partition.max_memory_per_cpu_mib:
        most.append(partition.max_memory_per_cpu_mib * cpus)
    if partition.max_memory_per_node_mib:
        most.append(partition.max_memory_per_node_mib)
    return max(0, min(most))


def _memory_proportion(kind: tuple[float, int, int], gpus: int, cpus: int) -> float:
    """Return the share of a node's memory that goes with its GPUs, else with its CPUs."""
    portion, node_cpus, memory_mib = kind
    if portion:
        return _proportion(portion, gpus, memory_mib)
    return memory_mib * min(1.0, cpus / max(1, node_cpus))


def _proportion(portion: float, gpus: int, whole: int) -> float:
    # Rounded, because 49 parts of a forty-ninth are a little less than one.
    return round(whole * gpus * portion, 6) if portion else float(whole)


def _cpus_for_memory(request: Request, partition: Partition, cpus: int) -> int:
    """Return the CPUs that the user's memory takes under MaxMemPerCPU, at least `cpus`.

    Slurm would raise them by itself, unseen; here the limits are checked afterwards. Raises
    `Infeasible` where the user asked for fewer CPUs.
    """
    per_cpu_mib = partition.max_memory_per_cpu_mib
    memory_mib = request.memory_mib or 0
    if not per_cpu_mib or memory_mib <= per_cpu_mib * cpus:
        return cpus
    needed = ceil(memory_mib / per_cpu_mib)
    if request.cpus is None:
        return needed
    raise Infeasible(
        f"{short_memory(memory_mib)} needs {amount('cpu', needed)} at MaxMemPerCPU "
        f"{per_cpu_mib}M of partition {partition.name}, {request.cpus} asked",
        by_limit=True,
    )


def _check_node_limits(partition: Partition, cpus: int, memory_mib: int) -> None:
    most = partition.max_cpus_per_node
    if most is not None and cpus > most:
        reason = f"partition {partition.name} allows {amount('cpu', most)} a node, {cpus} needed"
        raise Infeasible(reason, by_limit=True)
    most_mib = partition.max_memory_per_node_mib
    if most_mib and memory_mib > most_mib:
        allowed = f"partition {partition.name} allows {amount('mem', most_mib)} a node"
        raise Infeasible(f"{allowed}, {short_memory(memory_mib)} asked", by_limit=True)


def _too_much(slots: tuple[Slot, ...], layout: Layout, cpus: int, memory_mib: int) -> str:
    """Say whether too few nodes have the CPUs, or the memory."""
    with_cpus = [slot for slot in slots if slot.node.cpus >= cpus]
    if len(with_cpus) < layout.nodes:
        most = max((slot.node.cpus for slot in slots), default=0)
        counted = f"{len(with_cpus)} of {layout.nodes} nodes have them"
        if layout.nodes == 1 or most < cpus:
            counted = f"the largest node has {most}"
        return f"{amount('cpu', cpus)} a node needed, {counted}"
    most_mib = max((slot.node.memory_mib for slot in with_cpus), default=0)
    largest = f"the largest node has {short_memory(most_mib)}"
    return f"{amount('mem', memory_mib)} a node needed, {largest}"
