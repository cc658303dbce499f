"""Whether a job could start now, from what the snapshot says is free. Never a guess."""

from rv.models.plan import STARTS_NOW, UNKNOWN_START, Estimate
from rv.models.snapshot import Reservation, Snapshot
from rv.planner.layouts import Layout
from rv.planner.needs import Needs
from rv.planner.nodes import is_open
from rv.planner.pools import Pool, Slot


def free_first(slots: tuple[Slot, ...], free: frozenset[str]) -> tuple[str, ...]:
    """Name the nodes, those free now first, then by Slurm's weight and by name."""
    order = sorted(
        slots, key=lambda slot: (slot.node.name not in free, slot.node.weight, slot.node.name)
    )
    return tuple(slot.node.name for slot in order)


def free_nodes(
    pool: Pool, layout: Layout, wanted: Needs, reserved: frozenset[str]
) -> frozenset[str]:
    """Name the nodes on which one node's part of the job would fit now."""
    whole = pool.partition.exclusive
    return frozenset(
        slot.node.name
        for slot in wanted.slots
        if is_open(slot.node)
        and slot.free >= layout.gpus_per_node
        and slot.node.cpus - slot.node.cpus_used >= wanted.cpus
        and slot.node.memory_mib - slot.node.memory_used_mib >= wanted.memory_mib
        and not (whole and slot.node.cpus_used)
        and slot.node.name not in reserved
    )


def estimate(free: frozenset[str], layout: Layout, *, has_room: bool) -> Estimate:
    """Return `idle` where enough nodes are free and the limits leave room, else unknown."""
    return STARTS_NOW if has_room and len(free) >= layout.nodes else UNKNOWN_START


class Reserved:
    """The nodes that a reservation takes within a job's time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._now = snapshot.taken_at
        self._reservations = [r for r in snapshot.reservations if r.end > snapshot.taken_at]

    def during(self, seconds: float) -> frozenset[str]:
        """Name the nodes reserved at some moment from now to so many seconds from now."""
        return frozenset(
            name for r in self._reservations if self._begins(r) < seconds for name in r.nodes
        )

    def _begins(self, reservation: Reservation) -> float:
        return (reservation.start - self._now).total_seconds()
