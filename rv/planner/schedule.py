"""When nodes are free, and so when a job would start: from what runs, is planned, and is reserved.

A job starts in the first window of its whole walltime on enough nodes at once. On Slurm 22.05 and
24.11 "now + walltime at or before the planned start of the job behind the backfill window" was
right 24 times of 24, with jobs that started at +30 s of slack and waited at -10 s. A start that
Slurm does not plan is never guessed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from operator import attrgetter
from typing import Final

from rv.models.performance import Source
from rv.models.plan import STARTS_NOW, UNKNOWN_START, Estimate
from rv.models.snapshot import Node, QueuedJob, Snapshot
from rv.planner.capacity import (
    FOREVER,
    FreeCapacity,
    NodeDemand,
    Occupancy,
    Tally,
    Window,
    first_window,
    free_capacities,
    open_windows,
)
from rv.planner.eligibility import is_settled
from rv.planner.inventory import Pool, Slot
from rv.planner.layouts import Layout, NodeNeeds

_LONGEST_S: Final = timedelta(days=3650).total_seconds()
_WEIGHT_AND_NAME: Final = attrgetter("node.weight", "node.name")


Windows = tuple[Window, ...]
NodeWindows = Mapping[str, Sequence[Window]]


class StartEstimator:
    """Says when jobs would start on the nodes of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._schedule = NodeSchedule(snapshot)
        self._unplanned_gpus = _unplanned_gpus(snapshot)

    def windows(self, pool: Pool, layout: Layout, needs: NodeNeeds) -> NodeWindows:
        """Return when each node of the pool has capacity for one node's part of the job."""
        demand = NodeDemand(
            cpus=needs.cpus,
            memory_mib=needs.memory_mib,
            gpus=layout.gpus_per_node,
            gpu_type=pool.gres_type,
            whole=pool.partition.exclusive,
        )
        windows_of = self._schedule.windows_for(demand)
        return {
            slot.node.name: windows_of(slot.node, slot.total, slot.free)
            for slot in needs.slots
            if is_settled(slot.node)
        }

    def estimate(
        self,
        windows: NodeWindows,
        pool: Pool,
        layout: Layout,
        walltime: timedelta,
        *,
        within_limits: bool,
    ) -> Estimate:
        """Say when enough nodes are free at once for the whole walltime, and how that is known.

        A later start is only given where Slurm has planned every job that waits in the partition:
        one without a plan could take any place. Limits that are used up make it unknown.
        """
        start_s = earliest_start(windows, layout.nodes, walltime) if within_limits else None
        if start_s is None or start_s > _LONGEST_S:
            return UNKNOWN_START
        if start_s > 0:
            if pool.partition.name in self._unplanned_gpus:
                return UNKNOWN_START
            return Estimate(source=Source.PLANNED, start_in=timedelta(seconds=round(start_s)))
        if self._is_idle(windows, pool, layout, walltime):
            return STARTS_NOW
        length_s = backfill_window(windows, layout.nodes)
        length = None if length_s == FOREVER else timedelta(seconds=int(length_s))
        return Estimate(source=Source.BACKFILL_WINDOW, start_in=timedelta(0), window=length)

    def _is_idle(
        self, windows: NodeWindows, pool: Pool, layout: Layout, walltime: timedelta
    ) -> bool:
        """Whether it starts now on nodes for which no other job is planned, or waits."""
        unplanned = {
            name: spans for name, spans in windows.items() if name not in self._schedule.planned
        }
        if not self._has_enough(pool, unplanned, layout):
            return False
        return earliest_start(unplanned, layout.nodes, walltime) == 0

    def _has_enough(self, pool: Pool, windows: NodeWindows, layout: Layout) -> bool:
        """Whether this job and all that wait without a plan could start on what is free now."""
        waiting = self._unplanned_gpus.get(pool.partition.name)
        if waiting is None:
            return True
        free_nodes = free_now(windows)
        gpus = sum(slot.free for slot in pool.usable if slot.node.name in free_nodes)
        needed = waiting + layout.nodes * layout.gpus_per_node
        return bool(layout.gpus_per_node) and gpus >= needed


def _unplanned_gpus(snapshot: Snapshot) -> dict[str, int]:
    """Count by partition the GPUs for which jobs wait whose start Slurm has not planned."""
    gpus: dict[str, int] = {}
    for job in snapshot.jobs:
        if job.state.is_pending and not job.planned_nodes:
            for name in job.partition.split(","):
                gpus[name] = gpus.get(name, 0) + job.gpus
    return gpus


def earliest_start(windows: NodeWindows, nodes: int, walltime: timedelta) -> float | None:
    """Return the first second at which so many nodes have the whole walltime; None for never."""
    length_s = walltime.total_seconds()
    # Most jobs could begin now: then nothing has to be put in order.
    if sum(window.end_s >= length_s for window in _open_now(windows)) >= nodes:
        return 0.0
    # At one moment arrivals count before departures: a window of just the length is enough.
    open_nodes = 0
    for moment_s, change in sorted(_openings(windows, length_s), key=_in_time):
        open_nodes += change
        if open_nodes >= nodes:
            return moment_s
    return None


def _in_time(event: tuple[float, int]) -> tuple[float, int]:
    return event[0], -event[1]


def _openings(windows: NodeWindows, length_s: float) -> Iterator[tuple[float, int]]:
    """Yield when nodes can begin something so long, +1, and when they no longer can, -1."""
    for spans in windows.values():
        for window in spans:
            if window.end_s - window.start_s >= length_s:
                yield window.start_s, 1
                yield window.end_s - length_s, -1


def backfill_window(windows: NodeWindows, nodes: int) -> float:
    """Return for how many seconds from now on so many nodes have the capacity; 0 for not now.

    Infinite where nothing is planned on enough of them.
    """
    ends = sorted((window.end_s for window in _open_now(windows)), reverse=True)
    return ends[nodes - 1] if len(ends) >= nodes else 0.0


def _open_now(windows: NodeWindows) -> Iterator[Window]:
    return (spans[0] for spans in windows.values() if spans and spans[0].start_s <= 0)


def free_now(windows: NodeWindows) -> frozenset[str]:
    """Return the names of the nodes that have the capacity at this moment."""
    return frozenset(name for name, spans in windows.items() if spans and spans[0].start_s <= 0)


def free_first(slots: tuple[Slot, ...], free_nodes: frozenset[str]) -> tuple[str, ...]:
    """Return the nodes' names, those free now first, then by Slurm's weight and by name."""

    names = [name for _, name in sorted(map(_WEIGHT_AND_NAME, slots))]
    free = [name for name in names if name in free_nodes]
    return (*free, *(name for name in names if name not in free_nodes))


class NodeSchedule:
    """What every node's jobs and reservations hold, read once from a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._now = snapshot.taken_at
        self._occupancies: dict[str, list[Occupancy]] = {}
        self._windows: dict[NodeDemand, dict[tuple[str, int, int], Windows]] = {}
        self.planned: set[str] = set()
        """Nodes on which Slurm has planned the start of a pending job."""
        for job in snapshot.jobs:
            end_s = self._from_now(job.end) if job.end else FOREVER
            if job.nodes and not job.state.is_pending:
                # Past its limit it is about to end, at a time that Slurm does not say.
                known_end_s = end_s if end_s > 0 else FOREVER
                self._add(job.nodes, _share_of(job, len(job.nodes), 0.0, known_end_s, running=True))
            elif job.planned_nodes and job.start is not None:
                nodes, start_s = job.planned_nodes, max(0.0, self._from_now(job.start))
                self._add(nodes, _share_of(job, len(nodes), start_s, end_s, running=False))
                self.planned.update(nodes)
        self._maybe_planned = _maybe_planned(snapshot)
        self._promised = set(self.planned)
        """Nodes on which anything is to begin: a planned job, or a reservation."""
        for reservation in snapshot.reservations:
            start_s, end_s = self._from_now(reservation.start), self._from_now(reservation.end)
            if end_s > 0:
                whole = Occupancy(start_s=max(0.0, start_s), end_s=end_s, whole=True)
                self._add(reservation.nodes, whole)
                self._promised.update(reservation.nodes)

    def _add(self, nodes: Iterable[str], occupancy: Occupancy) -> None:
        for name in nodes:
            self._occupancies.setdefault(name, []).append(occupancy)

    def _from_now(self, moment: datetime) -> float:
        return (moment - self._now).total_seconds()

    def windows_for(self, demand: NodeDemand) -> Callable[[Node, int, int], Windows]:
        """Return what says when a node has capacity for the demand, in order.

        It takes the node, and how many GPUs of the demand's type it has, in all and free now.
        Partitions overlap, so the same is asked often: each answer is worked out once.
        """
        by_node = self._windows.setdefault(demand, {})

        def windows(node: Node, total_gpus: int, free_gpus: int) -> Windows:
            key = (node.name, total_gpus, free_gpus)
            known = by_node.get(key)
            if known is None:
                capacities = self._free_capacities(node, demand.gpu_type, total_gpus, free_gpus)
                join = open_windows if node.name in self._promised else first_window
                known = by_node[key] = tuple(join(capacities, demand))
            return known

        return windows

    def _free_capacities(
        self, node: Node, gpu_type: str, total_gpus: int, free_gpus: int
    ) -> Iterator[FreeCapacity]:
        occupancies = self._occupancies.get(node.name, ())
        has_plan = any(not (one.running or one.whole) for one in occupancies)
        if node.name in self._maybe_planned and not has_plan:
            return iter(())  # for a job that is not seen, at a time that is not known
        return free_capacities(occupancies, Tally(node, gpu_type, total_gpus, free_gpus))


def _maybe_planned(snapshot: Snapshot) -> frozenset[str]:
    """Return the PLANNED nodes on which a job may be planned that the queue does not show there.

    Slurm leaves a node PLANNED until its next backfill pass, also where the job has started since
    or is gone; so the state says something only where a job may be meant: a hidden one, one without
    a plan (Slurm forgets a start while it plans anew), an array (its record has one task's plan).
    """
    marked = frozenset(node.name for node in snapshot.nodes if "PLANNED" in node.states)
    if not marked or snapshot.hides_jobs:
        return marked
    partitions: set[str] = set()
    for job in snapshot.jobs:
        if job.state.is_pending and not _has_known_plan(job):
            partitions.update(job.partition.split(","))
    waited_for = (one.nodes for one in snapshot.partitions if one.name in partitions)
    return marked.intersection(chain.from_iterable(waited_for))


def _has_known_plan(job: QueuedJob) -> bool:
    return bool(job.planned_nodes) and job.start is not None and job.job_id.isdecimal()


def _share_of(
    job: QueuedJob, nodes: int, start_s: float, end_s: float, *, running: bool
) -> Occupancy:
    """Return what a job holds of each of its nodes, evenly spread and rounded up."""
    return Occupancy(
        start_s=start_s,
        end_s=end_s,
        cpus=-(-job.cpus // nodes),
        memory_mib=-(-job.memory_mib // nodes),
        gpus=-(-job.gpus // nodes),
        gpu_type=job.gpu_type,
        running=running,
    )
