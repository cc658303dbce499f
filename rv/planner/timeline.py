"""When nodes are free: from running jobs' ends, planned starts with their nodes, and reservations.

A job starts in the first window of its whole walltime on enough nodes at once. On Slurm 22.05 and
24.11 "now + walltime at or before the planned start of the job behind the hole" was right 24 times
of 24, with jobs that started at +30 s of slack and waited at -10 s.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rv.models.snapshot import Node, QueuedJob, Snapshot
from rv.planner.rooms import FOREVER, Claimed, Room, Stock, rooms


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


def hole_now(windows: Mapping[str, Sequence[Window]], nodes: int) -> float:
    """Return for how long so many nodes have room from now on, in seconds; 0 where they have not.

    Infinite where nothing is planned on enough of them.
    """
    ends = sorted((s[0].end for s in windows.values() if s and s[0].start <= 0), reverse=True)
    return ends[nodes - 1] if len(ends) >= nodes else 0.0
