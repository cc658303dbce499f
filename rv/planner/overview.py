"""What GPUs a cluster has, how many are free, and who waits for them."""

from rv.models.plan import PoolView
from rv.models.request import Request
from rv.models.snapshot import Partition, Snapshot
from rv.planner.access import Access
from rv.planner.catalogue import Catalogue
from rv.planner.discovery import discover
from rv.planner.limits import Owner
from rv.planner.nodes import offer
from rv.planner.pools import Pool, told_apart
from rv.planner.reasons import Unfit


def overview(snapshot: Snapshot, catalogue: Catalogue) -> tuple[PoolView, ...]:
    """Look at every pool of GPUs, those with the most free first."""
    nodes = {node.name: node for node in snapshot.nodes}
    found, mixed = told_apart(
        discover(snapshot.partitions, nodes, catalogue, offer(Request(), snapshot))
    )
    access = Access(snapshot)
    waiting = _waiting(snapshot)
    views = [_view(pool, access, waiting) for pool in (*found, *mixed)]
    return tuple(sorted(views, key=lambda v: (bool(v.closed), -v.free, v.gpu, v.partition)))


def _view(pool: Pool, access: Access, waiting: dict[str, int]) -> PoolView:
    usable = [slot for slot in pool.slots if not slot.lost]
    limits, closed = _limits(pool.partition, access)
    return PoolView(
        gpu=pool.model.name,
        partition=pool.partition.name,
        free=sum(slot.free for slot in usable),
        total=sum(slot.total for slot in pool.slots),
        largest=max((slot.free for slot in usable), default=0),
        lost=sum(slot.total for slot in pool.slots if slot.lost),
        waiting=waiting.get(pool.partition.name, 0),
        max_time=pool.partition.max_time,
        limits=limits,
        closed=closed,
    )


def _limits(partition: Partition, access: Access) -> tuple[tuple[str, ...], str]:
    try:
        access.check_partition(partition, Request())
        charges = access.charges(partition, Request())
    except Unfit as unfit:
        return (), unfit.reason
    return tuple(text for owner in charges[0].order for text in _gpu_limits(owner)), ""


def _gpu_limits(owner: Owner) -> list[str]:
    kinds = (("a job", owner.limits.per_job), ("a user", owner.limits.per_user))
    amounts = [(kind, dict(limit).get("gres/gpu")) for kind, limit in kinds]
    return [f"{count} {kind}" for kind, count in amounts if count is not None]


def _waiting(snapshot: Snapshot) -> dict[str, int]:
    counts: dict[str, int] = {}
    for job in snapshot.jobs:
        if job.state.is_pending:
            for name in job.partition.split(","):
                counts[name] = counts.get(name, 0) + 1
    return counts
