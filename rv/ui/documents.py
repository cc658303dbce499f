"""The documented JSON objects of plans and races. Pure."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rv.models.job import JobState
from rv.models.plan import Plan, PoolView, Strategy
from rv.models.race import RaceStatus


def plan_document(
    plan: Plan, names: Mapping[int, str], scripts: Mapping[int, str]
) -> dict[str, Any]:
    """Describe a plan; `names` and `scripts` are by submission number."""
    return {
        "strategies": [strategy_document(strategy) for strategy in plan.strategies],
        "excluded": _excluded(plan),
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
    }


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
        "excluded": _excluded(plan),
    }


def _excluded(plan: Plan) -> list[dict[str, str]]:
    return [{"what": item.what, "reason": item.reason} for item in plan.excluded]


def overview_document(pools: Iterable[PoolView]) -> dict[str, Any]:
    """Describe what GPUs a cluster has."""
    return {
        "gpus": [
            {
                "gpu": pool.gpu,
                "partition": pool.partition,
                "free": pool.free,
                "total": pool.total,
                "largest_on_one_node": pool.largest,
                "out_of_service": pool.lost,
                "waiting_jobs": pool.waiting,
                "max_time_s": None if pool.max_time is None else pool.max_time.total_seconds(),
                "limits": list(pool.limits),
                "closed": pool.closed or None,
            }
            for pool in pools
        ]
    }


def races_document(races: Iterable[RaceStatus]) -> dict[str, Any]:
    """Describe races."""
    return {"races": [race_document(status) for status in races]}


def race_document(status: RaceStatus) -> dict[str, Any]:
    """Describe one race and the jobs that were sent; times are ISO 8601 in UTC."""
    claim = status.claim
    return {
        "race": status.race.race_id,
        "name": status.race.name,
        "state": status.state,
        "retry_of": status.race.retry_of or None,
        "chain": _chain(status),
        "winner": None
        if claim is None
        else {
            "job_id": claim.job_id,
            "strategy": status.race.strategy_of(claim.submission, claim),
            "nodes": claim.nodes,
        },
        "jobs": [
            {"job_id": job.job_id or None, "state": job.state, "strategy": job.strategy}
            for job in status.jobs
            if job.job_id or job.state is not JobState.UNKNOWN or job.reason
        ],
        "exit_code": status.exit_code,
        "submitted_at": _time(status.race.submitted_at),
        "started_at": _time(status.started_at),
        "ended_at": _time(status.ended_at),
        "why": status.why,
        "warnings": list(status.warnings),
        "directory": status.race.directory,
    }


def _chain(status: RaceStatus) -> dict[str, Any] | None:
    """Describe the segments of a command that can resume; None for any other."""
    if status.race.chain is None:
        return None
    return {
        "segment": status.claim.segment if status.claim else 0,
        "elapsed_s": None if status.elapsed is None else round(status.elapsed),
        "total_s": status.race.chain.total.total_seconds(),
        "last_checkpoint": _time(status.saved_at),
        "segments": [
            {
                "job_id": one.claim.job_id,
                "nodes": one.claim.nodes,
                "started_at": _time(one.claim.started_at),
                "ended_at": _time(one.ended.ended_at) if one.ended else None,
                "next": one.ended.next if one.ended else None,
            }
            for one in status.segments
        ],
    }


def _time(seconds: float | None) -> str | None:
    if not seconds or not 0 < seconds < 1 << 35:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
