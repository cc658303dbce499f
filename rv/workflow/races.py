"""Races that were launched: list, find and stop them, and recover what a killed client left."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rv import bundle
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.job import JobRecord
from rv.models.race import Claim, Race, RaceState, RaceStatus
from rv.race.directory import load_race, load_races, load_state_files, remove_race
from rv.race.payload_folders import has_several_versions, payload_hash, remove_unused_payloads
from rv.race.sources import is_active
from rv.race.verdict_file import is_settled, load_verdict
from rv.transport import Transport
from rv.workflow.cluster import Cluster

if TYPE_CHECKING:
    from rv.race.cancel import CancelResult
    from rv.race.observe import RaceSnapshot

# Most commands need one thing of these, and a list of settled races none: it is imported there.
_FRESH: Final = timedelta(seconds=1)
_KEPT_S: Final = 30 * 86400.0
_HALF_STAGED: Final = re.compile(r"\.[a-z0-9]{8}\.(\d{1,12})\..*", re.ASCII)
_STAGING_S: Final = 3600.0
_SKIP: Final = 77


@dataclass(frozen=True, kw_only=True, slots=True)
class RacesSeen:
    """Every race of this cluster at one moment, newest first, and whether Slurm answered.

    `records` are Slurm's of the jobs of those races that have no verdict yet, by race id.
    """

    statuses: tuple[RaceStatus, ...]
    records: Mapping[str, tuple[JobRecord, ...]]
    reachable: bool


def list_races(cluster: Cluster, now_s: float) -> tuple[RaceStatus, ...]:
    """Return the state of every race on this cluster, newest first, and recover what needs it."""
    return see_races(cluster, now_s, _FRESH).statuses


def see_races(cluster: Cluster, now_s: float, most_age: timedelta) -> RacesSeen:
    """Do the same with an answer of the queue that may be so old, and keep Slurm's records."""
    _remove_half_staged(cluster, now_s)
    _remove_unused_payloads(cluster, now_s)
    races = load_races(cluster.race_root, cluster.key, cluster.transport)
    kept = [race for race in races if not _remove_old(race, cluster, now_s)]
    seen = _recover(kept, cluster, now_s, most_age)
    if cluster.login:
        from rv.workflow.known_races import keep_races

        keep_races(cluster.cache, seen.statuses)
    return seen


def recover_races(cluster: Cluster, now_s: float) -> None:
    """Recover what killed clients left: races without a verdict, and jobs of those with one.

    What cannot be done now is for the next command.
    """
    with suppress(RvError):
        queue = cluster.queue.records(_FRESH)
        if queue is None:
            return
        _recover(list(_unfinished(queue, cluster)), cluster, now_s, _FRESH)


def _unfinished(queue: Sequence[JobRecord], cluster: Cluster) -> Iterator[Race]:
    """Load the races that have active jobs or no verdict."""
    names = {record.name for record in queue if is_active(record)}
    active = {name.split("-")[1] for name in names if name.count("-") > 1}
    for race_id in cluster.transport.directories(cluster.race_root):
        directory = f"{cluster.race_root}/{race_id}"
        if race_id not in active and is_settled(directory, cluster.transport):
            continue
        race = load_race(directory, cluster.transport)
        if race and race.cluster == cluster.key:
            yield race


def _recover(
    races: Sequence[Race], cluster: Cluster, now_s: float, most_age: timedelta
) -> RacesSeen:
    """Return the state of races, and do for each what it needs."""
    transport = cluster.transport
    verdicts = {race.race_id: load_verdict(race, transport) for race in races}
    settled: list[Race] = []
    unsettled: list[Race] = []
    for race in races:
        (settled if verdicts[race.race_id] else unsettled).append(race)
    queue = cluster.queue.records(most_age)
    if queue:
        from rv.race.recover import cancel_jobs_of_deleted_races

        cancel_jobs_of_deleted_races(cluster.race_root, queue, transport)
        _cancel_late_jobs(settled, queue, cluster)
    snapshots = _observe(unsettled, cluster, queue, now_s)
    _advance(snapshots, cluster)
    live = {snapshot.status.race.race_id: snapshot for snapshot in snapshots}
    statuses = tuple(verdicts[race.race_id] or live[race.race_id].status for race in races)
    _keep_past(statuses, cluster)
    return RacesSeen(
        statuses=statuses,
        records={race_id: snapshot.records for race_id, snapshot in live.items()},
        reachable=queue is not None,
    )


def look_at(
    race: Race, cluster: Cluster, now_s: float, max_age: timedelta = _FRESH
) -> tuple[RaceStatus, tuple[JobRecord, ...]]:
    """Return the state of one race with Slurm's records of its jobs, and recover what needs it.

    The queue's answer may be so old, and another client's. A race whose verdict is kept needs no
    records, and has none.
    """
    queue = cluster.queue.records(max_age)
    if verdict := load_verdict(race, cluster.transport):
        _cancel_late_jobs([race], queue, cluster)
        return verdict, ()
    (snapshot,) = _observe([race], cluster, queue, now_s)
    _advance([snapshot], cluster)
    _keep_past([snapshot.status], cluster)
    return snapshot.status, snapshot.records


def _keep_past(statuses: Sequence[RaceStatus], cluster: Cluster) -> None:
    """Keep what became of races that have started, for later estimates."""
    if not any(status.claim for status in statuses):
        return
    from rv.workflow.past import keep_past

    keep_past(cluster.cache, statuses)


def _observe(
    races: Sequence[Race], cluster: Cluster, queue: tuple[JobRecord, ...] | None, now_s: float
) -> "tuple[RaceSnapshot, ...]":
    """Look at races without a verdict."""
    if not races:
        return ()
    from rv.race.observe import observe

    return observe(races, cluster.transport, queue, now_s)


def _advance(snapshots: "Sequence[RaceSnapshot]", cluster: Cluster) -> None:
    """Do what each race needs now."""
    if not snapshots:
        return
    from rv.race.cancel import leftover_jobs
    from rv.race.recover import recover
    from rv.race.submit import SubmitOutcome

    for snapshot in snapshots:
        results = recover(snapshot, cluster.transport)
        if any(result.outcome is SubmitOutcome.UNKNOWN for result in results):
            break  # Slurm takes nothing now, and each try is a long wait: the next command goes on
    if any(map(leftover_jobs, snapshots)):
        cluster.cache.forget()  # its answer still has what was cancelled just now


def _cancel_late_jobs(
    settled: Sequence[Race], queue: Sequence[JobRecord] | None, cluster: Cluster
) -> None:
    from rv.race.cancel import cancel_late_jobs

    if cancel_late_jobs(settled, queue, cluster.transport):
        cluster.cache.forget()


def _remove_old(race: Race, cluster: Cluster, now_s: float) -> bool:
    """Delete a race that has been over for a month, and say so; one without a verdict stays."""
    if now_s - race.submitted_at <= _KEPT_S:
        return False
    verdict = load_verdict(race, cluster.transport)
    if not verdict or now_s - _last_activity_s(verdict) <= _KEPT_S:
        return False
    remove_race(race, cluster.transport)
    return True


def _last_activity_s(status: RaceStatus) -> float:
    """When a race last did anything; without an end on record, when its walltime was over."""
    times = [status.race.submitted_at, status.ended_at or 0.0, status.saved_at or 0.0]
    times += [segment.ended.ended_at for segment in status.segments if segment.ended]
    if not status.ended_at:
        times += _latest_ends_s(status)
    return max(times)


def _latest_ends_s(status: RaceStatus) -> list[float]:
    """When each job that started must have ended, by the winner's walltime."""
    claims = [segment.claim for segment in status.segments]
    walltime_s = 0.0
    if status.claim:
        claims.append(status.claim)
        entry = status.race.entry(status.claim.submission)
        walltime_s = entry.walltime.total_seconds() if entry else 0.0
    return [claim.started_at + walltime_s for claim in claims]


def _remove_half_staged(cluster: Cluster, now_s: float) -> None:
    """Remove the directories of launches that were killed while they staged a race."""
    for name in cluster.transport.names(cluster.race_root):
        begun = _HALF_STAGED.fullmatch(name)
        if begun and now_s - float(begun[1]) > _STAGING_S:
            cluster.transport.remove(f"{cluster.race_root}/{name}")


def _remove_unused_payloads(cluster: Cluster, now_s: float) -> None:
    """Remove the payloads of other versions of rv that no race needs any more."""
    if has_several_versions(cluster.race_root, cluster.transport):
        current = payload_hash(bundle.payload_files())
        remove_unused_payloads(cluster.race_root, current, now_s, cluster.transport)


def find_races(words: Sequence[str], cluster: Cluster) -> tuple[Race, ...]:
    """Find races by id, by the beginning of one, by name or by job id; no words: the latest.

    Raises `RvError(USAGE)` for a word that fits no race, or the beginnings of several.
    """
    races = load_races(cluster.race_root, cluster.key, cluster.transport)
    if not words:
        if not races:
            raise RvError(ErrorKind.USAGE, f"no races on {cluster.label}", hint="rv up starts one")
        return races[:1]
    return tuple(_find(word, races, cluster.transport) for word in words)


def _find(word: str, races: Sequence[Race], transport: Transport) -> Race:
    if not word:
        raise RvError(ErrorKind.USAGE, "a race's name is empty", hint="rv ps -a lists races")
    race = _by_name(word, races) or _by_job(word, races, transport)
    if race:
        return race
    begun = [race for race in races if len(word) > 1 and race.race_id.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    what = "fits several races" if begun else "is no race here"
    raise RvError(ErrorKind.USAGE, f"{word!r} {what}", hint="rv ps -a lists them")


def _by_name(word: str, races: Sequence[Race]) -> Race | None:
    """Find a race by its id, else the newest of that name: a name may be another race's id."""
    own = (race for race in races if word == race.race_id)
    named = (race for race in races if word in (race.name, *race.job_names))
    return next(own, None) or next(named, None)


def _by_job(word: str, races: Sequence[Race], transport: Transport) -> Race | None:
    if not (word.isascii() and word.isdigit()):
        return None
    for race in races:
        for _, job_ids in load_state_files(race, transport).job_ids:
            if int(word) in job_ids:
                return race
    return None


def require_node(race: Race, node: int | None) -> None:
    """Raise `RvError(USAGE)` for a node, from 0, that none of a race's jobs can have."""
    most = max((entry.nodes for entry in race.entries), default=1)
    if node is not None and node >= most:
        numbers = "only node 0" if most == 1 else f"nodes 0 to {most - 1}"
        raise RvError(
            ErrorKind.USAGE,
            f"race {race.race_id} has no node {node}",
            hint=f"it has {numbers}",
        )


def winner_of(status: RaceStatus) -> Claim:
    """Return the claim of a race that runs. Raises `RvError(USAGE)` where it has none (yet)."""
    race = status.race
    if race.sweep:
        raise RvError(
            ErrorKind.USAGE,
            f"{race.race_id} is a sweep: its tasks run in several jobs",
            hint=f"rv logs {race.race_id} --task 0 shows what one wrote",
        )
    if status.claim is None:
        raise RvError(
            ErrorKind.USAGE,
            f"race {race.race_id} has not started yet",
            hint=f"rv explain {race.race_id} says why it waits",
        )
    return status.claim


def stoppable_races(
    words: Sequence[str], cluster: Cluster, now_s: float
) -> tuple[tuple[Race, ...], bool]:
    """Find the races that `rv stop` means, and whether these words could mean fewer of them.

    No words mean the only open race, and a name the only open race of that name: several are a
    question. Raises `RvError(USAGE)` for a word that fits no race.
    """
    open_now = open_races(cluster)
    if not words:
        unfinished = _not_over(open_now, cluster, now_s)
        return unfinished or find_races((), cluster), len(unfinished) > 1
    chosen: dict[str, Race] = {}
    is_question = False
    for word in words:
        named = _open_of_name(word, open_now, cluster, now_s)
        is_question = is_question or len(named) > 1
        chosen |= {race.race_id: race for race in named or find_races([word], cluster)}
    return tuple(chosen.values()), is_question


def _open_of_name(
    word: str, open_now: Sequence[Race], cluster: Cluster, now_s: float
) -> tuple[Race, ...]:
    same_name = [race for race in open_now if race.name and race.name == word]
    return _not_over(same_name, cluster, now_s)


def awaited_races(words: Sequence[str], cluster: Cluster, now_s: float) -> tuple[Race, ...]:
    """Find the races that `rv wait` means: a name means all open ones of it, no word the latest.

    Raises `RvError(USAGE)` for a word that fits no race.
    """
    if not words:
        return find_races((), cluster)
    open_now = open_races(cluster)
    chosen: dict[str, Race] = {}
    for word in words:
        named = _open_of_name(word, open_now, cluster, now_s)
        chosen |= {race.race_id: race for race in named or find_races([word], cluster)}
    return tuple(chosen.values())


def _not_over(races: Sequence[Race], cluster: Cluster, now_s: float) -> tuple[Race, ...]:
    """Leave out the races that are over and whose verdict nobody has kept yet.

    Slurm is asked only where there are several: a stop must not wait for a silent controller.
    """
    if len(races) < 2:
        return tuple(races)
    snapshots = _observe(races, cluster, cluster.queue.records(_FRESH), now_s)
    return tuple(s.status.race for s in snapshots if not s.status.state.is_over)


def open_races(cluster: Cluster) -> tuple[Race, ...]:
    """Return the races that have no verdict yet."""
    races = load_races(cluster.race_root, cluster.key, cluster.transport)
    return tuple(race for race in races if load_verdict(race, cluster.transport) is None)


def stop_races(races: Sequence[Race], cluster: Cluster) -> "tuple[CancelResult, ...]":
    """Cancel races whole, submissions whose ids were never learned included."""
    from rv.race.cancel import cancel_races

    results = cancel_races(races, cluster.transport) if races else ()
    cluster.cache.forget()
    return results


def worst_exit_code(ends: Iterable[RaceStatus], transport: Transport) -> int:
    """The highest of the races' exit codes: 0 only where all of them succeeded."""
    return max((exit_code(status, transport) for status in ends), default=0)


def exit_code(status: RaceStatus, transport: Transport) -> int:
    """The command's or the shell's own code; 0 for a payload that skipped.

    It is 1 where Slurm ended the job without a code.
    """
    if status.state is RaceState.COMPLETED:
        return status.exit_code or 0
    if status.exit_code == _SKIP and status.race.payload and _says_skip(status, transport):
        return 0
    return status.exit_code or 1


def _says_skip(status: RaceStatus, transport: Transport) -> bool:
    """A bundled payload's 77 counts as done only where its own result file says SKIP.

    The job's script has turned it into 0 already, but for a template of the user's own.
    """
    results = transport.read_tree(f"{status.race.directory}/results", ["*.json"])
    return any(_is_skip(data) for data in results.values())


def _is_skip(data: bytes) -> bool:
    try:
        summary = json.loads(data)["summary"]
        return bool(summary["status"] == "SKIP" and summary.get("skip_exit_code") != _SKIP)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
