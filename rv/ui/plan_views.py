"""Plans and costs: as text for people, and as the documented JSON."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from rv.models.performance import Source
from rv.models.plan import Plan, Strategy
from rv.models.quantities import short_duration, short_memory
from rv.ui.tables import Part, Table


def plan_text(plan: Plan, commands: Mapping[int, str], widen_after: timedelta) -> list[Part]:
    """Lay a plan out: strategies, what was not considered, and the jobs; `commands` by number."""
    parts: list[Part] = [_strategies(plan)]
    if _is_timed(plan):
        from rv.ui.finish_views import sources_text

        parts.append(sources_text(plan))
    if plan.excluded or any(strategy.left_out for strategy in plan.strategies):
        parts.append("Not considered:\n" + "\n".join(_excluded(plan)))
    if plan.submissions:
        parts.append("\n".join(_jobs(plan, commands, widen_after)))
    if _is_timed(plan):
        from rv.ui.finish_views import schedule_lines

        if schedule := list(schedule_lines(plan)):
            parts.append("\n".join(["Segments, one after the other:", *schedule]))
    return [*parts, *plan.notes, *plan.job_notes]


def _strategies(plan: Plan) -> Table:
    more: tuple[str, ...] = ("CPUS", "MEM", "START")
    cells = _start_cells
    if _is_timed(plan):
        from rv.ui.finish_views import HEAD, finish_cells

        more, cells = HEAD, finish_cells
    head = ("JOB", "GPU", "LAYOUT", "PARTITION", "TIME", *more, _cost_head(plan))
    numbers = {s.id: str(job.number) for job in plan.submissions for s in job.strategies}
    rows = [
        _strategy_row(
            strategy,
            numbers.get(strategy.id, "-"),
            cells(strategy),
        )
        for strategy in plan.strategies
    ]
    return Table(head=head, rows=rows)


def _is_timed(plan: Plan) -> bool:
    """Whether each strategy has a time of its own."""
    return any(strategy.run for strategy in plan.strategies)


def _start_cells(strategy: Strategy) -> tuple[str, ...]:
    memory = short_memory(strategy.memory_mib)
    return (str(strategy.cpus_per_task), memory, start_text(strategy))


def _strategy_row(strategy: Strategy, number: str, cells: tuple[str, ...]) -> tuple[str, ...]:
    return (
        number,
        strategy.gpu,
        f"{strategy.nodes}x{strategy.gpus_per_node}",
        strategy.partition,
        _walltime(strategy),
        *cells,
        "-" if strategy.cost is None else f"{strategy.cost:.1f}",
    )


def _walltime(strategy: Strategy) -> str:
    time = short_duration(strategy.walltime)
    return f"{strategy.segments} x {time}" if strategy.segments > 1 else time


def _cost_head(plan: Plan) -> str:
    return f"COST ({plan.cost_unit})" if plan.cost_unit else "COST"


def start_text(strategy: Strategy) -> str:
    """Say when a strategy would start, and how that is known."""
    estimate = strategy.estimate
    if estimate.start_in is None:
        return "unknown"
    if estimate.source is Source.IDLE:
        return "now (idle)"
    if estimate.source is Source.BACKFILL_WINDOW:
        length = f" of {short_duration(estimate.window)}" if estimate.window else ""
        return f"now (backfill window{length})"
    return f"{short_duration(estimate.start_in)} ({estimate.source})"


def _excluded(plan: Plan) -> list[str]:
    lines = [f"  {item.what}: {item.reason}" for item in plan.excluded]
    if any(strategy.left_out for strategy in plan.strategies):
        from rv.ui.finish_views import left_out_lines

        lines += left_out_lines(plan.strategies)
    sent = {strategy.id for job in plan.submissions for strategy in job.strategies}
    for strategy in plan.strategies:
        if strategy.covered_by and not strategy.left_out and strategy.id not in sent:
            lines.append(f"  {strategy.id}: {strategy.covered_by} is as good")
    return lines


def _jobs(plan: Plan, commands: Mapping[int, str], widen_after: timedelta) -> list[str]:
    later = f"{short_duration(widen_after)} later, unless one has started"
    lines = []
    for at, wave in enumerate(plan.waves):
        lines.append(f"Submitted {later if at else 'now'}:")
        lines.extend(f"  {number:>2}  {commands[number]}" for number in wave)
    return lines


def plan_document(
    plan: Plan, names: Mapping[int, str], scripts: Mapping[int, str]
) -> dict[str, Any]:
    """Describe a plan; `names` and `scripts` are by submission number."""
    return {
        "strategies": [strategy_document(strategy) for strategy in plan.strategies],
        "excluded": _excluded_document(plan),
        "submissions": [
            {
                "name": names[s.number],
                "strategies": [strategy.id for strategy in s.strategies],
                "script": scripts[s.number],
            }
            for s in plan.submissions
        ],
        "waves": [[names[number] for number in wave] for wave in plan.waves],
        "notes": [*plan.notes, *plan.job_notes],
        "cost_unit": plan.cost_unit or None,
        "objective": plan.objective,
    }


def strategy_document(strategy: Strategy) -> dict[str, Any]:
    """Describe one strategy; memory and CPUs are per node."""
    start, window = strategy.estimate.start_in, strategy.estimate.window
    return {
        "id": strategy.id,
        "gpu": strategy.gpu,
        "gpus": strategy.gpus,
        "nodes": strategy.nodes,
        "gpus_per_node": strategy.gpus_per_node,
        "partition": strategy.partition,
        "mode": strategy.mode,
        "walltime_s": int(strategy.walltime.total_seconds()),
        "mem_mib": strategy.memory_mib,
        "cpus_per_task": strategy.cpus_per_task,
        "estimate": {
            "start_in_s": None if start is None else start.total_seconds(),
            "source": strategy.estimate.source,
            "window_s": None if window is None else window.total_seconds(),
        },
        "cost": strategy.cost,
        "template": strategy.template,
        "covered_by": strategy.covered_by or None,
        "segments": strategy.segments,
        "total_s": int((strategy.total or strategy.walltime).total_seconds()),
        **_finish_fields(strategy),
    }


def _finish_fields(strategy: Strategy) -> dict[str, Any]:
    """Describe when a strategy starts and is done: null where it is not known."""
    run = strategy.run
    return {
        **_quantiles("start", strategy.start),
        **_quantiles("run", run),
        **_quantiles("finish", strategy.finish),
        "start_source": strategy.start.source if strategy.start else None,
        "throughput": round(run.rate, 4) if run else None,
        "throughput_source": run.rated_by if run else None,
        "scaling_source": (run.scaled_by or None) if run else None,
        "correction": (run.corrected_by or None) if run else None,
        "left_out": strategy.left_out or None,
        "segment_starts_s": [start.total_seconds() for start in strategy.segment_starts],
    }


def _quantiles(what: str, of: Any) -> dict[str, float | None]:
    return {
        f"{what}_p50_s": round(of.p50.total_seconds()) if of else None,
        f"{what}_p90_s": round(of.p90.total_seconds()) if of else None,
    }


def costs_text(plan: Plan, best: Sequence[Strategy]) -> list[Part]:
    """Lay out one row a GPU model, within 80 columns where names are of usual length."""
    unit = plan.cost_unit or "COST"
    head = ("GPU", "LAYOUT", "PARTITION", "TIME", unit, "GPU-HOUR", "START")
    priced = dict.fromkeys(strategy.priced_by for strategy in best if strategy.priced_by)
    named = {strategy.gpu for strategy in best}
    lost = [f"  {e.what}: {e.reason}" for e in plan.excluded if e.what.split("/")[0] not in named]
    parts: list[Part] = [Table(head=head, rows=[_cost_row(strategy) for strategy in best])]
    if priced:
        parts.append(f"Prices are from {_files(priced)}.")
    if lost:
        parts.append("\n".join(["Not considered:", *lost]))
    return [*parts, *plan.notes]


def _cost_row(strategy: Strategy) -> tuple[str, ...]:
    rate = strategy.cost_per_gpu_hour
    return (
        strategy.gpu,
        f"{strategy.nodes}x{strategy.gpus_per_node}",
        strategy.partition,
        short_duration(strategy.walltime),
        "-" if strategy.cost is None else f"{strategy.cost:.2f}",
        "-" if rate is None else f"{rate:.2f}",
        start_text(strategy),
    )


def _files(origins: Iterable[str]) -> str:
    """Name the sources of prices, each file once."""
    return " and ".join(dict.fromkeys(origin.rpartition(":")[0] or origin for origin in origins))


def costs_document(plan: Plan, best: Iterable[Strategy]) -> dict[str, Any]:
    """Describe the cheapest strategy of each GPU model."""
    return {
        "costs": [
            {
                **strategy_document(strategy),
                "cost_per_gpu_hour": strategy.cost_per_gpu_hour,
                "priced_by": strategy.priced_by or None,
            }
            for strategy in best
        ],
        "cost_unit": plan.cost_unit or None,
        "excluded": _excluded_document(plan),
    }


def _excluded_document(plan: Plan) -> list[dict[str, str]]:
    return [{"what": item.what, "reason": item.reason} for item in plan.excluded]
