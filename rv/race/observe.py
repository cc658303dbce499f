"""Gather what the sources say of races: marks, the queue, then questions for the vanished."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rv.models.job import JobRecord
from rv.models.race import NEXT, Marks, Race, RaceStatus
from rv.race.directory import MARKS, RECORD, read_marks, read_record
from rv.race.doubt import forgotten
from rv.race.evidence import Evidence
from rv.race.marks import leave_mark
from rv.race.recall import keep, remembered
from rv.race.truth import is_known, resolve, unaccounted
from rv.render.quote import shell
from rv.slurm.jobs import (
    parse_sacct,
    parse_show_jobs,
    sacct_script,
    show_jobs_script,
)
from rv.slurm.probe import new_sentinel
from rv.transport import Transport


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """One look at a race: its status, its marks, Slurm's records, and whether Slurm answered.

    `forgotten` are the submissions that Slurm took and has lost; `accounted` says that accounting
    answered too; `now` is when, seconds since the epoch.
    """

    status: RaceStatus
    marks: Marks
    records: tuple[JobRecord, ...]
    reachable: bool
    forgotten: tuple[int, ...] = ()
    accounted: bool = False
    now: float = 0.0


def load_races(root: str, cluster: str, transport: Transport) -> tuple[Race, ...]:
    """Read the records of this cluster's races, newest first."""
    races = (load_race(f"{root}/{name}", transport) for name in transport.directories(root))
    ours = [race for race in races if race is not None and race.cluster == cluster]
    return tuple(sorted(ours, key=lambda race: -race.submitted_at))


def load_race(directory: str, transport: Transport) -> Race | None:
    """Read one race's record; None where there is none."""
    text = transport.read(f"{directory}/{RECORD}")
    return read_record(text.decode("utf-8", errors="replace"), directory) if text else None


def load_marks(race: Race, transport: Transport) -> Marks:
    """Read the marks that a race's jobs have left so far."""
    return remembered(race, read_marks(transport.read_tree(race.directory, MARKS)), transport)


def observe(
    races: Sequence[Race],
    transport: Transport,
    records: tuple[JobRecord, ...] | None,
    now: float,
) -> tuple[Observation, ...]:
    """Look at races, with the queue's `records`, and one more round trip for vanished jobs.

    `records` is None where no controller answered: then it is not asked anything else.
    """
    marks = {race.race_id: load_marks(race, transport) for race in races}
    vanished = {
        race.race_id: unaccounted(race, marks[race.race_id], records or ()) for race in races
    }
    found = _ask_singly(races, marks, vanished, transport) if records is not None else None
    # Read again: a job leaves its last word before Slurm has its end, and time has passed.
    marks = {race.race_id: load_marks(race, transport) for race in races}
    return tuple(
        _observed(race, marks[race.race_id], vanished[race.race_id], records, found, now, transport)
        for race in races
    )


def _observed(
    race: Race,
    marks: Marks,
    vanished: Sequence[int],
    records: tuple[JobRecord, ...] | None,
    found: "_Found | None",
    now: float,
    transport: Transport,
) -> Observation:
    """Decide one race by its marks, the queue's records and what was found of the vanished."""
    ours = _believable(race, (*(records or ()), *(found.records if found else ())))
    if found is not None:  # silence is no absence
        missing = [number for number in vanished if not is_known(race, marks, number, ours)]
        marks = _note_absent(race, marks, missing, now, transport)
    accounted = bool(found and found.accounted)
    recycled = found.recycled if found else frozenset()
    lost = forgotten(race, marks, ours, now, accounted=accounted, recycled=recycled)
    evidence = Evidence(records=ours, now=now, is_whole=records is not None, forgotten=lost)
    status = resolve(race, marks, evidence)
    if race.chain:
        status = replace(status, saved_at=_saved_at(race, transport))
    return Observation(
        status=status,
        marks=marks,
        records=ours,
        reachable=records is not None,
        forgotten=lost,
        accounted=accounted,
        now=now,
    )


def _saved_at(race: Race, transport: Transport) -> float | None:
    """When the latest checkpoint was written, seconds since the epoch."""
    find = "find checkpoints -type f ! -name '.rv-*' -printf '%T@\\n' | sort -n | tail -n 1"
    found = transport.run(f"cd {shell(race.directory)} && {find}", timeout=30).stdout.strip()
    try:
        return float(found) if found else None
    except ValueError:
        return None


def _names(records: Iterable[JobRecord]) -> frozenset[str]:
    return frozenset(record.name for record in records)


def _believable(race: Race, records: Iterable[JobRecord]) -> tuple[JobRecord, ...]:
    names = frozenset(race.job_names)
    return tuple(record for record in records if record.name in names)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """What Slurm says of single jobs: `recycled` ids are other jobs' now."""

    records: tuple[JobRecord, ...] = ()
    accounted: bool = False
    recycled: frozenset[int] = frozenset()


def _ask_singly(
    races: Sequence[Race],
    marks: Mapping[str, Marks],
    vanished: Mapping[str, Sequence[int]],
    transport: Transport,
) -> _Found | None:
    """Ask the controller by id, then accounting by name, for jobs that left the queue.

    None where the controller is silent; accounting may be missing altogether.
    """
    wanted = [(race, number) for race in races for number in vanished[race.race_id]]
    if not wanted:
        return _Found()
    names = {race.name_of(number) for race, number in wanted}
    ids = sorted({i for race, n in wanted for i in _ids(marks[race.race_id], n)})
    shown = _ask(show_jobs_script(ids, mark := new_sentinel()), mark, parse_show_jobs, transport)
    if shown is None:
        return None
    found = tuple(record for record in shown if record.name in names)
    recycled = frozenset(r.job_id for r in shown if r.name not in names)
    names -= _names(found)
    if not names:
        return _Found(records=found, recycled=recycled)
    # A day's margin: accounting's clock and zone need not be ours.
    oldest = min(race.submitted_at for race, _ in wanted) - 86400
    since = datetime.fromtimestamp(oldest)  # noqa: DTZ006 - sacct takes the site's local time
    script = sacct_script(sorted(names), since, mark := new_sentinel())
    accounted = _ask(script, mark, parse_sacct, transport)
    # A job that was requeued has a record for each run: the newest, which comes last, is its own.
    newest = {record.job_id: record for record in accounted or () if record.name in names}
    return _Found(
        records=(*found, *reversed(newest.values())),
        accounted=accounted is not None,
        recycled=recycled,
    )


def _ids(marks: Marks, number: int) -> tuple[int, ...]:
    """The ids of a submission: those that sbatch gave, and the one that claimed."""
    claim = marks.claim
    claimed = (claim.job_id,) if claim and number in (claim.submission, NEXT) else ()
    return (*dict(marks.job_ids).get(number, ()), *claimed)


def _ask(
    script: str,
    sentinel: str,
    parse: Callable[[str, str], tuple[JobRecord, ...] | None],
    transport: Transport,
) -> tuple[JobRecord, ...] | None:
    completed = transport.run(script, timeout=40)
    return parse(completed.stdout, sentinel)


def _note_absent(
    race: Race, marks: Marks, missing: Sequence[int], now: float, transport: Transport
) -> Marks:
    """Write down when a healthy controller first did not know a job, and forget what came back."""
    since = dict(marks.absent_since)
    for number in missing:
        if since.get(number, now + 1) > now:  # or by a clock that was ahead of ours
            since[number] = now
            leave_mark(race, f"absent/{number}", f"{now:.0f}\n", transport)
    for number in since.keys() - set(missing):
        leave_mark(race, f"absent/{number}", "", transport)
    kept = tuple((number, at) for number, at in since.items() if number in missing)
    return keep(race, replace(marks, absent_since=kept))
