"""The values that completion offers: races, and the names of the cluster that is meant."""

import os
import time
from datetime import timedelta
from typing import Final

from rv.models.quantities import short_duration
from rv.workflow.known_races import KnownRace, known_races
from rv.workflow.names import KINDS, kept_names
from rv.workflow.which_cluster import cache_of, identify, named_clusters

LISTS: Final = ("partitions", "types", "nodes")
"""What is written with commas between."""

Value = tuple[str, str]


def values_of(source: str, cluster: str) -> list[Value]:
    """Return the values of a source with what each means; `cluster` is what --cluster says.

    Raises `RvError` where no cluster can be told.
    """
    if source in KINDS:
        names = kept_names(cache_of(identify(cluster, os.environ)))
        return [(name, "") for name in names.get(source, ())]
    return _OTHERS[source](cluster)


def _races(cluster: str) -> list[Value]:
    races = known_races(identify(cluster, os.environ), os.environ)
    return [pair for race in races for pair in _race(race)]


def _race(race: KnownRace) -> list[Value]:
    age = short_duration(timedelta(seconds=max(0.0, time.time() - race.submitted_at)))
    text = f"{race.state}, {age}: {race.command}"
    return [(word, text) for word in (race.race_id, race.name) if word]


def _clusters(_: str) -> list[Value]:
    named = named_clusters(os.environ).named
    own = [(name, each.host) for name, each in named.items()]
    boxes = [(f"sandbox:{name}", text) for name, text in _sandboxes("")]
    return [*own, ("all", "each of these"), ("local", "this machine's Slurm"), *boxes]


def _sandboxes(_: str) -> list[Value]:
    from rv import sandbox

    return [(box.name, f"sandbox {box.profile}") for box in sandbox.list_all()]


def _payloads(_: str) -> list[Value]:
    from rv.payloads.contract.catalogue import PAYLOADS

    return [(payload.name, payload.tests) for payload in PAYLOADS]


def _commands(_: str) -> list[Value]:
    from rv import bundle

    tests = dict(_payloads(""))
    return [(name, tests.get(name.removesuffix(".py"), "")) for name in bundle.payload_names()]


_OTHERS: Final = {
    "races": _races,
    "clusters": _clusters,
    "sandboxes": _sandboxes,
    "payloads": _payloads,
    "commands": _commands,
}
