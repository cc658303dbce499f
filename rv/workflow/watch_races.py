"""All races, looked at again and again: their directories often, Slurm as seldom as a wait does."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rv.models.job import JobRecord
from rv.models.race import RaceStatus, StateFiles
from rv.race.directory import load_all_state_files
from rv.race.pace import FIRST_ASK_S, Pace, start_pace
from rv.race.sources import Sources
from rv.race.status import resolve
from rv.workflow.cluster import Cluster, Early
from rv.workflow.races import see_races


@dataclass(kw_only=True, slots=True)
class RacesWatch:
    """One client's watch over the races of a cluster; `clock` is seconds since the epoch.

    `silent_since_s` is when Slurm was first asked in vain, None while it answers.
    """

    cluster: Cluster
    clock: Callable[[], float] = time.time
    silent_since_s: float | None = None
    _pace: Pace | None = None
    _races: tuple[RaceStatus, ...] = ()
    _records: Mapping[str, tuple[JobRecord, ...]] = field(default_factory=dict)
    _names: tuple[str, ...] = ()

    def look(self) -> tuple[RaceStatus, ...]:
        """Return the races as they are now, newest first.

        Slurm is asked when that is due, and as soon as a race is new or seems to be over.
        """
        now_s = self.clock()
        pace = self._pace
        if pace is None or now_s >= pace.next_ask_s:
            return self._ask(now_s)
        self._read_ahead(Early.RACES)
        races = self._by_files(now_s)
        is_new = self.cluster.transport.directories(self.cluster.race_root) != self._names
        ends = any(race.state.is_over for race in races if race not in self._races)
        if not is_new and not ends:
            self._races = races
        elif now_s - pace.asked_s >= FIRST_ASK_S:
            return self._ask(now_s)
        return self._races

    def _by_files(self, now_s: float) -> tuple[RaceStatus, ...]:
        """Decide the races anew by their state files, and by what Slurm said of them last."""
        unsettled = [status.race for status in self._races if not status.state.is_over]
        files = load_all_state_files(unsettled, self.cluster.transport)
        return tuple(self._decided(status, files, now_s) for status in self._races)

    def _decided(
        self, status: RaceStatus, files: Mapping[str, StateFiles], now_s: float
    ) -> RaceStatus:
        if status.state.is_over:
            return status
        race_id = status.race.race_id
        sources = Sources(records=self._records.get(race_id, ()), now_s=now_s)
        seen = resolve(status.race, files[race_id], sources)
        return replace(seen, saved_at=status.saved_at)

    def _ask(self, now_s: float) -> tuple[RaceStatus, ...]:
        pace = self._pace or start_pace(now_s - FIRST_ASK_S)
        most_age = pace.max_age(now_s)
        is_shared = self.cluster.cache.load("queue", most_age) is not None
        self._read_ahead(Early.RACES if is_shared else Early.RACES_AND_QUEUE)
        self._names = self.cluster.transport.directories(self.cluster.race_root)
        seen = see_races(self.cluster, now_s, most_age)
        pace.asked_s = self.clock()
        self.silent_since_s = None if seen.reachable else self.silent_since_s or now_s
        is_settled = not any(_waits(race) for race in seen.statuses)
        pace.plan_next(now_s, is_settled=is_settled)
        if [_fact(race) for race in seen.statuses] != [_fact(race) for race in self._races]:
            pace.ask_soon(now_s)
        self._pace, self._races, self._records = pace, seen.statuses, seen.records
        return self._races

    def _read_ahead(self, early: Early) -> None:
        if self.cluster.read_ahead and self._pace:  # what was read to find the cluster is new
            self.cluster.read_ahead(early)


def _fact(status: RaceStatus) -> tuple[object, ...]:
    """What of a race is news, and a reason to ask soon what follows it."""
    return status.race.race_id, status.state, status.claim and status.claim.owner


def _waits(status: RaceStatus) -> bool:
    """Whether Slurm alone knows more of a race: it waits, or its state is in question."""
    return not status.state.is_over and (status.claim is None or bool(status.why))
