"""A chain that ended before its command did goes on: its checkpoints are a new race's first."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.race import Race, RaceState, RaceStatus
from rv.models.request import Request
from rv.race.checkpoints import last_checkpoint
from rv.race.directory import load_all_state_files, load_races, load_state_files
from rv.workflow.cluster import Cluster
from rv.workflow.races import look_at, stop_races

_NO_END_S: Final = 45.0
"""How long a node out of touch has: it looks for a stop every 10 s, and kills at the 4th."""


def chain_to_resume(
    request: Request,
    cluster: Cluster,
    now_s: float,
    say: Callable[[str], None],
    earlier: Race | None = None,
) -> RaceStatus | None:
    """Return the chain that a new one goes on from: the latest of its name, or `earlier`.

    Waits, and says so, where its command may still run on a node that is out of touch. None where
    there is none, and where its command succeeded. Raises `RvError(USAGE)` where it, or another of
    its name or that went on from it, is not over, and `RvError(UNREACHABLE)` where nobody can say
    that, or whether it left a checkpoint.
    """
    if not request.checkpoint or not (request.name or earlier):
        return None
    family = _family(request.name, earlier, cluster)
    latest = earlier or (family[0] if family else None)
    if latest is None:
        return None
    _require_others_over(family, latest, cluster, now_s)
    status = _look(latest, cluster, now_s)
    if status.state is RaceState.COMPLETED:
        return None
    if _may_still_run(status):
        _await_end(status.race, cluster, say)
    return replace(status, saved_at=last_checkpoint(status.race, cluster.transport))


def _family(name: str, earlier: Race | None, cluster: Cluster) -> tuple[Race, ...]:
    """Return the chains of a name, `earlier`, and those that went on from any, newest first."""
    races = load_races(cluster.race_root, cluster.key, cluster.transport)
    family: dict[str, Race] = {earlier.race_id: earlier} if earlier else {}
    for race in reversed(races):  # the oldest first: who goes on from a race comes after it
        if race.chain and ((name and race.name == name) or race.resumes in family):
            family[race.race_id] = race
    return tuple(race for race in races if race.race_id in family)


def _require_others_over(
    family: Sequence[Race], latest: Race, cluster: Cluster, now_s: float
) -> None:
    """Raise `RvError` for another that is not over: they write the same files, by hard links."""
    others = [race for race in family if race.race_id != latest.race_id]
    files = load_all_state_files(others, cluster.transport)
    for race in others:
        if files[race.race_id].ended is None:
            _look(race, cluster, now_s)


def _may_still_run(status: RaceStatus) -> bool:
    """Whether its node may only be out of touch: lost, or stopped with no end on record."""
    if status.state is RaceState.LOST:
        return True
    return status.state is RaceState.CANCELLED and bool(status.claim) and status.ended_at is None


def _await_end(race: Race, cluster: Cluster, say: Callable[[str], None]) -> None:
    """Let what may run on a node that is out of touch see the stop, save, and write its end."""
    stop_races([race], cluster)
    if load_state_files(race, cluster.transport).ended:
        return
    say(f"race {race.race_id} wrote no end: its node has {_NO_END_S:.0f} s to stop what it may run")
    deadline = time.monotonic() + _NO_END_S
    while time.monotonic() < deadline:
        time.sleep(1.0)
        if load_state_files(race, cluster.transport).ended:
            return


def _look(race: Race, cluster: Cluster, now_s: float) -> RaceStatus:
    """Return the state of a chain that is over. Raises `RvError` for one that is not."""
    status, _ = look_at(race, cluster, now_s)
    race_id = status.race.race_id
    if status.state is RaceState.UNKNOWN:
        raise RvError(
            ErrorKind.UNREACHABLE,
            f"nobody can say whether the chain {race_id} still runs: {status.why}",
            hint="rv ps shows when Slurm answers again",
        )
    if not status.state.is_over:
        name = f" of the name {status.race.name}" if status.race.name else ""
        raise RvError(
            ErrorKind.USAGE,
            f"the chain {race_id}{name} is not over: {status.state}",
            hint=f"rv logs -f {race_id} follows it, rv stop {race_id} ends it; another --name"
            " begins another chain",
        )
    return status
