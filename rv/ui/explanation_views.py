"""An explanation as text for people and as JSON. Pure."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rv.models.explanation import Change, ExplainedJob, Explanation, QueuePlace
from rv.models.job import JobState
from rv.models.plan import Strategy
from rv.models.quantities import short_duration
from rv.models.race import JobStatus, RaceState, RaceStatus
from rv.ui.plan_views import start_text, strategy_document
from rv.ui.race_views import ending, race_document
from rv.ui.reasons import sentence
from rv.ui.tables import Part, Table


def explanation_text(told: Explanation, now_s: float) -> list[Part]:
    """Lay out why a race waits; one line for a race that does not. `now_s` is since the epoch."""
    status = told.status
    if not told.jobs:
        return [_settled(status)]
    waited = short_duration(timedelta(seconds=round(max(0.0, now_s - status.race.submitted_at))))
    parts: list[Part] = [f"race {status.race.race_id} has waited {waited}"]
    parts.extend("\n".join(_job(job)) for job in told.jobs)
    if told.has_room:
        room = f"{told.has_room.id}, {start_text(told.has_room)}"
        parts.append(f"There seems to be room as it stands: {room}.")
    elif told.changes:
        parts.append(_changes(told.changes))
    elif status.race.request is not None:
        parts.append("No other time, GPU type or number of GPUs would start now.")
    return [*parts, *told.notes]


def _settled(status: RaceStatus) -> str:
    claim = status.claim
    if status.state is RaceState.RUNNING and claim:
        return f"race {status.race.race_id} runs on {claim.nodes} as job {claim.job_id}"
    return ending(status)


def _job(explained: ExplainedJob) -> list[str]:
    job = explained.job
    name = f"job {job.job_id}" if job.job_id else "no job yet"
    lines = [f"{name}: {job.strategy}", f"  {job_sentence(job, explained.place)}"]
    if explained.place:
        place = explained.place
        lines.append(f"  number {place.place} of {place.waiting} waiting in {place.partition}")
    if explained.planned_in is not None:
        lines.append(f"  Slurm plans its start in {short_duration(explained.planned_in)}")
    return lines


def job_sentence(job: JobStatus, place: QueuePlace | None = None) -> str:
    """Say what a job does, or why it waits; `place` is its place in line where that is known."""
    if job.state.is_pending:
        return _why_pending(job.reason or "None", place)
    if job.state is JobState.LAUNCH_FAILED:
        return f"Slurm refused it: {job.reason}"
    if job.state is JobState.UNKNOWN:
        return "Slurm does not know it now" if job.job_id else "not sent yet"
    if job.state in (JobState.RUNNING, JobState.CONFIGURING):
        return "it has started, and checks its node"
    return f"{job.state}: {job.reason}" if job.reason else str(job.state)


def _why_pending(reason: str, place: QueuePlace | None) -> str:
    if reason == "Priority" and place and place.place == 1 and place.behind_own:
        return "only jobs of this race are ahead in the queue (Priority)"
    return sentence(reason)


def _changes(changes: Sequence[Change]) -> Table:
    rows = [(f"  {c.options}", c.strategy.id, start_text(c.strategy)) for c in changes]
    return Table(title="What would start now:", rows=rows)


def explanation_document(told: Explanation) -> dict[str, Any]:
    """Describe an explanation; times are in seconds from now."""
    return {
        **race_document(told.status),
        "jobs": [_job_document(job) for job in told.jobs],
        "has_room": _strategy(told.has_room),
        "changes": [
            {"options": change.options, "strategy": strategy_document(change.strategy)}
            for change in told.changes
        ],
        "notes": list(told.notes),
    }


def _strategy(strategy: Strategy | None) -> dict[str, Any] | None:
    return None if strategy is None else strategy_document(strategy)


def _job_document(explained: ExplainedJob) -> dict[str, Any]:
    job, place, planned = explained.job, explained.place, explained.planned_in
    return {
        "job_id": job.job_id or None,
        "strategy": job.strategy,
        "partition": explained.partition,
        "state": job.state,
        "reason": job.reason or None,
        "why": job_sentence(job, place),
        "place": place.place if place else None,
        "waiting": place.waiting if place else None,
        "planned_in_s": None if planned is None else planned.total_seconds(),
    }
