"""Wait for races that were launched: follow one, or wait until several are over."""

from collections.abc import Sequence
from datetime import timedelta

from rv.models.race import Race, RaceStatus
from rv.race.output import OutputReader
from rv.race.verdict_file import load_verdict
from rv.race.wait import Wait, WaitSink
from rv.race.watch import Sink, Watch
from rv.workflow.cluster import Cluster


def follow_race(race: Race, cluster: Cluster, sink: Sink, reader: OutputReader) -> RaceStatus:
    """Watch a race that another client launched to its end, with the output that a reader reads."""
    return Watch(race=race, queue=cluster.queue, sink=sink, reader=reader).run()


def wait_for_races(
    races: Sequence[Race], cluster: Cluster, sink: WaitSink, timeout: timedelta | None
) -> tuple[RaceStatus, ...]:
    """Wait until races are over; tell of each end, and return it. Raises `WaitTimedOut`."""
    verdicts = {race.race_id: load_verdict(race, cluster.transport) for race in races}
    known = tuple(filter(None, verdicts.values()))
    for verdict in known:
        sink.ended(verdict)
    unsettled = [race for race in races if not verdicts[race.race_id]]
    if not unsettled:
        return known
    return known + Wait(races=unsettled, queue=cluster.queue, sink=sink, timeout=timeout).run()
