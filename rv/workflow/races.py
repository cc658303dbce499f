"""Races of before: list them, find one, stop it; whatever a dead client left is put in order."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.job import JobRecord
from rv.models.race import Race, RaceStatus
from rv.race.cancel import CancelResult, cancel_late_jobs, leftover_jobs, stop
from rv.race.directory import load_race, load_races, load_state_files
from rv.race.observe import RaceSnapshot, observe
from rv.race.recover import advance, cancel_jobs_of_deleted_races
from rv.race.sources import is_active
from rv.race.submit import SubmitOutcome
from rv.race.verdict_file import is_settled, load_verdict
from rv.workflow.cluster import Cluster

_FRESH: Final = timedelta(seconds=1)
_KEPT: Final = timedelta(days=30)
_HALF_STAGED: Final = re.compile(r"\.[a-z0-9]{8}\.(\d{1,12})\..*", re.ASCII)
_STAGING_S: Final = 3600.0


def list_races(target: Cluster, now: float) -> tuple[RaceStatus, ...]:
    """Tell the state of every race on this cluster, newest first, and cancel what is left over."""
    _sweep(target, now)
    races = _prune(load_races(target.race_root, target.key, target.transport), target, now)
    return _see_to(races, target, now)


def tidy(target: Cluster, now: float) -> None:
    """Put in order what dead clients left: races without a verdict, and jobs of those with one.

    What cannot be done now is for the next command.
    """
    with suppress(RvError):
        queue = target.queue.records(_FRESH)
        if queue is None:
            return
        names = {record.name for record in queue if is_active(record)}
        root, transport = target.race_root, target.transport
        busy = {name.split("-")[1] for name in names if name.count("-") > 1}
        found = (
            load_race(f"{root}/{race_id}", transport)
            for race_id in transport.directories(root)
            if race_id in busy or not is_settled(f"{root}/{race_id}", transport)
        )
        _see_to([race for race in found if race and race.cluster == target.key], target, now)


def _see_to(races: Sequence[Race], target: Cluster, now: float) -> tuple[RaceStatus, ...]:
    """Tell the state of races, and do for each what it needs."""
    settled = {race.race_id: _settled(race, target) for race in races}
    open_races = [race for race in races if settled[race.race_id] is None]
    queue = target.queue.records(_FRESH)
    cancel_jobs_of_deleted_races(target.race_root, queue or (), target.transport)
    _reap_strays([race for race in races if race not in open_races], queue, target)
    seen = observe(open_races, target.transport, queue, now) if open_races else ()
    _advance(seen, target)
    live = {observation.status.race.race_id: observation.status for observation in seen}
    return tuple(settled[race.race_id] or live[race.race_id] for race in races)


def look_at(race: Race, target: Cluster, now: float) -> tuple[RaceStatus, tuple[JobRecord, ...]]:
    """Tell the state of one race, with Slurm's records of its jobs, and cancel what is left over.

    A race whose verdict is kept needs no records, and has none.
    """
    if settled := _settled(race, target):
        _reap_strays([race], target.queue.records(_FRESH), target)
        return settled, ()
    (seen,) = observe([race], target.transport, target.queue.records(_FRESH), now)
    _advance([seen], target)
    return seen.status, seen.records


def _advance(seen: Sequence[RaceSnapshot], target: Cluster) -> None:
    """Do what each race needs now."""
    for observation in seen:
        results = advance(observation, target.transport)
        if any(result.outcome is SubmitOutcome.UNKNOWN for result in results):
            break  # Slurm takes nothing now, and each try is a long wait: the next command goes on
    if any(map(leftover_jobs, seen)):
        target.cache.forget()  # its answer still has what was cancelled just now


def _reap_strays(
    settled: Sequence[Race], queue: Sequence[JobRecord] | None, target: Cluster
) -> None:
    if cancel_late_jobs(settled, queue, target.transport):
        target.cache.forget()


def _settled(race: Race, target: Cluster) -> RaceStatus | None:
    return load_verdict(race, target.transport)


def _prune(races: Sequence[Race], target: Cluster, now: float) -> list[Race]:
    """Forget races that have been over for a month; one that is not settled is never forgotten."""
    kept = []
    for race in races:
        old = now - race.submitted_at > _KEPT.total_seconds()
        status = _settled(race, target) if old else None
        if status and now - _last_sign(status) > _KEPT.total_seconds():
            target.transport.remove(race.directory)
        else:
            kept.append(race)
    return kept


def _last_sign(status: RaceStatus) -> float:
    """When a race last did anything, or by when it must have, where nobody wrote that down."""
    entry = status.race.entry(status.claim.submission) if status.claim else None
    walltime = entry.walltime.total_seconds() if entry else 0.0
    claims = [status.claim, *(segment.claim for segment in status.segments)]
    ends = [segment.ended.ended_at for segment in status.segments if segment.ended]
    known = [status.race.submitted_at, status.ended_at or 0.0, status.saved_at or 0.0, *ends]
    if not status.ended_at:
        known += [claim.started_at + walltime for claim in claims if claim]
    return max(known)


def _sweep(target: Cluster, now: float) -> None:
    """Remove what a launch that was killed while it staged a race left half-written."""
    for name in target.transport.names(target.race_root):
        begun = _HALF_STAGED.fullmatch(name)
        if begun and now - float(begun[1]) > _STAGING_S:
            target.transport.remove(f"{target.race_root}/{name}")


def find_races(words: Sequence[str], target: Cluster) -> tuple[Race, ...]:
    """Find races by id, by the beginning of one, by name or by job id; none named: the latest.

    Raises `RvError(USAGE)` for a word that fits no race, or the beginnings of several.
    """
    races = load_races(target.race_root, target.key, target.transport)
    if not words:
        if not races:
            raise RvError(ErrorKind.USAGE, f"no races on {target.label}", hint="rv up starts one")
        return races[:1]
    return tuple(_find(word, races, target) for word in words)


def _find(word: str, races: Sequence[Race], target: Cluster) -> Race:
    if not word:
        raise RvError(ErrorKind.USAGE, "a race's name is empty", hint="rv ps -a lists races")
    for race in races:
        if word in (race.race_id, race.name, *race.job_names):
            return race
    if word.isascii() and word.isdigit():
        for race in races:
            ids = {
                i for _, known in load_state_files(race, target.transport).job_ids for i in known
            }
            if int(word) in ids:
                return race
    begun = [race for race in races if len(word) >= 2 and race.race_id.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    what = "fits several races" if begun else "is no race here"
    raise RvError(ErrorKind.USAGE, f"{word!r} {what}", hint="rv ps -a lists them")


def open_races(target: Cluster) -> tuple[Race, ...]:
    """The races that are not settled."""
    races = load_races(target.race_root, target.key, target.transport)
    return tuple(race for race in races if _settled(race, target) is None)


def stop_races(races: Sequence[Race], target: Cluster) -> tuple[CancelResult, ...]:
    """Cancel races whole, submissions whose ids were never learned included."""
    stopped = stop(races, target.transport) if races else ()
    target.cache.forget()
    return stopped
