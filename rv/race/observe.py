"""Gather what the sources say of races: files, the queue, then questions for the vanished."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rv.models.job import JobRecord
from rv.models.race import NEXT, Race, RaceStatus, StateFiles
from rv.race.directory import (
    cache,
    load_state_files,
    write_state_file,
)
from rv.race.sources import Sources
from rv.race.status import is_known, resolve, unaccounted
from rv.race.unconfirmed import forgotten
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
class RaceSnapshot:
    """A race at one moment: status, state files, Slurm's records, and whether Slurm answered.

    `forgotten` are the submissions that Slurm took and has lost; `accounting_answered` is of sacct;
    `now` is the moment, seconds since the epoch.
    """

    status: RaceStatus
    files: StateFiles
    records: tuple[JobRecord, ...]
    reachable: bool
    forgotten: tuple[int, ...] = ()
    accounting_answered: bool = False
    now: float = 0.0


def observe(
    races: Sequence[Race],
    transport: Transport,
    records: tuple[JobRecord, ...] | None,
    now: float,
) -> tuple[RaceSnapshot, ...]:
    """Look at races, with the queue's `records`, and one more round trip for vanished jobs.

    `records` is None where no controller answered: then it is not asked anything else.
    """
    files = {race.race_id: load_state_files(race, transport) for race in races}
    vanished = {
        race.race_id: unaccounted(race, files[race.race_id], records or ()) for race in races
    }
    found = _ask_singly(races, files, vanished, transport) if records is not None else None
    # Read again: a job leaves its last word before Slurm has its end, and time has passed.
    files = {race.race_id: load_state_files(race, transport) for race in races}
    return tuple(
        _observed(race, files[race.race_id], vanished[race.race_id], records, found, now, transport)
        for race in races
    )


def _observed(
    race: Race,
    files: StateFiles,
    vanished: Sequence[int],
    records: tuple[JobRecord, ...] | None,
    found: "_Found | None",
    now: float,
    transport: Transport,
) -> RaceSnapshot:
    """Decide one race by its files, the queue's records and what was found of the vanished."""
    ours = _believable(race, (*(records or ()), *(found.records if found else ())))
    if found is not None:  # silence is no absence
        missing = [number for number in vanished if not is_known(race, files, number, ours)]
        files = _note_absent(race, files, missing, now, transport)
    accounting_answered = bool(found and found.accounting_answered)
    recycled = found.recycled if found else frozenset()
    lost = forgotten(
        race, files, ours, now, accounting_answered=accounting_answered, recycled=recycled
    )
    sources = Sources(records=ours, now=now, queue_answered=records is not None, forgotten=lost)
    status = resolve(race, files, sources)
    if race.chain:
        status = replace(status, saved_at=_saved_at(race, transport))
    return RaceSnapshot(
        status=status,
        files=files,
        records=ours,
        reachable=records is not None,
        forgotten=lost,
        accounting_answered=accounting_answered,
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
    accounting_answered: bool = False
    recycled: frozenset[int] = frozenset()


def _ask_singly(
    races: Sequence[Race],
    files: Mapping[str, StateFiles],
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
    ids = sorted({i for race, n in wanted for i in _ids(files[race.race_id], n)})
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
    accounting_answered = _ask(script, mark, parse_sacct, transport)
    # A job that was requeued has a record for each run: the newest, which comes last, is its own.
    newest = {record.job_id: record for record in accounting_answered or () if record.name in names}
    return _Found(
        records=(*found, *reversed(newest.values())),
        accounting_answered=accounting_answered is not None,
        recycled=recycled,
    )


def _ids(files: StateFiles, number: int) -> tuple[int, ...]:
    """The ids of a submission: those that sbatch gave, and the one that claimed."""
    claim = files.claim
    claimed = (claim.job_id,) if claim and number in (claim.submission, NEXT) else ()
    return (*dict(files.job_ids).get(number, ()), *claimed)


def _ask(
    script: str,
    sentinel: str,
    parse: Callable[[str, str], tuple[JobRecord, ...] | None],
    transport: Transport,
) -> tuple[JobRecord, ...] | None:
    completed = transport.run(script, timeout=40)
    return parse(completed.stdout, sentinel)


def _note_absent(
    race: Race, files: StateFiles, missing: Sequence[int], now: float, transport: Transport
) -> StateFiles:
    """Write down when a healthy controller first did not know a job, and forget what came back."""
    since = dict(files.absent_since)
    for number in missing:
        if since.get(number, now + 1) > now:  # or by a clock that was ahead of ours
            since[number] = now
            write_state_file(race, f"absent/{number}", f"{now:.0f}\n", transport)
    for number in since.keys() - set(missing):
        write_state_file(race, f"absent/{number}", "", transport)
    kept = tuple((number, at) for number, at in since.items() if number in missing)
    return cache(race, replace(files, absent_since=kept))
