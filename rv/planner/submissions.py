"""Rank strategies, and compile them into the jobs of a race, in the order they are sent in."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from math import inf

from rv.dataclass import dataclass
from rv.models.performance import Source
from rv.models.plan import Strategy, Submission
from rv.models.quantities import short_memory
from rv.models.request import DEFAULT_MAX_SUBMISSIONS, Fanout, Request
from rv.models.site import Site
from rv.models.snapshot import Partition
from rv.planner.limits import CountedJobs, Sources, Usage, submissions_left
from rv.planner.merge import Merger

SourcesById = Mapping[str, Sources]
"""What limits the job of each strategy, by the strategy's id."""


def rank(
    strategies: Iterable[Strategy],
    quality: Mapping[str, int],
    partitions: Mapping[str, Partition],
    sources: SourcesById,
    first: Callable[[Strategy], tuple[object, ...]] = lambda _: (),
) -> tuple[Strategy, ...]:
    """Return the strategies best first; those that a better one makes needless are marked.

    By expected start (known before unknown), the whole time in one job before parts of it, cost
    (priced before unpriced), fewer nodes, better model, what is not preempted, the partition served
    first, and then by name, so that the order depends on nothing but the values. `quality` is by
    model, `partitions` by name. `first` gives what is to count before all of that.
    """

    def key(strategy: Strategy) -> tuple[object, ...]:
        start_in = strategy.estimate.start_in
        partition = partitions[strategy.partition]
        return (
            *first(strategy),
            inf if start_in is None else start_in.total_seconds(),
            strategy.shortened or strategy.segments > 1,
            strategy.cost is None,
            strategy.cost or 0.0,
            strategy.nodes,
            -quality.get(strategy.gpu, 0),
            strategy.preemptible,
            (-partition.priority_tier, -partition.priority_job_factor, partition.exclusive),
            (-len(strategy.node_names), len(sources.get(strategy.id, ()))),
            strategy.partition,
            strategy.id,
        )

    kept: dict[tuple[str, int, int, str], list[Strategy]] = {}
    marked: list[Strategy] = []
    for strategy in sorted(strategies, key=key):
        kind = (strategy.gpu, strategy.nodes, strategy.gpus_per_node, strategy.mode.value)
        rivals = kept.setdefault(kind, [])
        cover = next((r for r in rivals if _covers(r, strategy, partitions, sources)), None)
        if cover:
            marked.append(replace(strategy, covered_by=cover.id))
        else:
            rivals.append(strategy)
            marked.append(strategy)
    return tuple(marked)


def _covers(
    better: Strategy,
    other: Strategy,
    partitions: Mapping[str, Partition],
    sources: SourcesById,
) -> bool:
    """Whether a strategy makes another of its model, layout and mode needless."""
    if not _is_as_safe_and_cheap(better, other):
        return False
    # Unknown starts do not compare, and a later one is no more than a bound: jobs end before
    # their limits, here or there.
    if better.estimate.start_in == timedelta(0) and other.estimate.start_in is not None:
        return True
    if not _is_served_first(partitions[better.partition], partitions[other.partition]):
        return False
    limits, other_limits = (set(sources.get(one.id, ())) for one in (better, other))
    return limits <= other_limits and _takes_any_place_of(better, other)


def _is_as_safe_and_cheap(better: Strategy, other: Strategy) -> bool:
    if (better.preemptible and not other.preemptible) or better.walltime < other.walltime:
        return False
    if better.cost is None or other.cost is None:
        return better.cost is other.cost
    return better.cost <= other.cost


def _is_served_first(partition: Partition, other: Partition) -> bool:
    """Whether jobs in one partition are served no later than in another, on any part of a node."""
    return (
        partition.priority_tier >= other.priority_tier
        and partition.priority_job_factor >= other.priority_job_factor
        and partition.exclusive <= other.exclusive
    )


def _takes_any_place_of(better: Strategy, other: Strategy) -> bool:
    """Whether one fits wherever the other does: it then starts no later in an earlier queue."""
    return (
        better.walltime == other.walltime
        and better.memory_mib <= other.memory_mib
        and better.cpus_per_task <= other.cpus_per_task
        and set(other.node_names) <= set(better.node_names)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """The jobs, their waves, and notes on the strategies that are not submitted."""

    submissions: tuple[Submission, ...]
    waves: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]
    spares: tuple[Submission, ...]
    room: Mapping[int, tuple[tuple[str, int], ...]]
    moves: Mapping[int, tuple[int, ...]]


def compile_jobs(
    ranked: tuple[Strategy, ...],
    request: Request,
    sources: SourcesById,
    usage: Usage,
    merger: Merger,
) -> Compiled:
    """Choose the strategies to submit, in rank order, within the cap and the MaxSubmit headroom.

    A strategy that a job chosen before can carry takes no room but that of limit sources which are
    new to the job.
    """
    chosen = _ChosenJobs(request, sources, usage, merger)
    for strategy in ranked:
        chosen.consider(strategy)
    jobs = tuple(
        Submission(
            number=number,
            strategies=tuple(parts),
            merged=merger.merged(parts) if len(parts) > 1 else None,
        )
        for number, parts in enumerate(chosen.jobs, 1)
    )
    spares = _spares(jobs, request.max_submissions)
    moves, move_notes = _moves(request, jobs, spares)
    return Compiled(
        submissions=jobs,
        spares=spares,
        waves=_waves(jobs, all_at_once=chosen.all_at_once),
        notes=(*_memory_notes(jobs), *chosen.notes(), *move_notes),
        room={job.number: _room(job, sources, usage) for job in jobs},
        moves=moves,
    )


def _moves(
    request: Request, jobs: tuple[Submission, ...], spares: tuple[Submission, ...]
) -> tuple[Mapping[int, tuple[int, ...]], tuple[str, ...]]:
    """Return from which job a chain may move to which, with a note for who asked for that."""
    if not request.switch or not jobs:
        return {}, ()
    from rv.planner.moves import moves, note_on_moves

    allowed = moves(jobs, spares)
    return allowed, (note_on_moves(jobs, allowed),)


def _room(job: Submission, sources: SourcesById, usage: Usage) -> tuple[tuple[str, int], ...]:
    """Return what limits the number of such jobs, and how many more it allows."""
    of_job = (source for part in job.strategies for source in sources.get(part.id, ()))
    left = ((source, submissions_left(source, usage)) for source in dict.fromkeys(of_job))
    named = {source.name: count for source, count in left if count is not None}
    return tuple(sorted(named.items()))


class _ChosenJobs:
    """The jobs chosen so far, each a list of strategies, and why others are not submitted."""

    def __init__(
        self, request: Request, sources: SourcesById, usage: Usage, merger: Merger
    ) -> None:
        self.jobs: list[list[Strategy]] = []
        self.all_at_once = request.fanout is Fanout.EACH
        self._request = request
        self._sources = sources
        self._usage = usage
        self._merger = merger
        # An association and its account have one name.
        self._taken: Counter[tuple[str, CountedJobs]] = Counter()
        self._blocked: set[str] = set()
        self._blocked_by: Counter[str] = Counter()
        self._beyond_cap = self._in_segments = 0

    def consider(self, strategy: Strategy) -> None:
        """Add a strategy to a job, or as a new one, unless something keeps it back."""
        if self._is_covered(strategy):
            return
        if strategy.segments > 1 and not self._request.checkpoint:
            self._in_segments += 1
            return
        job = self._job_for(strategy)
        new = self._new_sources(strategy, job)
        blocking = self._full_source(new)
        if blocking:
            self._blocked.add(strategy.id)
            self._blocked_by[blocking] += 1
        elif not job and len(self.jobs) >= self._request.max_submissions:
            self._beyond_cap += 1
        else:
            self._taken.update({(source.name, source.counted) for source in new})
            if not job:
                self.jobs.append(job)
            job.append(strategy)

    def _is_covered(self, strategy: Strategy) -> bool:
        """Whether a better strategy, that may be submitted, makes this one needless."""
        if self.all_at_once or not strategy.covered_by:
            return False
        return strategy.covered_by not in self._blocked

    def _job_for(self, strategy: Strategy) -> list[Strategy]:
        """Return the job that can carry a strategy too, a new one where none can.

        What is idle may so go with the first job, before a cheaper one that waits for the second
        wave: where the best is taken meanwhile, the next start counts more than the price.
        """
        if self.all_at_once:
            return []
        return next((job for job in self.jobs if self._merger.can_join(job, strategy)), [])

    def _new_sources(self, strategy: Strategy, job: list[Strategy]) -> Sources:
        """Return what limits the strategy's job and does not count the job already."""
        counted = {source for part in job for source in self._sources.get(part.id, ())}
        sources = self._sources.get(strategy.id, ())
        return tuple(source for source in sources if source not in counted)

    def _full_source(self, sources: Sources) -> str:
        """Return the limit source that takes no other job; "" where all do."""
        for source in sources:
            left = submissions_left(source, self._usage)
            if left is not None and self._taken[source.name, source.counted] >= left:
                return source.name
        return ""

    def notes(self) -> tuple[str, ...]:
        """Say how many strategies are not submitted, and why."""
        notes = []
        if self._beyond_cap:
            cap = self._request.max_submissions
            notes.append(f"{_not_submitted(self._beyond_cap)}: a race has at most {cap} jobs")
        for name, count in sorted(self._blocked_by.items()):
            why = f"{name} has no room for more jobs (MaxSubmit)"
            notes.append(f"{_not_submitted(count)}: {why}")
        if self._in_segments:
            remedy = "add --checkpoint for a command that can resume"
            notes.append(f"{_not_submitted(self._in_segments, 'checkpoint ')}: {remedy}")
        return tuple(notes)


def _not_submitted(count: int, kind: str = "") -> str:
    plural = "strategy is" if count == 1 else "strategies are"
    return f"{count} {kind}{plural} not submitted"


def _spares(jobs: tuple[Submission, ...], cap: int) -> tuple[Submission, ...]:
    """Make jobs of the parts of merged ones, so many that the cap holds whichever are refused."""
    room = cap - len(jobs)
    parts: list[tuple[int, Strategy]] = []
    for job in jobs:
        if job.merged:
            separate = job.strategies[: 1 + room]
            room -= len(separate) - 1
            parts.extend((job.number, part) for part in separate)
    return tuple(
        Submission(number=number, strategies=(part,), instead_of=merged)
        for number, (merged, part) in enumerate(parts, len(jobs) + 1)
    )


def _waves(jobs: tuple[Submission, ...], *, all_at_once: bool) -> tuple[tuple[int, ...], ...]:
    """Send the first job ahead of the others where its resources are idle, else all together."""
    numbers = tuple(job.number for job in jobs)
    if not numbers:
        return ()
    idle = jobs[0].strategies[0].estimate.source is Source.IDLE
    if all_at_once or not idle or len(numbers) == 1:
        return (numbers,)
    return (numbers[:1], numbers[1:])


def _memory_notes(jobs: tuple[Submission, ...]) -> tuple[str, ...]:
    return tuple(
        f"job {job.number} asks for {short_memory(job.strategy.memory_mib)} of memory a node, the"
        " least of its strategies"
        for job in jobs
        if any(part.memory_mib != job.strategy.memory_mib for part in job.strategies)
    )


def within_max_fanout(request: Request, site: Site) -> tuple[Request, tuple[str, ...]]:
    """Bring the request under the site's `max_fanout`, with a note where the user asked for more.

    The number that rv would use by itself is lowered without a note.
    """
    ceiling, asked = site.max_fanout, request.max_submissions
    if ceiling is None or asked <= ceiling.jobs:
        return request, ()
    lowered = replace(request, max_submissions=ceiling.jobs)
    if asked == DEFAULT_MAX_SUBMISSIONS:
        return lowered, ()
    jobs = "one job" if ceiling.jobs == 1 else f"{ceiling.jobs} jobs"
    return lowered, (f"max_fanout allows {jobs} a race ({ceiling.origin}), {asked} asked",)
