"""CPUs, memory and walltime of one job: the user's where given, else a fair share of the node."""

from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Final

from rv.models.quantities import short_memory
from rv.models.request import Request
from rv.models.snapshot import Partition
from rv.planner.access import Charge
from rv.planner.constraints import Choice
from rv.planner.families import Family
from rv.planner.layouts import Layout
from rv.planner.limits import max_wall, wall_reason
from rv.planner.pools import Pool, Slot
from rv.planner.reasons import Unfit, amount

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
    """Work out CPUs and memory a node. Raises `Unfit` where the user's own wishes do not fit."""
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
        raise Unfit(_too_much(slots, layout, cpus, memory))
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
        raise Unfit(too_few)


def _raised(request: Request, cpus: int, per_cpu: int, partition: Partition) -> int:
    if request.cpus is None:
        return cpus
    reason = (
        f"{short_memory(request.memory_mib or 0)} needs {amount('cpu', cpus)} at MaxMemPerCPU "
        f"{per_cpu}M of partition {partition.name}, {request.cpus} asked"
    )
    raise Unfit(reason, by_limit=True)


def _raised_note(partition: Partition, memory: int, per_cpu: int, cpus: int) -> str:
    return (
        f"{partition.name}: {short_memory(memory)} takes {amount('cpu', cpus)} a node, because "
        f"MaxMemPerCPU is {per_cpu}M"
    )


def _check_node_limits(partition: Partition, cpus: int, memory: int) -> None:
    most = partition.max_cpus_per_node
    if most is not None and cpus > most:
        reason = f"partition {partition.name} allows {amount('cpu', most)} a node, {cpus} needed"
        raise Unfit(reason, by_limit=True)
    room = partition.max_memory_per_node_mib
    if room and memory > room:
        allowed = f"partition {partition.name} allows {amount('mem', room)} a node"
        raise Unfit(f"{allowed}, {short_memory(memory)} asked", by_limit=True)


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


def walltime(partition: Partition, charge: Charge, request: Request) -> timedelta:
    """Return the time to ask for: the user's, else the default capped by what is allowed.

    Raises `Unfit` where the user gave more than that.
    """
    limits: list[tuple[str, timedelta]] = []
    if partition.max_time is not None and not charge.has_flag("PartitionTimeLimit"):
        limits.append((f"MaxTime of partition {partition.name}:", partition.max_time))
    wall = max_wall(charge.order)
    if wall:
        limits.append((f"MaxWall of {wall[0]}:", wall[1]))
    if not request.walltime_given or request.checkpoint:  # what is longer runs in segments
        return min([request.walltime, *(limit for _, limit in limits)])
    for whose, limit in limits:
        if request.walltime > limit:
            raise Unfit(wall_reason(request.walltime, limit, whose), by_limit=True)
    return request.walltime
