"""When nodes are free: from running jobs' ends, planned starts with their nodes, and reservations.

A job starts in the first window of its whole walltime on enough nodes at once. On Slurm 22.05 and
24.11 "now + walltime at or before the planned start of the job behind the hole" was right 24 times
of 24, with jobs that started at +30 s of slack and waited at -10 s.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Final

from rv.models.snapshot import Node, QueuedJob, Snapshot

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


class Timeline:
    """Every node's claims, read once from a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._now = snapshot.taken_at
        self._claims: dict[str, list[Claimed]] = {}
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

    def windows(self, node: Node, share: Share, total_gpus: int, free_gpus: int) -> list[Window]:
        """Return when the node has room for the share, in order.

        `total_gpus` and `free_gpus` are those of the share's type on this node, now.
        """
        claims = self._claims.get(node.name, ())
        moments = sorted({0.0, *(c.start for c in claims), *(c.end for c in claims)} - {FOREVER})
        found: list[Window] = []
        for at, begin in enumerate(moments):
            end = moments[at + 1] if at + 1 < len(moments) else FOREVER
            if begin < 0 or not self._fits(node, share, claims, begin, total_gpus, free_gpus):
                continue
            if found and found[-1].end == begin:
                found[-1] = Window(found[-1].start, end)
            else:
                found.append(Window(begin, end))
        return found

    @staticmethod
    def _fits(
        node: Node,
        share: Share,
        claims: Sequence[Claimed],
        moment: float,
        total_gpus: int,
        free_gpus: int,
    ) -> bool:
        """Whether the share fits at a moment: what is free now, plus what has ended, less plans."""
        held = [c for c in claims if c.start <= moment < c.end]
        ended = [c for c in claims if c.running and c.end <= moment]
        planned = [c for c in held if not c.running]
        # Jobs that this user may not see end at no time that anybody said.
        unseen = node.cpus_used - sum(c.cpus for c in ended) - sum(c.cpus for c in held)
        if any(c.whole for c in held) or (share.whole and (held or unseen > 0)):
            return False
        if (not ended and _is_full(node)) or _is_planned_unseen(node, claims):
            return False
        gpus = free_gpus + _gpus(ended, share.gpu_type) - _gpus(planned, share.gpu_type)
        cpus = node.cpus - node.cpus_used + sum(c.cpus for c in ended)
        memory = node.memory_mib - node.memory_used_mib + sum(c.memory_mib for c in ended)
        return (
            min(gpus, total_gpus) >= share.gpus
            and min(cpus, node.cpus) - sum(c.cpus for c in planned) >= share.cpus
            and min(memory, node.memory_mib) - sum(c.memory_mib for c in planned)
            >= share.memory_mib
        )


def _is_full(node: Node) -> bool:
    return "ALLOCATED" in node.states


def _is_planned_unseen(node: Node, claims: Sequence[Claimed]) -> bool:
    """Slurm plans a job there that this user may not see."""
    return "PLANNED" in node.states and all(c.running or c.whole for c in claims)


def _gpus(claims: Iterable[Claimed], gpu_type: str) -> int:
    return sum(c.gpus for c in claims if not gpu_type or not c.gpu_type or c.gpu_type == gpu_type)


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
