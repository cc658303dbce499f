"""The table of `rv ps`, and what it says in lines where there is no terminal. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from rv.dataclass import dataclass
from rv.models.quantities import short_duration
from rv.models.race import JobStatus, RaceState, RaceStatus
from rv.ui.fitting import NOTHING, Column, fitted
from rv.ui.race_facts import (
    ends_by_s,
    gpu_count,
    gpu_models,
    layouts,
    planned_start_s,
    ran_s,
    typed_command,
)
from rv.ui.race_views import seconds_text, tasks_text
from rv.ui.reasons import sentence
from rv.ui.tables import Part, Table, cropped

_MOST_COMMAND: Final = 80
"""Columns of a command: the rest of a longer one is in the JSON."""

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
    table = fitted([form.column(races, now_s) for form in _forms()], width)
    if not width or "WHY" in table.head:
        return table
    notes = [cropped(_note(status, now_s), width - 2) for status in races]
    return replace(table, below=notes)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Form:
    """A column of the table: what it says of a race at a moment, and its place among others.

    `short` says it where there is little room. The other fields are those of `Column`.
    """

    title: str
    cell: Callable[[RaceStatus, float], str]
    short: Callable[[RaceStatus, float], str] | None = None
    rank: int = 0
    least: int = 0
    wanted: int = 0

    def column(self, races: Sequence[RaceStatus], now_s: float) -> Column:
        short = self.short or self.cell
        return Column(
            title=self.title,
            cells=[self.cell(status, now_s) or NOTHING for status in races],
            short=[short(status, now_s) or NOTHING for status in races],
            rank=self.rank,
            least=self.least,
            wanted=self.wanted,
        )


def _forms() -> tuple[_Form, ...]:
    """The columns in their order; what is left out first is what other commands tell too."""
    return (
        _Form(title="RACE", cell=lambda race, _: race.race.race_id, least=8),
        _Form(title="NAME", cell=lambda race, _: race.race.name, rank=5, least=8),
        _Form(title="STATE", cell=lambda race, _: race.state),
        _Form(title="CODE", cell=lambda race, _: _code(race), rank=4),
        _Form(
            title="GPU",
            cell=lambda race, _: ", ".join(_gpus(race)),
            short=lambda race, _: _shortened(_gpus(race)),
            rank=2,
        ),
        _Form(
            title="LAYOUT",
            cell=lambda race, _: ", ".join(layouts(race)),
            short=lambda race, _: _shortened(layouts(race)),
            rank=3,
        ),
        _Form(title="TIME", cell=_time, rank=1, least=10),
        _Form(title="JOB", cell=lambda race, _: _job(race), rank=8),
        _Form(title="NODES", cell=lambda race, _: _nodes(race), rank=6, least=8),
        _Form(title="AGE", cell=_age, rank=7),
        _Form(title="COMMAND", cell=lambda race, _: _command(race), least=12, wanted=30),
        _Form(title="WHY", cell=_why, short=_short_why, rank=9, least=24),
    )


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
    asked = _shortened(_gpus(status))
    if claim and asked:
        asked = " ".join([asked, *layouts(status)])
    why = sentence(_foremost_reason(status)) if not status.exit_code else ""
    tasks = tasks_text(status.tasks) if status.tasks else ""
    parts = [tasks, asked, where, code, why, _command(status)]
    name = " ".join(filter(None, (status.race.race_id, status.race.name, status.state)))
    return f"{name}: {', '.join(filter(None, parts))}"


def _gpus(status: RaceStatus) -> list[str]:
    """Name the GPUs, `4x a100`, and other models that the race may get."""
    count = gpu_count(status)
    first, *others = gpu_models(status) or ["GPU"]
    return [f"{count}x {first}", *others] if count else []


def _shortened(names: Sequence[str]) -> str:
    """The first name, and how many more there are."""
    first, *others = names or [""]
    return f"{first} +{len(others)}" if others else first


def _age(status: RaceStatus, now_s: float) -> str:
    return seconds_text(max(0.0, now_s - status.race.submitted_at))


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
    command = typed_command(status) or ("(shell)" if status.race.is_shell else NOTHING)
    return cropped(command, _MOST_COMMAND)


def _why(status: RaceStatus, now_s: float) -> str:
    """What is to be said of a race beside its state."""
    waits = status.state is RaceState.PENDING and not status.claim
    why = sentence(status.why) if waits and status.why else status.why
    tasks = tasks_text(status.tasks) if status.tasks else ""
    return "; ".join(filter(None, (_retry(status), tasks, _segments(status, now_s), why)))


def _short_why(status: RaceStatus, now_s: float) -> str:
    return _why(replace(status, why=_foremost_reason(status)), now_s)


def _note(status: RaceStatus, now_s: float) -> str:
    """The same, but for what every queue has jobs wait for, and what the code says."""
    is_told = status.state is RaceState.FAILED and status.exit_code is not None
    is_told = is_told or status.why == f"Slurm says {status.state}"
    if is_told or set(status.why.split(", ")) <= _QUIET:
        status = replace(status, why="")
    return _why(status, now_s)


def _retry(status: RaceStatus) -> str:
    """Name the race that this one starts again, or whose checkpoints it began with."""
    race = status.race
    if race.resumes:
        return f"resumes {race.resumes}"
    return f"retries {race.retry_of}" if race.retry_of else ""


def _segments(status: RaceStatus, now_s: float) -> str:
    """A chain as one thing: its segment, its time of the whole, its last checkpoint."""
    claim = status.claim
    if claim is None or status.race.chain is None:
        return ""
    used_s = status.used_s or 0.0
    if status.state is RaceState.RUNNING:
        used_s += max(0.0, now_s - claim.started_at)
    used, total = (
        short_duration(timedelta(seconds=round(each))) for each in (used_s, status.total_s)
    )
    parts = [f"segment {claim.segment}", f"{used} of {total}"]
    if status.saved_at is not None:
        ago = timedelta(seconds=round(max(0.0, now_s - status.saved_at)))
        parts.append(f"checkpoint {short_duration(ago)} ago")
    return ", ".join(parts)
