"""`--max-cost`: what of a layout's strategies may be paid for."""

from dataclasses import replace

from rv.models.plan import Strategy
from rv.models.request import Request
from rv.planner.build import Built
from rv.planner.cost import WEIGHTS
from rv.planner.reasons import Unfit


def affordable(built: Built, request: Request, unit: str) -> Built:
    """Refuse the strategies that cost more than `--max-cost`, and those that nobody prices.

    Raises `Unfit` where none is left.
    """
    dear = {s.id: why for s in built.strategies if (why := _too_dear(s, request, unit))}
    kept = tuple(s for s in built.strategies if s.id not in dear)
    if not kept:
        raise Unfit(dear[built.strategies[0].id])
    refused = tuple((what, Unfit(why)) for what, why in dear.items())
    return replace(built, strategies=kept, refused=(*built.refused, *refused))


def _too_dear(strategy: Strategy, request: Request, unit: str) -> str:
    most = request.max_cost
    if most is None:
        return ""
    if strategy.cost is None:
        return (
            f"nobody prices it: no price of {strategy.gpu} in a configuration file, no {WEIGHTS}"
            f" of partition {strategy.partition}, and --max-cost is given"
        )
    named = f" {unit}" if unit else ""
    dear = f"costs {strategy.cost:.2f}{named}, above --max-cost {most:g}"
    return dear if strategy.cost > most else ""
