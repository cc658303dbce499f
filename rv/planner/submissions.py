"""Rank strategies, and compile them into the jobs of a race, in waves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf

from rv.models.plan import Source, Strategy, Submission
from rv.models.quantities import short_memory
from rv.models.request import DEFAULT_MAX_SUBMISSIONS, Fanout, Request
from rv.models.site import Site
from rv.models.snapshot import Partition
from rv.planner.limits import Owner, Usage, Whose, submit_room
from rv.planner.merge import Merger


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """What of a partition decides who is served first on nodes that several share."""

    tier: int = 1
    job_factor: int = 1
    whole_nodes: bool = False


def queues(partitions: Iterable[Partition]) -> dict[str, Queue]:
    """Return the queue of each partition, by its name."""
    return {
        partition.name: Queue(
            tier=partition.priority_tier,
            job_factor=partition.priority_job_factor,
            whole_nodes=partition.exclusive,
        )
        for partition in partitions
    }


def rank(
    strategies: Iterable[Strategy],
    quality: Mapping[str, int],
    lines: Mapping[str, Queue],
    owners: Mapping[str, tuple[Owner, ...]],
) -> tuple[Strategy, ...]:
    """Return the strategies best first, covered ones marked.

    By expected start (known before unknown), the whole time in one job before parts of it, cost
    (priced before unpriced), fewer nodes, better model, what nobody preempts, the queue served
    first, and then by name, so that the order depends on nothing but the values. `lines` are the
    partitions' queues, `owners` those of limits by strategy.
    """

    def key(strategy: Strategy) -> tuple[object, ...]:
        start = strategy.estimate.start_in
        line = lines[strategy.partition]
        return (
            inf if start is None else start.total_seconds(),
            strategy.shortened or strategy.segments > 1,
            strategy.cost is None,
            strategy.cost or 0.0,
            strategy.nodes,
            -quality.get(strategy.gpu, 0),
            strategy.preemptible,
            (-line.tier, -line.job_factor, line.whole_nodes),
            (-len(strategy.node_names), len(owners.get(strategy.id, ()))),
            strategy.partition,
            strategy.id,
        )

    return _covered(sorted(strategies, key=key), lines, owners)


def _covered(
    ranked: list[Strategy], lines: Mapping[str, Queue], owners: Mapping[str, tuple[Owner, ...]]
) -> tuple[Strategy, ...]:
    kept: dict[tuple[str, int, int, str], list[Strategy]] = {}
    found = []
    for strategy in ranked:
        kind = (strategy.gpu, strategy.nodes, strategy.gpus_per_node, strategy.mode.value)
        rivals = kept.setdefault(kind, [])
        for better in rivals:
            if _is_as_safe_and_cheap(better, strategy) and (
                _starts_no_later(better, strategy)
                or _is_served_first(better, strategy, lines, owners)
            ):
                found.append(replace(strategy, covered_by=better.id))
                break
        else:
            rivals.append(strategy)
            found.append(strategy)
    return tuple(found)


def _is_as_safe_and_cheap(better: Strategy, other: Strategy) -> bool:
    if (better.preemptible and not other.preemptible) or better.walltime < other.walltime:
        return False
    if better.cost is None or other.cost is None:
        return better.cost is other.cost
    return better.cost <= other.cost


def _starts_no_later(better: Strategy, other: Strategy) -> bool:
    """Whether one starts now and the other's start is known; what is unknown compares with nothing.

    A later start is no more than a bound: jobs end before their limits, here or there.
    """
    return better.estimate.start_in == timedelta(0) and other.estimate.start_in is not None


def _is_served_first(
    better: Strategy,
    other: Strategy,
    lines: Mapping[str, Queue],
    owners: Mapping[str, tuple[Owner, ...]],
) -> bool:
    """Whether one waits for the same nodes in a queue that is served no later, under no limit more.

    Then its start is no later either, whenever that is: overlapping partitions are one way.
    """
    mine, theirs = lines[better.partition], lines[other.partition]
    return (
        mine.tier >= theirs.tier
        and mine.job_factor >= theirs.job_factor
        and mine.whole_nodes <= theirs.whole_nodes
        and better.walltime == other.walltime
        and better.memory_mib <= other.memory_mib
        and better.cpus_per_task <= other.cpus_per_task
        and set(other.node_names) <= set(better.node_names)
        and set(owners.get(better.id, ())) <= set(owners.get(other.id, ()))
    )


_Room = dict[tuple[str, Whose], int | None]
"""How many more jobs each owner of limits takes. An association and its account have one name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """The jobs, their waves, and what the user should know of those that were left out."""

    submissions: tuple[Submission, ...]
    waves: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]
    spares: tuple[Submission, ...]


def compile_jobs(
    ranked: tuple[Strategy, ...],
    request: Request,
    owners: Mapping[str, tuple[Owner, ...]],
    usage: Usage,
    merger: Merger,
) -> Compiled:
    """Choose the strategies to submit, in rank order, within the cap and the MaxSubmit headroom.

    A strategy that a job chosen before can carry takes no room but that of owners which are new to
    the job. `owners` holds the owners of limits of each strategy, by its id.
    """
    each = request.fanout is Fanout.EACH
    left: _Room = {}
    chosen: list[list[Strategy]] = []
    beyond = in_segments = 0
    full: dict[str, int] = {}
    blocked: set[str] = set()
    for strategy in ranked:
        if strategy.covered_by and strategy.covered_by not in blocked and not each:
            continue
        if strategy.segments > 1 and not request.checkpoint:
            in_segments += 1
            continue
        carrying = [] if each else _carrying(chosen, strategy, merger)
        known = {owner for part in carrying for owner in owners.get(part.id, ())}
        order = tuple(owner for owner in owners.get(strategy.id, ()) if owner not in known)
        blocking = _take(order, left, usage)
        if blocking:
            blocked.add(strategy.id)
            full[blocking] = full.get(blocking, 0) + 1
        elif not carrying and len(chosen) >= request.max_submissions:
            beyond += 1
        else:
            _book(order, left)
            carrying.append(strategy)
            if len(carrying) == 1:
                chosen.append(carrying)
    jobs = tuple(_submission(n, parts, merger) for n, parts in enumerate(chosen, 1))
    return Compiled(
        submissions=jobs,
        spares=_spares(jobs, request.max_submissions),
        waves=_waves(jobs, each=each),
        notes=(
            *_memory_notes(jobs),
            *_notes(beyond, full, request.max_submissions),
            *_unasked(in_segments),
        ),
    )


def _carrying(chosen: list[list[Strategy]], strategy: Strategy, merger: Merger) -> list[Strategy]:
    """Return the job that can carry a strategy too, a new one where none can.

    What is idle may so go with the first job, before a cheaper one that waits for the second wave:
    where the best is taken meanwhile, the next start counts more than the price.
    """
    return next((job for job in chosen if merger.can_join(job, strategy)), [])


def _submission(number: int, parts: list[Strategy], merger: Merger) -> Submission:
    merged = merger.merged(parts) if len(parts) > 1 else None
    return Submission(number=number, strategies=tuple(parts), merged=merged)


def _spares(jobs: tuple[Submission, ...], cap: int) -> tuple[Submission, ...]:
    """Make jobs of the parts of merged ones, so many that the cap holds whichever are refused."""
    room = cap - len(jobs)
    parts: list[tuple[int, Strategy]] = []
    for job in (job for job in jobs if job.merged):
        sent = job.strategies[: 1 + room]
        room -= len(sent) - 1
        parts.extend((job.number, part) for part in sent)
    return tuple(
        Submission(number=number, strategies=(part,), instead_of=whole)
        for number, (whole, part) in enumerate(parts, len(jobs) + 1)
    )


def _take(order: tuple[Owner, ...], left: _Room, usage: Usage) -> str:
    """Name the owner that has no room for another job; "" where all have."""
    for owner in order:
        room = left.setdefault((owner.name, owner.group), submit_room(owner, usage))
        if room == 0:
            return owner.name
    return ""


def _book(order: tuple[Owner, ...], left: _Room) -> None:
    for key in {(owner.name, owner.group) for owner in order}:
        room = left[key]
        if room is not None:
            left[key] = room - 1


def _waves(jobs: tuple[Submission, ...], *, each: bool) -> tuple[tuple[int, ...], ...]:
    numbers = tuple(job.number for job in jobs)
    if not numbers:
        return ()
    idle = jobs[0].strategies[0].estimate.source is Source.IDLE
    if each or not idle or len(numbers) == 1:
        return (numbers,)
    return (numbers[:1], numbers[1:])


def _memory_notes(jobs: tuple[Submission, ...]) -> tuple[str, ...]:
    return tuple(
        f"job {job.number} asks for {short_memory(job.strategy.memory_mib)} of memory a node, the"
        " least of its strategies"
        for job in jobs
        if any(part.memory_mib != job.strategy.memory_mib for part in job.strategies)
    )


def _unasked(in_segments: int) -> tuple[str, ...]:
    if not in_segments:
        return ()
    plural = "strategy is" if in_segments == 1 else "strategies are"
    why = "add --checkpoint for a command that can resume"
    return (f"{in_segments} checkpoint {plural} not submitted: {why}",)


def _notes(beyond: int, full: Mapping[str, int], cap: int) -> tuple[str, ...]:
    notes = []
    if beyond:
        plural = "strategy is" if beyond == 1 else "strategies are"
        notes.append(f"{beyond} {plural} not submitted: a race has at most {cap} jobs")
    for owner, count in sorted(full.items()):
        plural = "strategy is" if count == 1 else "strategies are"
        notes.append(
            f"{count} {plural} not submitted: {owner} has no room for more jobs (MaxSubmit)"
        )
    return tuple(notes)


def capped(request: Request, site: Site) -> tuple[Request, tuple[str, ...]]:
    """Bring the request under the site's `max_fanout`, with a note where the user asked for more.

    The number that rv would use by itself is lowered without a word.
    """
    ceiling, asked = site.max_fanout, request.max_submissions
    if ceiling is None or asked <= ceiling.jobs:
        return request, ()
    within = replace(request, max_submissions=ceiling.jobs)
    if asked == DEFAULT_MAX_SUBMISSIONS:
        return within, ()
    jobs = "one job" if ceiling.jobs == 1 else f"{ceiling.jobs} jobs"
    return within, (f"max_fanout allows {jobs} a race ({ceiling.origin}), {asked} asked",)
