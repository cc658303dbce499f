"""The state of a sweep: by its tasks where they tell, else by its jobs.

A worker that left a task without an end counts as over only by Slurm's terminal record of its job,
or by a later restart of that job; what it was doing is then LOST, until it writes better.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from rv.models.job import JobRecord
from rv.models.race import Race, RaceState, RaceStatus, StateFiles
from rv.models.sweep import Sweep, TaskCounts, TaskRuns, count
from rv.race.sources import ACCOUNTING, is_active
from rv.race.task_runs import worker_job

_NOT_STARTED: Final = frozenset({RaceState.REFUSED, RaceState.DECLINED, RaceState.CANCELLED})
_MOST_NAMED: Final = 3
"""Ends of workers in a sentence."""


def with_tasks(status: RaceStatus, sweep: Sweep, files: StateFiles) -> RaceStatus:
    """Return the status of a sweep, made of that of its jobs and of what its tasks did."""
    counts = count(sweep, files.tasks)
    state, why = _state(status, counts, files)
    starts = [run.started_at for run in files.tasks.runs.values()]
    ends = [run.ended_at for run in files.tasks.runs.values() if run.ended_at]
    return replace(
        status,
        state=state,
        why=why,
        exit_code=0 if state is RaceState.COMPLETED else None,
        tasks=counts,
        started_at=min(starts, default=None),
        ended_at=max(ends, default=None) if state.is_over else None,
    )


def _state(status: RaceStatus, counts: TaskCounts, files: StateFiles) -> tuple[RaceState, str]:
    if counts.done == counts.tasks:
        return RaceState.COMPLETED, ""
    if counts.is_settled:
        return RaceState.FAILED, _losses(files.tasks)
    if status.state.is_over or _have_all_ended(status):
        return _state_without_workers(status, counts, files)
    if counts.running and status.state is RaceState.PENDING and not files.stopped:
        return RaceState.RUNNING, ""
    return status.state, status.why


def _state_without_workers(
    status: RaceStatus, counts: TaskCounts, files: StateFiles
) -> tuple[RaceState, str]:
    """Return the state of a sweep that has tasks left, and no job any more."""
    if counts.running:
        return RaceState.UNKNOWN, f"{counts.running} tasks have no end yet, and Slurm is asked"
    if not status.state.is_over:
        return RaceState.UNKNOWN, "its workers have ended, and tasks of theirs may not show yet"
    if status.state in _NOT_STARTED and (files.stopped or not counts.has_started):
        return status.state, status.why
    parts = (f"{counts.waiting} tasks were never started", _losses(files.tasks))
    return RaceState.FAILED, "; ".join(filter(None, parts))


def _have_all_ended(status: RaceStatus) -> bool:
    """Whether Slurm says of each job that was sent that it has ended."""
    sent = [job for job in status.jobs if job.job_id]
    is_known = status.state is RaceState.UNKNOWN and bool(sent)
    return is_known and all(job.state.is_terminal for job in sent)


def _losses(runs: TaskRuns) -> str:
    """Say how workers that lost tasks ended."""
    lost = {run.worker for run in runs.runs.values() if run.code is None or run.signal}
    ends = sorted({runs.ended_workers[each] for each in lost & runs.ended_workers.keys()})
    more = [f"{len(ends) - _MOST_NAMED} more"] if len(ends) > _MOST_NAMED else []
    return ", ".join([*ends[:_MOST_NAMED], *more])


def silent_workers(runs: TaskRuns, records: Iterable[JobRecord]) -> tuple[str, ...]:
    """Return the workers whose end is in question and that the queue does not show at work."""
    active = {record.job_id for record in records if is_active(record)}
    active -= {r.job_id for r in records if r.state.is_pending}
    return tuple(
        worker for worker in sorted(runs.unexplained()) if worker_job(worker)[0] not in active
    )


def ends_of(workers: Iterable[str], race: Race, records: Sequence[JobRecord]) -> dict[str, str]:
    """Say of each worker whose end Slurm records how it ended."""
    by_job: dict[int, list[JobRecord]] = {}
    for record in records:
        if record.name in race.job_names:
            by_job.setdefault(record.job_id, []).append(record)
    ends = {worker: _end(worker, by_job.get(worker_job(worker)[0], [])) for worker in workers}
    return {worker: end for worker, end in ends.items() if end}


def _end(worker: str, records: Iterable[JobRecord]) -> str:
    """Say how a worker ended, "" where no record proves it.

    An answer of the queue may be older than the worker: it counts by the number of restarts, which
    accounting does not have everywhere.
    """
    job_id, restart = worker_job(worker)
    for record in records:
        is_counted = record.source != ACCOUNTING
        if is_counted and record.restarts > restart:
            return f"job {job_id} was restarted by Slurm"
        if record.state.is_terminal and (not is_counted or record.restarts == restart):
            return f"job {job_id} {record.state}" + (f" on {record.nodes}" if record.nodes else "")
    return ""
