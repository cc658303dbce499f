"""Rank strategies by when the command is done, and leave out those that would be done too late."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import inf
from typing import Final

from rv.models.performance import Source
from rv.models.plan import RunTime, Spread, Strategy
from rv.models.quantities import short_duration
from rv.models.request import Objective, Request
from rv.planner.quantiles import one_after_the_other
from rv.planner.segments import end_of_chain

Order = Callable[[Strategy], tuple[object, ...]]

_MINUTE: Final = timedelta(minutes=1)
_WEEK: Final = timedelta(days=6)
_CENTURY: Final = timedelta(days=36500)
_DEARER: Final = 1.1
"""What is raced for the cost costs at most so many times what the cheapest does."""


def finish(strategy: Strategy, run: RunTime, start: Spread | None) -> Spread | None:
    """Return when a strategy is likely to be done; None where a start on the way is not known."""
    is_endless = strategy.segments > 1 and strategy.estimate.start_in is not None
    if start is None or (is_endless and not strategy.segment_starts):
        return None
    p50, p90 = (end_of_chain(strategy, time) for time in (run.p50, run.p90))
    return one_after_the_other(start, Spread(p50=p50, p90=p90, source=run.rated_by))


def order_by(objective: Objective) -> Order:
    """Return what comes before all else in the ranking: nothing where starts are ranked."""
    orders: dict[Objective, Order] = {
        Objective.START: lambda _: (),
        Objective.FINISH: lambda strategy: (_end_s(strategy), _soonest(strategy)),
        Objective.COST: lambda strategy: (_expected_cost(strategy), _end_s(strategy)),
    }
    return orders[objective]


def _end_s(strategy: Strategy) -> float:
    return strategy.finish.p50.total_seconds() if strategy.finish else inf


def _expected_cost(strategy: Strategy) -> float:
    """Return the cost of the expected run: a strategy's own is that of all the time it asks for."""
    if strategy.cost is None or strategy.run is None:
        return inf
    return strategy.cost * (strategy.run.p50 / (strategy.total or strategy.walltime))


def in_time(
    ranked: tuple[Strategy, ...],
    may_be_sent: Sequence[Strategy],
    request: Request,
    now: datetime,
) -> tuple[tuple[Strategy, ...], tuple[Strategy, ...]]:
    """Return the strategies, those marked that are left out, and those that are raced.

    They are compared with the best of those that Slurm would take a job of.
    """
    best = _best(may_be_sent, request)
    if best and request.objective is Objective.FINISH:
        ranked = without_the_late(ranked, best, now)
    if best and request.objective is Objective.COST:
        ranked = without_the_dear(ranked, best)
    return ranked, tuple(strategy for strategy in ranked if not strategy.left_out)


def _best(ranked: Sequence[Strategy], request: Request) -> Strategy | None:
    """Return the strategy that the others are compared with, None where nothing is left out.

    Segments are listed for every command, and raced for one that can resume. Where Slurm plans no
    start a limit may be in the way: that counts for costs alone.
    """
    for strategy in ranked:
        is_sent = strategy.segments == 1 or request.checkpoint
        is_planned = strategy.estimate.start_in is not None
        if is_sent and (is_planned or request.objective is Objective.COST):
            return strategy
    return None


def late_notes(strategies: Sequence[Strategy]) -> tuple[str, ...]:
    """Say how many strategies are left out, for who sees no plan."""
    count = sum(bool(strategy.left_out) for strategy in strategies)
    if not count:
        return ()
    are = "strategy is" if count == 1 else "strategies are"
    return (f"{count} {are} not raced, since any that is may win; --dry-run says why",)


def without_the_late(
    strategies: Sequence[Strategy], best: Strategy, now: datetime
) -> tuple[Strategy, ...]:
    """Mark the strategies that could not beat the best one even if they started at once.

    The first job that starts wins the race. One that takes longer than the best needs for waiting
    and running together would so win, and be done later.
    """
    if best.finish is None:
        return tuple(strategies)
    # What is idle is sent first and alone: the others are for the case that it did not start.
    is_idle = best.estimate.source is Source.IDLE
    latest = best.finish.p90 if is_idle else best.finish.p50
    return tuple(
        strategy if _soonest(strategy) <= latest else _left_out(strategy, best, now)
        for strategy in strategies
    )


def without_the_dear(strategies: Sequence[Strategy], best: Strategy) -> tuple[Strategy, ...]:
    """Mark the strategies that cost more than a tenth above the best: any that is raced may win."""
    most = _DEARER * _expected_cost(best)
    where = f"{best.gpu} {best.nodes}x{best.gpus_per_node}"
    return tuple(
        strategy
        if _expected_cost(strategy) <= most
        else replace(strategy, left_out=f"{_cost_text(strategy)}, {where} {_cost_text(best)}")
        for strategy in strategies
    )


def _cost_text(strategy: Strategy) -> str:
    cost = _expected_cost(strategy)
    return "has no price" if cost == inf else f"would cost {cost:.2f}"


def _soonest(strategy: Strategy) -> timedelta:
    """Return when the command would be done if it started at once."""
    return end_of_chain(strategy, strategy.run.p50) if strategy.run else timedelta(0)


def _left_out(strategy: Strategy, best: Strategy, now: datetime) -> Strategy:
    end = best.finish.p50 if best.finish else timedelta(0)
    at_best = strategy.finish.p50 if strategy.finish else _soonest(strategy)
    when = "would finish" if strategy.finish else "would finish, if it started now,"
    after = short_duration(max(_MINUTE, round((at_best - end) / _MINUTE) * _MINUTE))
    where = f"{best.gpu} {best.nodes}x{best.gpus_per_node}"
    return replace(strategy, left_out=f"{when} {_clock(now, at_best)}, {after} after {where}")


def _clock(now: datetime, ahead: timedelta) -> str:
    """Write a moment as people say it: of today, of this week, of the years to come."""
    if ahead > _CENTURY:
        return "in more than a century"
    moment = now + ahead
    if moment.date() == now.date():
        return f"at ~{moment:%H:%M}"
    return f"at ~{moment:%a %H:%M}" if ahead < _WEEK else f"at ~{moment:%Y-%m-%d}"
