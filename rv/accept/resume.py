"""Find an acceptance run that was begun, by a client that is gone say, and what it runs."""

from rv.accept.kept_records import sweeps_by_race
from rv.accept.payload_command import Profile, read_typed
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.race import Race
from rv.payloads.contract.catalogue import PayloadSpec
from rv.race.directory import load_races
from rv.workflow.cluster import Cluster
from rv.workflow.races import find_races


@dataclass(frozen=True, kw_only=True, slots=True)
class BegunRun:
    """A race that runs payloads."""

    race: Race
    profile: Profile
    payloads: tuple[PayloadSpec, ...]


def find_begun(name: str, cluster: Cluster) -> BegunRun:
    """Find a run as `find_races` does; `last` is the latest that is not of a sweep.

    Raises `RvError(USAGE)` for no race, one that is no acceptance run, and one of a sweep.
    """
    sweeps = sweeps_by_race()
    if name == "last":
        every = load_races(cluster.race_root, cluster.key, cluster.transport)
        races = tuple(race for race in every if race.race_id not in sweeps)
        problem = f"no acceptance run on {cluster.label}"
    else:
        races = find_races([name], cluster)
        problem = f"race {races[0].race_id} is no acceptance run"
        if sweep := sweeps.get(races[0].race_id):
            hint = f"rv accept sweep --resume {sweep.sweep_id}"
            raise RvError(ErrorKind.USAGE, f"race {name} is of {sweep.sweep_id}", hint=hint)
    for race in races:
        if read := read_typed(race.typed_command):
            return BegunRun(race=race, profile=read[0], payloads=read[1])
    raise RvError(ErrorKind.USAGE, problem, hint="rv accept run begins one")
