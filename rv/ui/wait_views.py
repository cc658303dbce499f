"""A race that waits: its headline and a table of its jobs. Pure."""

from datetime import timedelta
from math import inf
from typing import Final

from rv.models.job import JobState
from rv.models.quantities import short_duration
from rv.models.race import Entry, JobStatus, RaceStatus
from rv.ui.explanation_views import job_sentence
from rv.ui.race_facts import planned_start_s
from rv.ui.tables import Table

_NOT_SENT: Final = "-"
_LONGEST_UNIT: Final = 6
"""Letters of a unit that the head of a column has room for; `billing hours` folds it."""


def wait_headline(status: RaceStatus, now_s: float, keys: str, columns: int) -> str:
    """Say how long a race has waited, for what, and what the `keys` do.

    Where that is wider than `columns`, what comes first is left out: the table's first row says it.
    `now_s` is seconds since the epoch.
    """
    clock = _clock(round(max(0.0, now_s - status.race.submitted_at)))
    count = _how_many_wait(status)
    whole = _joined(clock, count, _foremost(status, now_s), keys)
    return whole if len(whole) <= columns else _joined(clock, count, keys)


def _joined(clock: str, *parts: str) -> str:
    return f"{clock}  {' · '.join(filter(None, parts))}".rstrip()


def wait_keys(ctrl_c: str, *, leave: str) -> str:
    """Say what Ctrl-C does, cancels or detaches, and which key leaves the race, if one does."""
    if not leave:
        return f"Ctrl-C {ctrl_c}"
    if ctrl_c == "detaches":
        return f"Ctrl-C or {leave} detaches"
    return f"Ctrl-C {ctrl_c}, {leave} detaches"


def _how_many_wait(status: RaceStatus) -> str:
    """Count the jobs that wait; say nothing where all have started."""
    jobs = sum(job.state.is_pending or _is_new(job) for job in status.jobs)
    return f"{jobs} job{'' if jobs == 1 else 's'} waiting" if jobs else ""


def _foremost(status: RaceStatus, now_s: float) -> str:
    """Name the job that checks its node, else the one that Slurm plans to start first."""
    for job in status.jobs:
        if job.state is JobState.RUNNING:
            return f"{_what(status, job)} checks its node"
    starts = [(planned_start_s(job, status, now_s), job.number, job) for job in status.jobs]
    planned = [(start_s, number, job) for start_s, number, job in starts if start_s is not None]
    if not planned:
        return ""
    start_s, _, first = min(planned)
    return f"best {_what(status, first)} {_planned(start_s)}"


def wait_table(status: RaceStatus, now_s: float, most_rows: int) -> Table:
    """List the jobs, those that start first on top; at most `most_rows`, the rest as a number."""
    jobs = sorted(_listed(status), key=lambda job: _rank(job, status, now_s))
    entries = {entry.number: entry for entry in status.race.entries}
    shown = jobs if len(jobs) <= most_rows else jobs[: max(1, most_rows - 1)]
    rows = [_row(job, entries.get(job.number), status, now_s) for job in shown]
    if len(jobs) > len(shown):
        rows.append((f"+{len(jobs) - len(shown)}", *[""] * 6))
    unit = next((entry.cost_unit for entry in status.race.entries if entry.cost_unit), "")
    cost = f"COST ({unit})" if 0 < len(unit) <= _LONGEST_UNIT else "COST"
    head = ("JOB", "GPU", "LAYOUT", "STATE", "START", cost, "WHY")
    return Table(head=head, rows=rows)


def _listed(status: RaceStatus) -> list[JobStatus]:
    """Return the jobs to list: not the parts of a merged one, unless they were sent."""
    parts = {entry.number for entry in status.race.entries if entry.instead_of}
    return [job for job in status.jobs if job.number not in parts or job.job_id]


def _rank(job: JobStatus, status: RaceStatus, now_s: float) -> tuple[bool, float, int]:
    """Those that have started come first, then by planned start, then as they were sent."""
    planned_s = planned_start_s(job, status, now_s)
    return (
        job.state is not JobState.RUNNING,
        inf if planned_s is None else planned_s,
        job.number,
    )


def _row(job: JobStatus, entry: Entry | None, status: RaceStatus, now_s: float) -> tuple[str, ...]:
    planned_s = planned_start_s(job, status, now_s)
    cost = entry.cost if entry else None
    return (
        str(job.job_id) if job.job_id else _NOT_SENT,
        _gpu(entry),
        _layout(entry),
        _NOT_SENT if job.state is JobState.UNKNOWN else job.state,
        _NOT_SENT if planned_s is None else _planned(planned_s),
        "-" if cost is None else f"{cost:.1f}",
        _why(job),
    )


def _why(job: JobStatus) -> str:
    """Say why a job waits; of one that is over its state says enough."""
    why = "submitted" if _is_new(job) else job_sentence(job)
    return "-" if why == job.state else why


def _is_new(job: JobStatus) -> bool:
    """Whether Slurm took a job, and was not asked for it since."""
    return job.job_id != 0 and job.state is JobState.UNKNOWN


def _gpu(entry: Entry | None) -> str:
    """Name the GPU model, or the models of a merged job."""
    return entry.gpu.replace("|", ", ") if entry and entry.gpu else "-"


def _layout(entry: Entry | None) -> str:
    return f"{entry.nodes}x{entry.gpus // entry.nodes}" if entry and entry.nodes else "-"


def _what(status: RaceStatus, job: JobStatus) -> str:
    entry = status.race.entry(job.number)
    return f"{_gpu(entry)} {_layout(entry)}" if entry and entry.gpu else job.strategy


def _planned(seconds: float) -> str:
    return f"~{short_duration(timedelta(seconds=max(1, round(seconds))))}"


def _clock(seconds: int) -> str:
    """Write 42 s as 00:42, and hours before them where there are any."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"
