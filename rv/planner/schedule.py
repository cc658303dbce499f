"""When nodes are free, and so when a job would start."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from operator import itemgetter
from typing import Final

from rv.models.plan import STARTS_NOW, UNKNOWN_START, Estimate, Source
from rv.models.snapshot import Node, QueuedJob, Snapshot
from rv.planner.eligibility import is_settled
from rv.planner.inventory import Pool, Slot
from rv.planner.layouts import Layout, Needs

FOREVER: Final = inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimed:
    """What a job or a reservation holds of one node between two moments, in seconds from now.

    `whole`: nothing of the node is left for others. GPUs of a job whose type is not known count
    against every type.
    """

    start: float
    end: float
    cpus: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_type: str = ""
    whole: bool = False
    running: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Stock:
    """The GPUs of one GRES type on a node, in all and free now; "" is any type."""

    gpu_type: str
    total: int
    free: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """What is free of a node from `start` to `end`, in seconds from now; GPUs are of one type.

    `empty`: nobody has anything on the node.
    """

    start: float
    end: float
    cpus: int
    memory_mib: int
    gpus: int
    empty: bool


def rooms(node: Node, claims: Sequence[Claimed], stock: Stock) -> Iterator[Room]:
    """Tell what is free in each time in which the node can be shared at all, in order."""
    if _is_planned_unseen(node, claims):
        return
    tally = _Tally(node, stock)
    changes = [(claim.start, tally.begin, claim) for claim in claims if claim.start < claim.end]
    changes += [(claim.end, tally.finish, claim) for claim in claims if claim.end < FOREVER]
    since = 0.0
    for moment, change, claim in sorted(changes, key=itemgetter(0)):
        if moment > since:
            if tally.is_shared:
                yield tally.room(since, moment)
            since = moment
        change(claim)
    if tally.is_shared:
        yield tally.room(since, FOREVER)


def _is_planned_unseen(node: Node, claims: Sequence[Claimed]) -> bool:
    """Slurm plans a job there that this user may not see."""
    return "PLANNED" in node.states and all(c.running or c.whole for c in claims)


class _Tally:
    """What is held at one moment: what is used now, less what has ended, plus what is planned."""

    def __init__(self, node: Node, stock: Stock) -> None:
        self._node = node
        self._stock = stock
        self._full = "ALLOCATED" in node.states
        self._held = self._whole = self._ended = 0
        self._cpus_back = self._memory_back = self._gpus_back = 0
        self._cpus_due = self._memory_due = self._gpus_due = 0

    def begin(self, claim: Claimed) -> None:
        """Count a claim from its start on; what running jobs hold the node counts itself."""
        self._held += 1
        self._whole += claim.whole
        if not claim.running:
            self._plan(claim, 1)

    def finish(self, claim: Claimed) -> None:
        """Count a claim no more."""
        if claim.start < claim.end:
            self._held -= 1
            self._whole -= claim.whole
            if not claim.running:
                self._plan(claim, -1)
        if claim.running:
            self._ended += 1
            self._cpus_back += claim.cpus
            self._memory_back += claim.memory_mib
            self._gpus_back += self._gpus(claim)

    def _plan(self, claim: Claimed, times: int) -> None:
        self._cpus_due += times * claim.cpus
        self._memory_due += times * claim.memory_mib
        self._gpus_due += times * self._gpus(claim)

    def _gpus(self, claim: Claimed) -> int:
        wanted = self._stock.gpu_type
        return claim.gpus if not wanted or claim.gpu_type in ("", wanted) else 0

    @property
    def is_shared(self) -> bool:
        """Whether others may have a part of the node."""
        return not self._whole and (self._ended > 0 or not self._full)

    def room(self, start: float, end: float) -> Room:
        """Say what is free. Jobs that this user may not see end at no time that anybody said."""
        node, stock = self._node, self._stock
        cpus = min(node.cpus - node.cpus_used + self._cpus_back, node.cpus)
        memory = min(node.memory_mib - node.memory_used_mib + self._memory_back, node.memory_mib)
        return Room(
            start=start,
            end=end,
            cpus=cpus - self._cpus_due,
            memory_mib=memory - self._memory_due,
            gpus=min(stock.free + self._gpus_back - self._gpus_due, stock.total),
            empty=not self._held and node.cpus_used <= self._cpus_back,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What one node's part of a job needs; `gpu_type` is the GRES type, "" where untyped."""

    cpus: int
    memory_mib: int
    gpus: int
    gpu_type: str
    whole: bool


@dataclass(frozen=True, order=True, slots=True)
class Window:
    """A time in which a node has room, in seconds from now; the end may be infinite."""

    start: float
    end: float


Windows = tuple[Window, ...]


class Timeline:
    """Every node's claims, read once from a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._now = snapshot.taken_at
        self._claims: dict[str, list[Claimed]] = {}
        self._rooms: dict[tuple[str, Stock], tuple[Room, ...]] = {}
        self._windows: dict[Share, dict[tuple[str, int, int], Windows]] = {}
        self.planned: set[str] = set()
        """Nodes on which Slurm has planned the start of a pending job."""
        for job in snapshot.jobs:
            self._add_job(job)
        for reservation in snapshot.reservations:
            if reservation.end > self._now:
                claim = Claimed(
                    start=max(0.0, self._seconds(reservation.start)),
                    end=self._seconds(reservation.end),
                    whole=True,
                )
                self._add(reservation.nodes, claim)

    def _add_job(self, job: QueuedJob) -> None:
        running = bool(job.nodes) and not job.state.is_pending
        nodes = job.nodes if running else job.planned_nodes
        if not nodes or (job.start is None and not running):
            return
        count = len(nodes)
        start = 0.0 if running else max(0.0, self._seconds(job.start or self._now))
        end = self._seconds(job.end) if job.end else FOREVER
        if running and end <= 0:
            end = FOREVER  # past its limit: about to end, but nobody knows when
        claim = Claimed(
            start=start,
            end=end,
            cpus=-(-job.cpus // count),
            memory_mib=-(-job.memory_mib // count),
            gpus=-(-job.gpus // count),
            gpu_type=job.gpu_type,
            running=running,
        )
        self._add(nodes, claim)
        if not running:
            self.planned.update(nodes)

    def _add(self, nodes: Iterable[str], claim: Claimed) -> None:
        for name in nodes:
            self._claims.setdefault(name, []).append(claim)

    def _seconds(self, moment: datetime) -> float:
        return (moment - self._now).total_seconds()

    def windows(self, node: Node, share: Share, total_gpus: int, free_gpus: int) -> Windows:
        """Return when the node has room for the share, in order.

        `total_gpus` and `free_gpus` are those of the share's type on this node, now. Partitions
        overlap, so the same is asked often: each answer is worked out once.
        """
        known = self._windows.setdefault(share, {})
        key = (node.name, total_gpus, free_gpus)
        if key not in known:
            stock = Stock(gpu_type=share.gpu_type, total=total_gpus, free=free_gpus)
            known[key] = tuple(_windows(self._rooms_of(node, stock), share))
        return known[key]

    def _rooms_of(self, node: Node, stock: Stock) -> tuple[Room, ...]:
        key = (node.name, stock)
        if key not in self._rooms:
            self._rooms[key] = tuple(rooms(node, self._claims.get(node.name, ()), stock))
        return self._rooms[key]


def _windows(free: Iterable[Room], share: Share) -> list[Window]:
    found: list[Window] = []
    for room in free:
        if not _fits(share, room):
            continue
        if found and found[-1].end == room.start:
            found[-1] = Window(found[-1].start, room.end)
        else:
            found.append(Window(room.start, room.end))
    return found


def _fits(share: Share, room: Room) -> bool:
    return (
        room.gpus >= share.gpus
        and room.cpus >= share.cpus
        and room.memory_mib >= share.memory_mib
        and (room.empty or not share.whole)
    )


def earliest(
    windows: Mapping[str, Sequence[Window]], nodes: int, walltime: timedelta
) -> float | None:
    """Return the first moment at which so many nodes have the whole walltime; None for never."""
    length = walltime.total_seconds()
    events: list[tuple[float, int]] = []
    for spans in windows.values():
        for window in spans:
            if window.end - window.start >= length:
                events.append((window.start, 1))
                events.append((window.end - length, -1))
    # At one moment arrivals count before departures: a window of just the length is enough.
    open_nodes = 0
    for moment, change in sorted(events, key=lambda event: (event[0], -event[1])):
        open_nodes += change
        if open_nodes >= nodes:
            return moment
    return None


def backfill_window(windows: Mapping[str, Sequence[Window]], nodes: int) -> float:
    """Return for how long so many nodes have room from now on, in seconds; 0 where they have not.

    Infinite where nothing is planned on enough of them.
    """
    ends = sorted((s[0].end for s in windows.values() if s and s[0].start <= 0), reverse=True)
    return ends[nodes - 1] if len(ends) >= nodes else 0.0


NodeWindows = Mapping[str, Sequence[Window]]
_LONGEST: Final = timedelta(days=3650).total_seconds()


class Forecast:
    """Windows and waiting lines of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._timeline = Timeline(snapshot)
        self._unplanned = _unplanned(snapshot)

    def windows(self, pool: Pool, layout: Layout, wanted: Needs) -> NodeWindows:
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
        self,
        windows: NodeWindows,
        pool: Pool,
        layout: Layout,
        walltime: timedelta,
        *,
        has_room: bool,
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
        hole = backfill_window(windows, layout.nodes)
        window = None if hole == FOREVER else timedelta(seconds=int(hole))
        return Estimate(source=Source.BACKFILL_WINDOW, start_in=timedelta(0), window=window)

    def _has_enough(self, pool: Pool, windows: NodeWindows, layout: Layout) -> bool:
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


def free_now(windows: NodeWindows) -> frozenset[str]:
    """Name the nodes with room at this moment."""
    return frozenset(name for name, spans in windows.items() if spans and spans[0].start <= 0)


def free_first(slots: tuple[Slot, ...], free: frozenset[str]) -> tuple[str, ...]:
    """Name the nodes, those free now first, then by Slurm's weight and by name."""

    def key(node: Node) -> tuple[bool, int, str]:
        return (node.name not in free, node.weight, node.name)

    return tuple(node.name for node in sorted((slot.node for slot in slots), key=key))
