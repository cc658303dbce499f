"""When a job would start, from what is free, runs, and is planned by Slurm. Never a guess."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from rv.models.plan import STARTS_NOW, UNKNOWN_START, Estimate, Source
from rv.models.snapshot import Node, Snapshot
from rv.planner.layouts import Layout
from rv.planner.needs import Needs
from rv.planner.nodes import is_settled
from rv.planner.pools import Pool, Slot
from rv.planner.rooms import FOREVER
from rv.planner.timeline import Share, Timeline, Window, earliest, hole_now

Windows = Mapping[str, Sequence[Window]]
_LONGEST: Final = timedelta(days=3650).total_seconds()


class Forecast:
    """Windows and waiting lines of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._timeline = Timeline(snapshot)
        self._unplanned = _unplanned(snapshot)

    def windows(self, pool: Pool, layout: Layout, wanted: Needs) -> Windows:
        """Return when each node of the pool has room for one node's part of the job."""
        share = Share(
            cpus=wanted.cpus,
            memory_mib=wanted.memory_mib,
            gpus=layout.gpus_per_node,
            gpu_type=pool.gres_type,
            whole=pool.partition.exclusive,
        )
        return {
            slot.node.name: self._timeline.windows(slot.node, share, slot.total, slot.free)
            for slot in wanted.slots
            if is_settled(slot.node)
        }

    def estimate(
        self, windows: Windows, pool: Pool, layout: Layout, walltime: timedelta, *, has_room: bool
    ) -> Estimate:
        """Say when enough nodes are free at once for the whole walltime, and how that is known.

        What comes later is only said where every job that waits in the partition has its plan:
        one without could take any place. Limits that leave no room make it unknown.
        """
        start = earliest(windows, layout.nodes, walltime) if has_room else None
        if start is None or start > _LONGEST:
            return UNKNOWN_START
        if start > 0:
            later = Estimate(source=Source.PLANNED, start_in=timedelta(seconds=round(start)))
            return UNKNOWN_START if pool.partition.name in self._unplanned else later
        quiet = {n: spans for n, spans in windows.items() if n not in self._timeline.planned}
        if self._has_enough(pool, quiet, layout) and earliest(quiet, layout.nodes, walltime) == 0:
            return STARTS_NOW
        hole = hole_now(windows, layout.nodes)
        window = None if hole == FOREVER else timedelta(seconds=int(hole))
        return Estimate(source=Source.HOLE, start_in=timedelta(0), window=window)

    def _has_enough(self, pool: Pool, windows: Windows, layout: Layout) -> bool:
        """Whether this job and all that wait without a plan could start on what is free now."""
        waiting = self._unplanned.get(pool.partition.name)
        if waiting is None:
            return True
        free = free_now(windows)
        gpus = sum(slot.free for slot in pool.usable if slot.node.name in free)
        needed = waiting + layout.nodes * layout.gpus_per_node
        return bool(layout.gpus_per_node) and gpus >= needed


def _unplanned(snapshot: Snapshot) -> dict[str, int]:
    """Count by partition the GPUs for which jobs wait whose start Slurm has not planned."""
    gpus: dict[str, int] = {}
    for job in snapshot.jobs:
        if job.state.is_pending and not job.planned_nodes:
            for name in job.partition.split(","):
                gpus[name] = gpus.get(name, 0) + job.gpus
    return gpus


def free_now(windows: Windows) -> frozenset[str]:
    """Name the nodes with room at this moment."""
    return frozenset(name for name, spans in windows.items() if spans and spans[0].start <= 0)


def free_first(slots: tuple[Slot, ...], free: frozenset[str]) -> tuple[str, ...]:
    """Name the nodes, those free now first, then by Slurm's weight and by name."""

    def key(node: Node) -> tuple[bool, int, str]:
        return (node.name not in free, node.weight, node.name)

    return tuple(node.name for node in sorted((slot.node for slot in slots), key=key))
