"""Plans and races as text for people."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from rv.models.plan import Plan, PoolView, Source, Strategy
from rv.models.quantities import short_duration, short_memory
from rv.models.race import RaceState, RaceStatus
from rv.slurm.text import printable


def plan_text(plan: Plan, commands: Mapping[int, str], widen_after: timedelta) -> str:
    """Lay a plan out: strategies, what was left out, and the jobs; `commands` by number."""
    parts = [_strategies(plan)]
    if plan.excluded:
        parts.append("Left out:\n" + "\n".join(_excluded(plan)))
    if plan.submissions:
        parts.append("\n".join(_jobs(plan, commands, widen_after)))
    parts.extend((*plan.notes, *plan.job_notes))
    return "\n\n".join(parts)


def _strategies(plan: Plan) -> str:
    head = ("JOB", "GPU", "LAYOUT", "PARTITION", "TIME", "CPUS", "MEM", "START", _cost_head(plan))
    numbers = {s.id: str(job.number) for job in plan.submissions for s in job.strategies}
    rows = [_strategy_row(strategy, numbers.get(strategy.id, "-")) for strategy in plan.strategies]
    return columns([head, *rows])


def _strategy_row(strategy: Strategy, number: str) -> tuple[str, ...]:
    return (
        number,
        strategy.gpu,
        f"{strategy.nodes}x{strategy.gpus_per_node}",
        strategy.partition,
        _walltime(strategy),
        str(strategy.cpus_per_task),
        short_memory(strategy.memory_mib),
        start_text(strategy),
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
    if estimate.source is Source.HOLE:
        length = f" of {short_duration(estimate.window)}" if estimate.window else ""
        return f"now (hole{length})"
    return f"{short_duration(estimate.start_in)} ({estimate.source})"


def _excluded(plan: Plan) -> list[str]:
    return [f"  {item.what}: {item.reason}" for item in plan.excluded] + [
        f"  {strategy.id}: {strategy.covered_by} is as good"
        for strategy in plan.strategies
        if strategy.covered_by and not any(strategy in job.strategies for job in plan.submissions)
    ]


def _jobs(plan: Plan, commands: Mapping[int, str], widen_after: timedelta) -> list[str]:
    later = f"{short_duration(widen_after)} later, unless one has started"
    lines = []
    for at, wave in enumerate(plan.waves):
        lines.append(f"Submitted {later if at else 'now'}:")
        lines.extend(f"  {number:>2}  {commands[number]}" for number in wave)
    return lines


def costs_text(plan: Plan, best: Sequence[Strategy]) -> str:
    """Lay out one row a GPU model, within 80 columns where names are of usual length."""
    unit = plan.cost_unit or "COST"
    head = ("GPU", "LAYOUT", "PARTITION", "TIME", unit, "GPU-HOUR", "START")
    table = columns([head, *map(_cost_row, best)])
    priced = dict.fromkeys(strategy.priced_by for strategy in best if strategy.priced_by)
    named = {strategy.gpu for strategy in best}
    lost = [f"  {e.what}: {e.reason}" for e in plan.excluded if e.what.split("/")[0] not in named]
    parts = [table]
    if priced:
        parts.append(f"Prices are from {_files(priced)}.")
    if lost:
        parts.append("\n".join(["Left out:", *lost]))
    return "\n\n".join((*parts, *plan.notes))


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


def overview_text(pools: Sequence[PoolView]) -> str:
    """Lay out what a cluster has, within 80 columns where names are of usual length."""
    if not pools:
        return "no GPUs"
    head = ("GPU", "PARTITION", "FREE", "TOTAL", "ON ONE NODE", "WAITING", "MAX TIME", "LIMITS")
    return columns([head, *(_pool_row(pool) for pool in pools)])


def _pool_row(pool: PoolView) -> tuple[str, ...]:
    notes = [pool.closed] if pool.closed else list(pool.limits)
    if pool.lost:
        notes.append(f"{pool.lost} out of service")
    return (
        pool.gpu,
        pool.partition,
        str(pool.free),
        str(pool.total),
        str(pool.largest),
        str(pool.waiting),
        "-" if pool.max_time is None else short_duration(pool.max_time),
        ", ".join(notes) or "-",
    )


def races_text(races: Sequence[RaceStatus], now: float) -> str:
    """List races, newest first."""
    if not races:
        return "no races"
    head = ("RACE", "NAME", "STATE", "JOB", "STRATEGY", "NODES", "AGE", "CODE", "WHY")
    return columns([head, *(_race_row(status, now) for status in races)])


def _race_row(status: RaceStatus, now: float) -> tuple[str, ...]:
    claim = status.claim
    pending = sum(job.state.is_pending for job in status.jobs)
    return (
        status.race.race_id,
        status.race.name or "-",
        status.state,
        str(claim.job_id) if claim else f"{pending} pending" if pending else "-",
        status.race.strategy_of(claim.submission, claim) or "-" if claim else "-",
        claim.nodes if claim else "-",
        short_duration(timedelta(seconds=max(0.0, now - status.race.submitted_at))),
        "-" if status.exit_code is None else str(status.exit_code),
        "; ".join(filter(None, (_retry(status), _segments(status, now), status.why))) or "-",
    )


def _retry(status: RaceStatus) -> str:
    """Name the lost race that this one starts again."""
    return f"retries {status.race.retry_of}" if status.race.retry_of else ""


def _segments(status: RaceStatus, now: float) -> str:
    """A chain as one thing: its segment, its time of the whole, its last checkpoint."""
    claim, chain = status.claim, status.race.chain
    if claim is None or chain is None:
        return ""
    elapsed = status.elapsed or 0.0
    if status.state is RaceState.RUNNING:
        elapsed += max(0.0, now - claim.started_at)
    ran = short_duration(timedelta(seconds=round(elapsed)))
    parts = [f"segment {claim.segment}", f"{ran} of {short_duration(chain.total)}"]
    if status.saved_at is not None:
        ago = timedelta(seconds=round(max(0.0, now - status.saved_at)))
        parts.append(f"checkpoint {short_duration(ago)} ago")
    return ", ".join(parts)


def columns(rows: Iterable[Sequence[str]]) -> str:
    """Align rows of cells; the last column keeps its length."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    lines = []
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("  ".join([*padded, row[-1]]).rstrip())
    return "\n".join(lines)
