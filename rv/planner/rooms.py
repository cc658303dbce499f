"""What one node has free from moment to moment: one sweep over the claims on it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Final

from rv.models.snapshot import Node

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
