"""Plans and races as text for people."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from rv.cluster.text import printable
from rv.models.plan import Plan, Source, Strategy
from rv.models.quantities import short_duration, short_memory
from rv.models.race import RaceStatus


def plan_text(plan: Plan, commands: Mapping[int, str]) -> str:
    """Lay a plan out: strategies, what was left out, and the jobs; `commands` by number."""
    parts = [_strategies(plan)]
    if plan.excluded:
        parts.append("Left out:\n" + "\n".join(_excluded(plan)))
    if plan.submissions:
        parts.append("Jobs:\n" + "\n".join(_jobs(plan, commands)))
    parts.extend(plan.notes)
    return "\n\n".join(parts)


def _strategies(plan: Plan) -> str:
    head = ("", "STRATEGY", "GPUS", "NODES", "PARTITION", "TIME", "CPU", "MEM", "START", "COST")
    sent = {s.id for job in plan.submissions for s in job.strategies}
    rows = [_strategy_row(strategy, strategy.id in sent) for strategy in plan.strategies]
    return columns([head, *rows])


def _strategy_row(strategy: Strategy, is_sent: bool) -> tuple[str, ...]:  # noqa: FBT001
    return (
        "*" if is_sent else " ",
        strategy.id,
        f"{strategy.nodes}x{strategy.gpus_per_node} {strategy.gpu}",
        str(strategy.nodes),
        strategy.partition,
        short_duration(strategy.walltime),
        str(strategy.cpus_per_task),
        short_memory(strategy.memory_mib),
        _start(strategy),
        "-" if strategy.cost is None else f"{strategy.cost:.1f}",
    )


def _start(strategy: Strategy) -> str:
    estimate = strategy.estimate
    if estimate.start_in is None:
        return "unknown"
    if estimate.source is Source.IDLE:
        return "now (idle)"
    return f"{short_duration(estimate.start_in)} ({estimate.source})"


def _excluded(plan: Plan) -> list[str]:
    return [f"  {item.what}: {item.reason}" for item in plan.excluded]


def _jobs(plan: Plan, commands: Mapping[int, str]) -> list[str]:
    waves = {number: at for at, wave in enumerate(plan.waves) for number in wave}
    lines = []
    for job in plan.submissions:
        when = "now" if waves.get(job.number, 0) == 0 else "later, unless one has started"
        lines.append(f"  {job.number}. {when}: {commands[job.number]}")
    return lines


def races_text(races: Sequence[RaceStatus], now: float) -> str:
    """List races, newest first."""
    if not races:
        return "no races"
    head = ("RACE", "NAME", "STATE", "JOB", "STRATEGY", "NODES", "AGE", "CODE", "WHY")
    return columns([head, *(_race_row(status, now) for status in races)])


def _race_row(status: RaceStatus, now: float) -> tuple[str, ...]:
    claim = status.claim
    entry = status.race.entry(claim.submission) if claim else None
    pending = sum(job.state.is_pending for job in status.jobs)
    return (
        status.race.race_id,
        status.race.name or "-",
        status.state,
        str(claim.job_id) if claim else f"{pending} pending" if pending else "-",
        entry.strategy if entry else "-",
        claim.nodes if claim else "-",
        short_duration(timedelta(seconds=max(0.0, now - status.race.submitted_at))),
        "-" if status.exit_code is None else str(status.exit_code),
        status.why or "-",
    )


def columns(rows: Iterable[Sequence[str]]) -> str:
    """Align rows of cells; the last column keeps its length."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    lines = []
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("  ".join([*padded, row[-1]]).rstrip())
    return "\n".join(lines)
