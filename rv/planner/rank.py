"""Order strategies, and mark those that a better one of the same model and layout covers."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf

from rv.models.plan import Strategy


def rank(strategies: Iterable[Strategy], quality: Mapping[str, int]) -> tuple[Strategy, ...]:
    """Return the strategies best first, covered ones marked.

    By expected start (known before unknown), the whole time in one job before parts of it, cost
    (priced before unpriced), fewer nodes, better model, and then by name, so that the order depends
    on nothing but the values.
    """

    def key(strategy: Strategy) -> tuple[float, bool, bool, float, int, int, str, str]:
        start = strategy.estimate.start_in
        return (
            inf if start is None else start.total_seconds(),
            strategy.shortened or strategy.segments > 1,
            strategy.cost is None,
            strategy.cost or 0.0,
            strategy.nodes,
            -quality.get(strategy.gpu, 0),
            strategy.partition,
            strategy.id,
        )

    return _covered(sorted(strategies, key=key))


def _covered(ranked: list[Strategy]) -> tuple[Strategy, ...]:
    best: dict[tuple[str, int, int, str], Strategy] = {}
    found = []
    for strategy in ranked:
        kind = (strategy.gpu, strategy.nodes, strategy.gpus_per_node, strategy.mode.value)
        better = best.setdefault(kind, strategy)
        if better is not strategy and _as_good(better, strategy):
            found.append(replace(strategy, covered_by=better.id))
        else:
            found.append(strategy)
    return tuple(found)


def _as_good(better: Strategy, other: Strategy) -> bool:
    """Whether one is at least as good as the other; what is unknown compares with nothing."""
    start, later = better.estimate.start_in, other.estimate.start_in
    if start is None or later is None or start > later or better.walltime < other.walltime:
        return False
    if better.cost is None or other.cost is None:
        return better.cost is other.cost
    return better.cost <= other.cost
