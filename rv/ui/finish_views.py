"""When strategies are done, as text for people."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

from rv.models.plan import Plan, Spread, Strategy
from rv.models.quantities import short_duration

_LEFT_OUT: Final = 10
_SEGMENTS: Final = 6

HEAD: Final = ("START", "RUN", "FINISH", "RATE")


def finish_cells(strategy: Strategy) -> tuple[str, ...]:
    """Lay out one strategy's start, run and finish, and its rate in GPUs of the reference."""
    run = strategy.run
    if run is None:
        return (spread_text(strategy.start), "-", "-", "-")
    rate = f"{run.rate:.1f}"
    return (
        spread_text(strategy.start),
        _span(run.p50, run.p90),
        spread_text(strategy.finish),
        rate,
    )


def spread_text(spread: Spread | None) -> str:
    """Write a time that is not certain: `~1m40s (p90 6m)`."""
    return _span(spread.p50, spread.p90) if spread else "unknown"


def _span(middle: timedelta, late: timedelta) -> str:
    return f"~{_rounded(middle)} (p90 {_rounded(late)})"


def _rounded(time: timedelta) -> str:
    """Write a time to the minute where it is a long one."""
    minute = timedelta(minutes=1)
    return short_duration(round(time / minute) * minute if time > 10 * minute else time)


def sources_text(plan: Plan) -> str:
    """Say by what rates, losses and quantiles are known, each source once."""
    lines = ["Known by:"]
    runs = [(strategy.gpu, strategy.run) for strategy in plan.strategies if strategy.run]
    lines += _by_models("rate", ((gpu, run.rated_by) for gpu, run in runs))
    lines += _by_models("link", ((gpu, run.scaled_by) for gpu, run in runs))
    lines += _by_models("past runs", ((gpu, run.corrected_by) for gpu, run in runs))
    starts = dict.fromkeys(one.start.source for one in plan.strategies if one.start)
    return "\n".join([*lines, *(f"  start: {source}" for source in starts)])


def _by_models(what: str, sources: Iterable[tuple[str, str]]) -> list[str]:
    models: dict[str, dict[str, None]] = {}
    for gpu, source in sources:
        models.setdefault(source, {})[gpu] = None
    return [
        f"  {what} of {', '.join(names)}: {source}" for source, names in models.items() if source
    ]


def left_out_lines(strategies: Iterable[Strategy]) -> list[str]:
    """Say of the strategies that are not raced when they would be done, of the best of them."""
    lines = [f"  {one.id}: {one.left_out}" for one in strategies if one.left_out]
    more = len(lines) - _LEFT_OUT
    return [
        *lines[:_LEFT_OUT],
        *([f"  and {more} more"] if more > 0 else []),
    ]


def schedule_lines(plan: Plan) -> Iterator[str]:
    """Say when the segments of each chain that is raced would run, one after the other."""
    for job in plan.submissions:
        for strategy in job.strategies:
            if strategy.segment_starts:
                yield f"  {strategy.id}: {_schedule(strategy)}"


def _schedule(strategy: Strategy) -> str:
    spans = [
        f"{_moment(start)} to {_moment(start + strategy.walltime)}"
        for start in strategy.segment_starts[:_SEGMENTS]
    ]
    more = strategy.segments - len(spans)
    rest = f", and {more} more" if more > 0 else ""
    layout = f"{strategy.gpu} {strategy.nodes}x{strategy.gpus_per_node}"
    return f"{layout} from {', then '.join(spans)}{rest}"


def _moment(start: timedelta) -> str:
    return "now" if not start else f"+{short_duration(start)}"
