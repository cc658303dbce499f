"""Races: their ends in words, and all of them as the documented JSON."""

import signal
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rv.models.code import Code
from rv.models.job import JobState
from rv.models.quantities import short_duration
from rv.models.race import Claim, RaceState, RaceStatus, Segment
from rv.models.sweep import TaskCounts
from rv.race.sources import own_end
from rv.ui.race_facts import ends_by_s, gpu_count, gpu_models, layouts, ran_s, typed_command

if TYPE_CHECKING:
    from rv.race.cancel import CancelResult
    from rv.race.output import Chunk


def ending(status: RaceStatus) -> str:
    """Put the end of a race into a sentence: state, code, wait, run, cost."""
    what = "sweep" if status.race.sweep else "race"
    parts = [f"{what} {status.race.race_id} {status.state}"]
    if status.tasks:
        parts.append(tasks_text(status.tasks))
    elif status.exit_code is not None:
        parts.append(f"exit code {status.exit_code}{_signal_name(status.exit_code)}")
    if status.started_at:
        parts.append(
            f"waited {seconds_text(max(0.0, status.started_at - status.race.submitted_at))}"
        )
    lasted_s = ran_s(status)
    if lasted_s is not None:
        parts.append(f"ran {seconds_text(lasted_s)}{_in_segments(status)}")
        parts.extend(_cost(status, lasted_s))
    has_exit_code = status.state is RaceState.FAILED and status.exit_code is not None
    if status.why and not has_exit_code:
        parts.append(status.why)
    return ", ".join(parts)


def _in_segments(status: RaceStatus) -> str:
    count = status.claim.segment if status.claim else 1
    return f" in {count} segments" if count > 1 else ""


def _signal_name(code: int) -> str:
    """Name the signal that 128 + n stands for, as in 137 (SIGKILL)."""
    try:
        return f" ({signal.Signals(code - 128).name})"
    except ValueError:
        return ""


def _cost(status: RaceStatus, lasted_s: float) -> list[str]:
    """Say what it cost: a chain's segments each at the price of their layout, if all have one."""
    if status.claim is None:
        return []
    before = [one for one in status.segments if one.number < status.claim.segment]
    claims = [*(one.claim for one in before), status.claim]
    until_s = [*map(_ran_until_s, before, claims[1:]), lasted_s]
    cost, since_s, unit = 0.0, 0.0, ""
    for claim, end_s in zip(claims, until_s, strict=True):
        entry = status.race.winner(claim)
        if entry is None or entry.cost is None or not entry.walltime:
            return []
        cost += entry.cost * (end_s - since_s) / entry.walltime.total_seconds()
        since_s, unit = end_s, entry.cost_unit
    return [f"cost {cost:.2f} {unit}".rstrip()]


def _ran_until_s(segment: Segment, following: Claim) -> float:
    """Return how long the command had run when a segment ended.

    Where that is not known it is what the next one found, or an earlier instance of the next.
    """
    ended = own_end(segment.claim, segment.ended)
    if ended is None:
        return following.elapsed_s
    return segment.claim.elapsed_s + max(0.0, ended.ended_at - segment.claim.started_at)


def races_document(races: Iterable[RaceStatus]) -> dict[str, Any]:
    """Describe races."""
    return {"races": [race_document(status) for status in races]}


def race_document(status: RaceStatus) -> dict[str, Any]:
    """Describe one race and the jobs that were sent; times are ISO 8601 in UTC."""
    from rv.ui.gpu_views import gpu_use_document  # a table of races does without

    claim = status.claim
    return {
        "race": status.race.race_id,
        "name": status.race.name,
        "state": status.state,
        "retry_of": status.race.retry_of or None,
        "resumes": status.race.resumes or None,
        "chain": _chain(status),
        "sweep": _sweep(status),
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
        "gpu_use": gpu_use_document(status),
        "command": typed_command(status),
        "gpus": gpu_count(status),
        "gpu": gpu_models(status),
        "layouts": layouts(status),
        "ends_by": _time(ends_by_s(status)),
        "directory": status.race.directory,
        "code": _code(status.race.code),
    }


def _code(code: Code | None) -> dict[str, Any] | None:
    """Describe the code that was sent for a race; None where none was."""
    if code is None:
        return None
    return {
        "project": code.project,
        "tree": code.tree,
        "branch": code.branch or None,
        "commit": code.commit or None,
        "dirty": code.is_dirty,
    }


def _sweep(status: RaceStatus) -> dict[str, Any] | None:
    """Describe the tasks of a sweep; None for a race of one command."""
    sweep = status.race.sweep
    if sweep is None:
        return None
    counts = status.tasks or TaskCounts(tasks=sweep.tasks, carried=sweep.carried)
    return {
        "tasks": counts.tasks,
        "done": counts.done,
        "failed": counts.failed,
        "lost": counts.lost,
        "running": counts.running,
        "waiting": counts.waiting,
        "carried": counts.carried,
        "max": sweep.most_running or None,
    }


def tasks_text(counts: TaskCounts) -> str:
    """Say how many tasks are done, with those of the sweep before, and what became of others."""
    others = {"failed": counts.failed, "lost": counts.lost, "running": counts.running}
    done = f"{counts.done + counts.carried}/{counts.tasks + counts.carried} done"
    return ", ".join([done, *(f"{number} {what}" for what, number in others.items() if number)])


def _chain(status: RaceStatus) -> dict[str, Any] | None:
    """Describe the segments of a command that can resume; None for any other."""
    if status.race.chain is None:
        return None
    return {
        "segment": status.claim.segment if status.claim else 0,
        "elapsed_s": None if status.elapsed_s is None else round(status.elapsed_s),
        "used_s": None if status.used_s is None else round(status.used_s),
        "total_s": status.total_s,
        "last_checkpoint": _time(status.saved_at),
        "segments": [
            {
                "job_id": one.claim.job_id,
                "strategy": one.claim.strategy,
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


def seconds_text(seconds: float) -> str:
    """Write a duration as people do: 1m30s."""
    return short_duration(timedelta(seconds=round(seconds)))


def output_documents(chunks: "Iterable[Chunk]") -> list[dict[str, Any]]:
    """Describe a race's output: for each segment, node and stream what it holds."""
    texts: dict[tuple[int, int, bool], bytearray] = {}
    for chunk in chunks:
        text = texts.setdefault((chunk.segment, chunk.node, chunk.is_error), bytearray())
        text.extend(chunk.data)
    return [
        {
            "segment": segment,
            "node": node,
            "stream": "err" if is_error else "out",
            "text": data.decode("utf-8", errors="replace"),
        }
        for (segment, node, is_error), data in sorted(texts.items())
    ]


def stopped_lines(results: "Iterable[CancelResult]") -> Iterator[str]:
    """Say what was cancelled of each race, and what is not confirmed."""
    for result in results:
        race_id = result.race.race_id
        ids = ", ".join(map(str, result.cancelled))
        if ids:
            yield f"race {race_id}: cancelled jobs: {ids}"
        elif not result.unconfirmed:
            yield f"race {race_id}: no job of it was left"
        if result.unconfirmed:
            yield f"race {race_id}: not confirmed: {result.unconfirmed}; see rv ps"


def stopped_document(results: "Iterable[CancelResult]") -> dict[str, Any]:
    """Describe what was cancelled."""
    return {
        "stopped": [
            {
                "race": result.race.race_id,
                "cancelled": list(result.cancelled),
                "unconfirmed": result.unconfirmed,
            }
            for result in results
        ]
    }
