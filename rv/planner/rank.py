"""Order strategies, and mark those that a better one of the same model and layout covers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf

from rv.models.plan import Strategy
from rv.models.snapshot import Partition
from rv.planner.limits import Owner


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
