"""Compare GPU models by what a request would cost on each."""

from math import inf

from rv.models.plan import Plan, Strategy
from rv.models.request import Request


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
