"""A chain that ended before its command did goes on: its checkpoints are a new race's first."""

from dataclasses import replace

from rv.errors import ErrorKind, RvError
from rv.models.race import Race, RaceState, RaceStatus
from rv.models.request import Request
from rv.race.checkpoints import last_checkpoint
from rv.race.directory import load_races
from rv.workflow.cluster import Cluster
from rv.workflow.races import look_at, stop_races


def chain_to_resume(
    request: Request, cluster: Cluster, now_s: float, earlier: Race | None = None
) -> RaceStatus | None:
    """Return the chain that a new one goes on from: the latest of its name, or `earlier`.

    None where there is none, and where its command succeeded. Raises `RvError(USAGE)` where it is
    not over, and `RvError(UNREACHABLE)` where nobody can say that, or whether it left a checkpoint.
    """
    if not request.checkpoint:
        return None
    named = _latest_of_name(request.name, cluster) if request.name else None
    found = {race.race_id: race for race in (named, earlier) if race}
    states = [_look(race, cluster, now_s) for race in found.values()]
    status = states[-1] if states else None
    if status is None or status.state is RaceState.COMPLETED:
        return None
    if status.state is RaceState.LOST:
        # Its node may only be out of touch: what runs there ends when it sees the stop.
        stop_races([status.race], cluster)
    return _with_last_checkpoint(status, cluster)


def _with_last_checkpoint(status: RaceStatus, cluster: Cluster) -> RaceStatus:
    """Ask again where none is known: whoever looked before may have had no answer."""
    if status.saved_at is not None:
        return status
    return replace(status, saved_at=last_checkpoint(status.race, cluster.transport))


def _latest_of_name(name: str, cluster: Cluster) -> Race | None:
    races = load_races(cluster.race_root, cluster.key, cluster.transport)
    return next((race for race in races if race.chain and race.name == name), None)


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
