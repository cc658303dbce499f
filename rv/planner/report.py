"""What commands show beside a plan: a cluster's GPUs, costs by model, changes that start now."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import repeat
from math import inf
from typing import Final

from rv.dataclass import dataclass
from rv.errors import RvError
from rv.models.explanation import Change, QueuePlace
from rv.models.job import WaitingJob
from rv.models.performance import Source
from rv.models.plan import NodeShare, Plan, PoolView, Strategy
from rv.models.quantities import short_duration
from rv.models.request import Request
from rv.models.site import Site
from rv.models.snapshot import Node, Partition, QueuedJob, Snapshot
from rv.planner.access import Access
from rv.planner.catalogue import Catalogue, Family
from rv.planner.eligibility import node_filter
from rv.planner.inventory import Pool, Slot, gpu_pools
from rv.planner.limits import Infeasible, Sources, Usage, gpu_limits, gpus_a_job, gpus_left
from rv.planner.planning import plan

_NOT_YET: Final = frozenset(
    {"BeginTime", "Dependency", "DependencyNeverSatisfied", "JobHeldAdmin", "JobHeldUser"}
)
_MINUTES: Final = (
    10, 15, 20, 30, 40, 50, 60, 75, 90, 120, 150, 180, 240, 300, 360, 480, 600, 720, 960, 1200,
    1440, 2160, 2880, 4320, 5760, 7200, 10080,
)  # fmt: skip
"""Walltimes that a person would try, in minutes."""

_NOW: Final = frozenset({Source.IDLE, Source.BACKFILL_WINDOW})


def overview(snapshot: Snapshot, catalogue: Catalogue) -> tuple[PoolView, ...]:
    """Return every pool of GPUs, those with the most free first."""
    nodes = {node.name: node for node in snapshot.nodes}
    eligible = node_filter(Request(), snapshot)
    distinct, ambiguous = gpu_pools(snapshot.partitions, nodes, catalogue, eligible)
    access, usage = Access(snapshot), Usage(snapshot)
    waiting: dict[str, list[QueuedJob]] = {}
    for job in snapshot.jobs:
        for name in job.partition.split(",") if job.state.is_pending else ():
            waiting.setdefault(name, []).append(job)
    pools = (*distinct, *ambiguous)
    views = [_view(pool, access, usage, waiting.get(pool.partition.name, ())) for pool in pools]
    return tuple(sorted(views, key=lambda v: (bool(v.closed), -v.free, v.gpu, v.partition)))


def _view(pool: Pool, access: Access, usage: Usage, waiting: Sequence[QueuedJob]) -> PoolView:
    queued = [job for job in waiting if _asks_for(job, pool)]
    shares = tuple(map(_share, pool.slots, repeat(pool.gres_type)))
    sources, closed = _sources(pool.partition, access)
    return PoolView(
        gpu=pool.model.name,
        partition=pool.partition.name,
        free=sum(share.free for share in shares),
        total=sum(share.total for share in shares),
        largest=max((share.free for share in shares), default=0),
        lost=sum(share.lost for share in shares),
        waiting=len(waiting),
        queued=len(queued),
        queued_gpus=sum(job.gpus for job in queued),
        max_time=pool.partition.max_time,
        limits=tuple(dict.fromkeys(gpu_limits(sources, usage))),
        still_allowed=0 if closed else gpus_left(sources, usage, pool.gres_type),
        most_a_job=gpus_a_job(sources, pool.gres_type),
        closed=closed,
        shares=shares,
    )


def _asks_for(job: QueuedJob, pool: Pool) -> bool:
    """Whether a job wants GPUs of this pool's type, or of any; other jobs do not wait for them."""
    return job.gpus > 0 and (not job.gpu_type or pool.gres_type in ("", job.gpu_type))


def _share(slot: Slot, gres_type: str) -> NodeShare:
    return NodeShare(
        node=slot.node.name,
        gres_type=gres_type,
        total=slot.total,
        free=0 if slot.unusable else slot.free,
        lost=slot.total if slot.unusable else 0,
    )


def _sources(partition: Partition, access: Access) -> tuple[Sources, str]:
    """Return what limits the user's jobs in a partition, or why it is closed to the user."""
    try:
        access.check_partition(partition, Request())
        charges = access.charges(partition, Request())
    except Infeasible as infeasible:
        return (), infeasible.reason
    return charges[0].sources, ""


def cheapest(plan: Plan, request: Request) -> tuple[Strategy, ...]:
    """Return the cheapest strategy of each model, cheapest model first, unpriced ones last.

    The whole time counts before a part of it, and of strategies that cost alike the one that the
    plan ranks first. Segments are for commands that can resume only.
    """
    best: dict[str, Strategy] = {}
    for strategy in plan.strategies:
        if strategy.segments > 1 and not request.checkpoint:
            continue
        rival = best.setdefault(strategy.gpu, strategy)
        if (strategy.shortened, _price(strategy)) < (rival.shortened, _price(rival)):
            best[strategy.gpu] = strategy
    return tuple(sorted(best.values(), key=_price))


def _price(strategy: Strategy) -> float:
    return inf if strategy.cost is None else strategy.cost


def queue_place(
    job_id: int, partition: str, waiting: Iterable[WaitingJob], own: Collection[int]
) -> QueuePlace | None:
    """Return a job's place in its partition's queue, by priority, then by age.

    None for a job that is held, or not waiting. `own` are the jobs of the same race, which are no
    rivals. Those that may not start yet, whatever is free, are not counted.
    """
    queue = [job for job in waiting if partition in job.partitions and _may_start(job)]
    queue.sort(key=lambda job: (-job.priority, job.job_id))
    order = [job.job_id for job in queue]
    if job_id not in order:
        return None
    ahead = order[: order.index(job_id)]
    own_ahead = sum(job in own for job in ahead)
    own_others = sum(job in own for job in order if job != job_id)
    return QueuePlace(
        partition=partition,
        place=len(ahead) - own_ahead + 1,
        waiting=len(order) - own_others,
        behind_own=own_ahead > 0,
    )


def planned_behind_own(snapshot: Snapshot, own: Collection[int]) -> list[int]:
    """Return the jobs of a race that Slurm plans on a node after another of them has used it.

    That will not be: the race is over when the first of them has started.
    """
    plans = [job for job in snapshot.jobs if job.planned_nodes and job.job_id.isdecimal()]
    plans = [job for job in plans if int(job.job_id) in own]
    return [int(job.job_id) for job in plans if any(_follows(job, other) for other in plans)]


def _follows(job: QueuedJob, earlier: QueuedJob) -> bool:
    if job.start is None or earlier.end is None or earlier.end > job.start:
        return False
    return not set(earlier.planned_nodes).isdisjoint(job.planned_nodes)


def _may_start(job: WaitingJob) -> bool:
    return bool(job.priority) and job.reason not in _NOT_YET


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
        for strategy in made.strategies:
            allowed = request.checkpoint or strategy.segments == 1
            if allowed and strategy.estimate.source in _NOW:
                return strategy
        return None


def changes(request: Request, planner: Planner) -> Iterator[Change]:
    """Yield the changes, each of one thing and as small as it can be, that would start now."""
    yield from _shorter(request, planner)
    for changed, options in _relaxed(request):
        strategy = planner.starts_now(changed)
        if strategy:
            yield Change(options=options(strategy), strategy=strategy)
    yield from _fewer(request, planner)
    for changed, option in _other_kinds(request):
        strategy = planner.starts_now(changed)
        if strategy:
            yield Change(options=option, strategy=strategy)


def _shorter(request: Request, planner: Planner) -> Iterator[Change]:
    """Look for the longest walltime that starts: if one does, every shorter one does."""
    times = [timedelta(minutes=m) for m in _MINUTES if timedelta(minutes=m) < request.walltime]
    best: Change | None = None
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2 if best else 0
        asked = replace(request, walltime=times[middle], walltime_given=True)
        strategy = planner.starts_now(asked)
        if strategy:
            options = f"--time {short_duration(times[middle])}"
            best, low = Change(options=options, strategy=strategy), middle + 1
        elif not best:
            return
        else:
            high = middle
    if best:
        yield best


def _relaxed(request: Request) -> Iterator[tuple[Request, Callable[[Strategy], str]]]:
    """Yield the request without one of its wishes, and how to write what then starts."""
    if request.types or request.min_vram_mib:
        without = " without --vram" if request.min_vram_mib else ""
        any_type = replace(request, types=(), min_vram_mib=None)
        yield any_type, lambda strategy: f"--type {strategy.gpu}{without}"
    if request.partitions:
        yield replace(request, partitions=()), lambda strategy: f"-p {strategy.partition}"
    if request.max_cost is not None:
        yield replace(request, max_cost=None), _cost_option


def _cost_option(strategy: Strategy) -> str:
    return "no --max-cost" if strategy.cost is None else f"--max-cost {strategy.cost:.2f}"


def _fewer(request: Request, planner: Planner) -> Iterator[Change]:
    """Look for the most GPUs below those asked for: one fewer, else halves of it."""
    counts = {request.gpus - 1}
    half = request.gpus // 2
    while half:
        counts.add(half)
        half //= 2
    for count in sorted(counts - {0, -1}, reverse=True):
        strategy = planner.starts_now(replace(request, gpus=count))
        if strategy:
            yield Change(options=f"--gpu {count}", strategy=strategy)
            return


def _other_kinds(request: Request) -> Iterator[tuple[Request, str]]:
    if request.command and not request.checkpoint:
        yield replace(request, checkpoint=True), "--checkpoint"
    if request.gpus == 1 and not request.mig:
        yield replace(request, mig=True, types=(), min_vram_mib=None), "--mig"


def without_jobs(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """Return the cluster as it would be without the user's jobs of these names."""
    removed: list[QueuedJob] = []
    others: list[QueuedJob] = []
    for job in snapshot.jobs:
        is_removed = job.name in names and job.user == snapshot.user
        (removed if is_removed else others).append(job)
    freed = {name for job in removed for name in job.planned_nodes}
    freed -= {name for job in others for name in job.planned_nodes}
    nodes: list[Node] = []
    for node in snapshot.nodes:
        states = node.states - {"PLANNED"}
        nodes.append(replace(node, states=states) if node.name in freed else node)
    return replace(snapshot, jobs=tuple(others), nodes=tuple(nodes))
