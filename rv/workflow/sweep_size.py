"""How many workers a sweep sends where, within what the site allows. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rv.dataclass import dataclass
from rv.models.plan import Plan, Strategy, Submission
from rv.models.site import Ceiling, Site
from rv.models.snapshot import Node, Snapshot
from rv.models.sweep import Sweep

_KEPT: Final = 1
"""Jobs that MaxSubmit leaves free: a worker that ends sends the next before it has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sized:
    """A plan whose submissions are arrays of workers, and the limits that were considered."""

    plan: Plan
    workers: Mapping[int, int]
    limits: tuple[str, ...]


def with_arrays(plan: Plan, sweep: Sweep, snapshot: Snapshot, site: Site) -> Sized:
    """Make arrays of a plan's submissions: workers by number, none beyond what a limit allows."""
    nodes = {node.name: node for node in snapshot.nodes}
    jobs = _filling_nodes(plan.submissions, sweep, snapshot, nodes)
    fitting = {job.number: _fitting(job, sweep, nodes) for job in jobs}
    longest = snapshot.config.max_array_size - 1
    wanted = {job.number: min(_wanted(job, sweep), fitting[job.number], longest) for job in jobs}
    workers = _shared_out(wanted, plan.room, site.max_fanout)
    workers |= {spare.number: workers.get(spare.instead_of, 0) for spare in plan.spares}
    waves = [tuple(number for number in wave if workers[number]) for wave in plan.waves]
    return Sized(
        plan=replace(
            plan,
            submissions=_arrays(jobs, workers, sweep),
            spares=_arrays(plan.spares, workers, sweep),
            waves=tuple(filter(None, waves)),
        ),
        workers=workers,
        limits=tuple(_limits(plan, sweep, fitting, longest, site)),
    )


def _filling_nodes(
    jobs: Sequence[Submission], sweep: Sweep, snapshot: Snapshot, nodes: Mapping[str, Node]
) -> list[Submission]:
    exclusive = {each.name for each in snapshot.partitions if each.exclusive}
    return [_with_slots(job, sweep, nodes, exclusive) for job in jobs]


def _arrays(
    jobs: Sequence[Submission], workers: Mapping[int, int], sweep: Sweep
) -> tuple[Submission, ...]:
    return tuple(_array(job, workers, sweep) for job in jobs if workers[job.number])


def _wanted(job: Submission, sweep: Sweep) -> int:
    """Count the workers that would have a task at once."""
    most = min(sweep.tasks, sweep.most_running or sweep.tasks)
    return -(-most // job.slots)


def _with_slots(
    job: Submission, sweep: Sweep, nodes: Mapping[str, Node], exclusive: set[str]
) -> Submission:
    """Give a job that gets whole nodes as many tasks at a time as have room on each of them."""
    if not all(part.partition in exclusive for part in job.strategies):
        return job
    on_nodes = [nodes[name] for part in job.strategies for name in part.node_names if name in nodes]
    slots = min((_slots(job.strategy, sweep, node) for node in on_nodes), default=1)
    if slots < 2:
        return job
    memory_mib = job.strategy.memory_mib * slots
    if job.merged:
        form = replace(job.merged.form, memory_mib=memory_mib)
        return replace(job, slots=slots, merged=replace(job.merged, form=form))
    whole = replace(job.strategies[0], memory_mib=memory_mib)
    return replace(job, slots=slots, strategies=(whole,))


def _slots(strategy: Strategy, sweep: Sweep, node: Node) -> int:
    """Count the tasks that a node has room for at a time."""
    if sweep.gpus:
        rooms = [sum(group.total for group in node.gpus) // sweep.gpus]
    else:
        rooms = [node.cpus // max(1, strategy.cpus_per_task)]
    if strategy.memory_mib:
        rooms.append(node.memory_mib // strategy.memory_mib)
    return max(1, min(rooms))


def _fitting(job: Submission, sweep: Sweep, nodes: Mapping[str, Node]) -> int:
    """Count the workers that the nodes of a job could run at a time, were they empty."""
    names = dict.fromkeys(name for part in job.strategies for name in part.node_names)
    one = job.strategies[0]
    fits = (_slots(one, sweep, nodes[n]) if job.slots == 1 else 1 for n in names if n in nodes)
    return max(1, sum(fits))


def _shared_out(
    wanted: Mapping[int, int],
    room: Mapping[int, tuple[tuple[str, int], ...]],
    ceiling: Ceiling | None,
) -> dict[int, int]:
    """Give each array a worker in turn, the best first, until it has what it wants or can have."""
    workers = dict.fromkeys(wanted, 0)
    taken: Counter[str] = Counter()
    while True:
        before = sum(workers.values())
        for number in wanted:
            is_full = any(taken[name] >= _usable(left) for name, left in room.get(number, ()))
            is_capped = ceiling is not None and sum(workers.values()) >= ceiling.jobs
            if workers[number] < wanted[number] and not is_full and not is_capped:
                workers[number] += 1
                taken.update(name for name, _ in room.get(number, ()))
        if sum(workers.values()) == before:
            return workers


def _usable(left: int) -> int:
    return left - _KEPT if left > _KEPT else left


def _array(job: Submission, workers: Mapping[int, int], sweep: Sweep) -> Submission:
    """Make a submission an array; where its workers run one task each, Slurm counts them too."""
    most = -(-sweep.most_running // job.slots) if sweep.most_running else 0
    throttle = f"%{most}" if 0 < most < workers[job.number] else ""
    option = ("array", f"1-{workers[job.number]}{throttle}")
    if job.merged:
        form = replace(job.merged.form, extra=(*job.merged.form.extra, option))
        return replace(job, merged=replace(job.merged, form=form))
    (one,) = job.strategies
    return replace(job, strategies=(replace(one, extra=(*one.extra, option)),))


def _limits(
    plan: Plan, sweep: Sweep, fitting: Mapping[int, int], longest: int, site: Site
) -> Iterable[str]:
    """Say what bounds the number of workers."""
    yield f"{sweep.tasks} tasks"
    if sweep.most_running:
        yield f"{sweep.most_running} at a time (--max)"
    yield f"MaxArraySize: {longest} workers an array"
    for number, count in fitting.items():
        yield f"job {number}: its nodes have room for {count} workers"
    rooms = {name: left for of_job in plan.room.values() for name, left in of_job}
    for name, left in sorted(rooms.items()):
        yield f"MaxSubmit of {name}: {left} more jobs, of which one is kept free"
    if site.max_fanout:
        yield f"max_fanout: {site.max_fanout.jobs} jobs ({site.max_fanout.origin})"
