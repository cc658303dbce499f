"""Every scenario, by name."""

from typing import Final

from tests.faults.scenarios import (
    answers,
    clients,
    daemons,
    disks,
    nodes,
    queue,
    races,
    submission,
    watchers,
)
from tests.faults.scenarios.registry import Scenario, found_in

_FAMILIES: Final = (submission, answers, clients, watchers, races, daemons, nodes, queue, disks)
ALL: Final[dict[str, Scenario]] = {
    scenario.name: scenario for family in _FAMILIES for scenario in found_in(vars(family).values())
}
