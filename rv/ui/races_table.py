"""The table of `rv ps`, and what it says in lines where there is no terminal. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from rv.models.quantities import short_duration
from rv.models.race import JobStatus, RaceState, RaceStatus
from rv.ui.fitting import NOTHING, Column, fitted
from rv.ui.race_facts import ends_by_s, gpu_count, gpu_models, layouts, ran_s, typed_command
from rv.ui.race_views import seconds_text
from rv.ui.reasons import sentence
from rv.ui.tables import Part, Table, cropped
from rv.ui.wait_views import planned_start_s

_MOST_COMMAND: Final = 80
"""Columns of a command where there is no terminal that would set a limit."""

_OTHER_LINES: Final = 3
"""Lines of a terminal beside the rows: headline, head and cursor."""

_QUIET: Final = frozenset(
    {"", "None", "Priority", "Resources", "BeginTime", "Prolog", "stopped by you"}
)
"""Reasons that the user knows or the time tells: on a narrow terminal they get no line."""


def races_text(races: Sequence[RaceStatus], now_s: float, width: int) -> list[Part]:
    """List races, newest first, within `width` columns of a terminal; 0 is none."""
    return [races_table(races, now_s, width)] if races else ["no races"]


def races_table(races: Sequence[RaceStatus], now_s: float, width: int) -> Table:
    """Lay races out; why they are as they are stands below where there is no column for it."""
    whys = [_why(status, now_s) or NOTHING for status in races]
    short = [_why(replace(s, why=_foremost_reason(s)), now_s) or NOTHING for s in races]
    why = Column(title="WHY", cells=whys, short=short, rank=9, least=24)
    table = fitted([*_columns(races, now_s, width), why], width)
    if not width or "WHY" in table.head:
        return table
    notes = [cropped(_note(status, now_s), width - 2) for status in races]
    return replace(table, below=notes)


def _columns(races: Sequence[RaceStatus], now_s: float, width: int) -> list[Column]:
    """The columns but the last; what is left out first is what other commands tell too."""
    gpus = [_gpus(status) for status in races]
    shapes = [layouts(status) for status in races]
    commands = [_command(status) for status in races]
    if not width:
        commands = [cropped(command, _MOST_COMMAND) for command in commands]
    ages = (seconds_text(max(0.0, now_s - status.race.submitted_at)) for status in races)
    return [
        Column(title="RACE", cells=[status.race.race_id for status in races], least=8),
        Column(title="NAME", cells=[s.race.name or NOTHING for s in races], rank=5, least=8),
        Column(title="STATE", cells=[status.state for status in races]),
        Column(title="CODE", cells=[_code(status) for status in races], rank=4),
        Column(title="GPU", cells=_listed(gpus), short=_shortened(gpus), rank=2),
        Column(title="LAYOUT", cells=_listed(shapes), short=_shortened(shapes), rank=3),
        Column(title="TIME", cells=[_time(status, now_s) for status in races], rank=1, least=10),
        Column(title="JOB", cells=[_job(status) for status in races], rank=8),
        Column(title="NODES", cells=[_nodes(status) for status in races], rank=6, least=8),
        Column(title="AGE", cells=list(ages), rank=7),
        Column(title="COMMAND", cells=commands, least=12, wanted=30),
    ]


def watched_races(
    races: Sequence[RaceStatus], now_s: float, width: int, lines: int, notice: str
) -> list[Part]:
    """Lay races out for a terminal that shows them as they change: those that are not over first.

    `notice` is what else the line above them says.
    """
    waiting = sum(not status.state.is_over and status.claim is None for status in races)
    running = sum(status.state is RaceState.RUNNING for status in races)
    headline = f"{waiting} waiting, {running} running · {notice}"
    order = sorted(races, key=lambda status: status.state.is_over)
    shown = (
        order if len(order) <= lines - _OTHER_LINES else order[: max(1, lines - _OTHER_LINES - 1)]
    )
    left = len(order) - len(shown)
    more: list[Part] = [f"… {left} more, which rv ps lists"] if left else []
    return [headline, *races_text(shown, now_s, width), *more]


def race_lines(races: Iterable[RaceStatus]) -> Mapping[str, str]:
    """Say of each race what is news when it changes, by its id."""
    return {status.race.race_id: _line(status) for status in races}


def _line(status: RaceStatus) -> str:
    claim = status.claim
    where = f"on {claim.nodes} as job {claim.job_id}" if claim else ""
    code = f"exit code {_code(status)}" if _code(status) != NOTHING else ""
    asked = ", ".join(_gpus(status))
    if claim and asked:
        asked = " ".join([asked, *layouts(status)])
    why = sentence(_foremost_reason(status)) if not status.exit_code else ""
    parts = [asked, where, code, why, cropped(_command(status), _MOST_COMMAND)]
    name = " ".join(filter(None, (status.race.race_id, status.race.name, status.state)))
    return f"{name}: {', '.join(filter(None, parts))}"


def _gpus(status: RaceStatus) -> list[str]:
    """Name the GPUs, `4x a100`, and other models that the race may get."""
    count = gpu_count(status)
    first, *others = gpu_models(status) or ["GPU"]
    return [f"{count}x {first}", *others] if count else []


def _listed(names: Iterable[Sequence[str]]) -> list[str]:
    return [", ".join(each) or NOTHING for each in names]


def _shortened(names: Iterable[Sequence[str]]) -> list[str]:
    """The first name, and how many more there are."""
    return [
        f"{each[0]} +{len(each) - 1}" if len(each) > 1 else each[0] if each else NOTHING
        for each in names
    ]


def _code(status: RaceStatus) -> str:
    """The exit code where the state does not tell it."""
    is_told = status.exit_code is None or status.state is RaceState.COMPLETED
    return NOTHING if is_told else str(status.exit_code)


def _time(status: RaceStatus, now_s: float) -> str:
    """What is left of the walltime; when it starts, or what it waits for; how long it ran."""
    if status.state.is_over:
        ran = ran_s(status)
        return NOTHING if ran is None else f"ran {seconds_text(ran)}"
    ends_s = ends_by_s(status)
    if ends_s is not None:
        return f"{seconds_text(max(0.0, ends_s - now_s))} left"
    planned = [planned_start_s(job, status, now_s) for job in status.jobs]
    soonest = min((start_s for start_s in planned if start_s is not None), default=None)
    if soonest is not None:
        return f"in ~{seconds_text(max(1.0, soonest))}"
    reasons = _reasons(status.jobs)
    return f"({reasons[0]})" if reasons else NOTHING


def _reasons(jobs: Iterable[JobStatus]) -> list[str]:
    """Why jobs wait, the best news first; that rv holds one back itself is no news."""
    found = {job.reason for job in jobs if job.state.is_pending} - {"", "None"}
    others = found - {"BeginTime"} or found
    return sorted(others, key=lambda reason: (reason != "Resources", reason != "Priority", reason))


def _foremost_reason(status: RaceStatus) -> str:
    """Why the race waits, in one reason where it has several."""
    reasons = _reasons(status.jobs) if set(status.why.split(", ")) <= _QUIET else []
    return reasons[0] if reasons else status.why


def _job(status: RaceStatus) -> str:
    if status.claim:
        return str(status.claim.job_id)
    pending = sum(job.state.is_pending for job in status.jobs)
    return f"{pending} pending" if pending else NOTHING


def _nodes(status: RaceStatus) -> str:
    return status.claim.nodes or NOTHING if status.claim else NOTHING


def _command(status: RaceStatus) -> str:
    return typed_command(status) or ("(shell)" if status.race.is_shell else NOTHING)


def _why(status: RaceStatus, now_s: float) -> str:
    """What is to be said of a race beside its state."""
    waits = status.state is RaceState.PENDING and not status.claim
    why = sentence(status.why) if waits and status.why else status.why
    return "; ".join(filter(None, (_retry(status), _segments(status, now_s), why)))


def _note(status: RaceStatus, now_s: float) -> str:
    """The same, but for what every queue has jobs wait for, and what the code says."""
    is_told = status.state is RaceState.FAILED and status.exit_code is not None
    is_told = is_told or status.why == f"Slurm says {status.state}"
    if is_told or set(status.why.split(", ")) <= _QUIET:
        status = replace(status, why="")
    return _why(status, now_s)


def _retry(status: RaceStatus) -> str:
    """Name the lost race that this one starts again."""
    return f"retries {status.race.retry_of}" if status.race.retry_of else ""


def _segments(status: RaceStatus, now_s: float) -> str:
    """A chain as one thing: its segment, its time of the whole, its last checkpoint."""
    claim, chain = status.claim, status.race.chain
    if claim is None or chain is None:
        return ""
    elapsed_s = status.elapsed_s or 0.0
    if status.state is RaceState.RUNNING:
        elapsed_s += max(0.0, now_s - claim.started_at)
    ran = short_duration(timedelta(seconds=round(elapsed_s)))
    parts = [f"segment {claim.segment}", f"{ran} of {short_duration(chain.total)}"]
    if status.saved_at is not None:
        ago = timedelta(seconds=round(max(0.0, now_s - status.saved_at)))
        parts.append(f"checkpoint {short_duration(ago)} ago")
    return ", ".join(parts)
