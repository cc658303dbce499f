"""What commands show beside a plan: a cluster's GPUs, costs by model, changes that start now."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf
from typing import Final

from rv.errors import RvError
from rv.models.explanation import Change, QueuePlace, WaitingJob
from rv.models.plan import Plan, PoolView, Source, Strategy
from rv.models.quantities import short_duration
from rv.models.request import Request
from rv.models.site import Site
from rv.models.snapshot import Node, Partition, QueuedJob, Snapshot
from rv.planner.access import Access
from rv.planner.catalogue import Catalogue
from rv.planner.eligibility import offer
from rv.planner.families import Family
from rv.planner.inventory import Pool, discover, told_apart
from rv.planner.limits import Infeasible, Owner
from rv.planner.planning import plan


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
    except Infeasible as unfit:
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


def cheapest(plan: Plan, request: Request) -> tuple[Strategy, ...]:
    """Return the cheapest strategy of each model, cheapest model first, unpriced ones last.

    The whole time counts before a part of it, and of strategies that cost alike the one that the
    plan ranks first. Segments are for commands that can resume only.
    """
    best: dict[str, Strategy] = {}
    for strategy in plan.strategies:
        if strategy.segments > 1 and not request.checkpoint:
            continue
        known = best.setdefault(strategy.gpu, strategy)
        if _order(strategy) < _order(known):
            best[strategy.gpu] = strategy
    return tuple(sorted(best.values(), key=_price))


def _order(strategy: Strategy) -> tuple[bool, float]:
    return strategy.shortened, _price(strategy)


def _price(strategy: Strategy) -> float:
    return inf if strategy.cost is None else strategy.cost


_NOT_YET: Final = frozenset(
    {"BeginTime", "Dependency", "DependencyNeverSatisfied", "JobHeldAdmin", "JobHeldUser"}
)


def queue_place(
    job_id: int, partition: str, waiting: Iterable[WaitingJob], own: Collection[int]
) -> QueuePlace | None:
    """Return the place by priority, then by age; None for a job that is held, or not waiting.

    `own` are the jobs of the same race, which are no rivals. Those that may not start yet, whatever
    is free, are not in the line.
    """
    line = [
        job
        for job in waiting
        if partition in job.partitions
        and (job.job_id == job_id or job.job_id not in own)
        and job.priority
        and job.reason not in _NOT_YET
    ]
    order = [job.job_id for job in sorted(line, key=lambda job: (-job.priority, job.job_id))]
    if job_id not in order:
        return None
    return QueuePlace(partition=partition, place=order.index(job_id) + 1, waiting=len(order))


_MINUTES: Final = (
    10, 15, 20, 30, 40, 50, 60, 75, 90, 120, 150, 180, 240, 300, 360, 480, 600, 720, 960, 1200,
    1440, 2160, 2880, 4320, 5760, 7200, 10080,
)  # fmt: skip
"""Walltimes that a person would try, in minutes."""

_NOW: Final = frozenset({Source.IDLE, Source.BACKFILL_WINDOW})


@dataclass(frozen=True, kw_only=True, slots=True)
class Planner:
    """Plans requests on one cluster."""

    snapshot: Snapshot
    catalogue: Catalogue
    families: Sequence[Family]
    site: Site

    def starts_now(self, request: Request) -> Strategy | None:
        """Return the best strategy that would start at once, None where none would.

        In segments only what can resume may start.
        """
        try:
            made = plan(request, self.snapshot, self.catalogue, self.families, self.site)
        except RvError:  # a change may ask for what is not here at all
            return None
        may = (s for s in made.strategies if request.checkpoint or s.segments == 1)
        return next((s for s in may if s.estimate.source in _NOW), None)


def changes(request: Request, planner: Planner) -> Iterator[Change]:
    """Yield the changes, each of one thing and as small as it can be, that would start now."""
    yield from _shorter(request, planner)
    yield from _elsewhere(request, planner)
    yield from _fewer(request, planner)
    if request.command and not request.checkpoint:
        found = planner.starts_now(replace(request, checkpoint=True))
        if found:
            yield Change(options="--checkpoint", strategy=found)
    if request.gpus == 1 and not request.mig:
        slices = replace(request, mig=True, types=(), min_vram_mib=None)
        if found := planner.starts_now(slices):
            yield Change(options="--mig", strategy=found)


def _shorter(request: Request, planner: Planner) -> Iterator[Change]:
    """Look for the longest walltime that starts: if one does, every shorter one does."""
    times = [timedelta(minutes=m) for m in _MINUTES if timedelta(minutes=m) < request.walltime]
    best: Change | None = None
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2 if best else 0
        asked = replace(request, walltime=times[middle], walltime_given=True)
        found = planner.starts_now(asked)
        if found:
            options = f"--time {short_duration(times[middle])}"
            best, low = Change(options=options, strategy=found), middle + 1
        elif not best:
            return
        else:
            high = middle
    if best:
        yield best


def _elsewhere(request: Request, planner: Planner) -> Iterator[Change]:
    if request.types or request.min_vram_mib:
        found = planner.starts_now(replace(request, types=(), min_vram_mib=None))
        if found:
            without = " without --vram" if request.min_vram_mib else ""
            yield Change(options=f"--type {found.gpu}{without}", strategy=found)
    if request.partitions:
        found = planner.starts_now(replace(request, partitions=()))
        if found:
            yield Change(options=f"-p {found.partition}", strategy=found)
    if request.max_cost is not None:
        found = planner.starts_now(replace(request, max_cost=None))
        if found:
            cost = "no --max-cost" if found.cost is None else f"--max-cost {found.cost:.2f}"
            yield Change(options=cost, strategy=found)


def _fewer(request: Request, planner: Planner) -> Iterator[Change]:
    counts = {request.gpus - 1}
    half = request.gpus // 2
    while half:
        counts.add(half)
        half //= 2
    for count in sorted(counts - {0, -1}, reverse=True):
        found = planner.starts_now(replace(request, gpus=count))
        if found:
            yield Change(options=f"--gpu {count}", strategy=found)
            return


def without_jobs(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """Return the cluster as it would be without the user's jobs of these names."""
    mine: list[QueuedJob] = []
    others: list[QueuedJob] = []
    for job in snapshot.jobs:
        is_mine = job.name in names and job.user == snapshot.user
        (mine if is_mine else others).append(job)
    planned = {name for job in mine for name in job.planned_nodes}
    planned -= {name for job in others for name in job.planned_nodes}
    nodes = (_unplanned(node) if node.name in planned else node for node in snapshot.nodes)
    return replace(snapshot, jobs=tuple(others), nodes=tuple(nodes))


def _unplanned(node: Node) -> Node:
    return replace(node, states=node.states - {"PLANNED"})
