"""The connection is cut at each step, over both transports; and some of the fault scenarios.

Counted from outside, as in tests/faults: commands that started more than once, jobs and processes
that were left, races that were lost. RV_CUTS (2) is how many cuts there are over each transport,
RV_SEED (0) what their dice are thrown with; all scenarios: RV_FAULTS_OVER=openssh, in
tests/faults/test_suite.py.
"""

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.faults.accounting import Row, table
from tests.faults.scenario_runner import Task, play_all, start_runners
from tests.faults.scenarios.catalogue import ALL
from tests.faults.scenarios.registry import Scenario, launch
from tests.faults.world import World
from tests.slurm.conftest import sandbox_home
from tests.ssh.proxy import Proxy

__all__ = ["sandbox_home"]

KINDS = ("openssh", "paramiko")
CUTS = int(os.environ.get("RV_CUTS", "2"))
SEED = int(os.environ.get("RV_SEED", "0"))
MOST_PIECES = 45
"""About as many pieces of bytes go one way in a launch that is watched to its end."""

SCENARIOS = (
    "killed_inside_sbatch_after_acceptance",
    "killed_while_streaming",
    "sbatch_times_out_after_acceptance",
    "interrupted_before_the_claim",
    "a_hostile_environment",
)
ENDED = Counter[str]()
"""How clients ended whose connection was cut, and how many connections were."""


def connection_is_cut(world: World, dice: Random) -> None:
    """One to three times, before or after a piece of bytes that goes one way or the other."""
    points = {
        (dice.randrange(1, MOST_PIECES), dice.choice(["to", "from"])): dice.choice(
            ["before", "after"]
        )
        for _ in range(dice.randrange(1, 4))
    }
    assert world.login
    proxy = world.login.put_behind(
        lambda port: Proxy([port], cuts=lambda number, way: points.get((number, way), ""))
    )
    client = launch(world, "--fanout", dice.choice(["auto", "each"]))
    code = client.wait()
    points.clear()
    ENDED[f"code {code}"] += 1
    ENDED["cuts"] += proxy.broken
    said = client.err[-600:]
    if code and not (code == 125 and "error[unreachable]" in said and "hint" in said):
        raise AssertionError(f"code {code}: {said}")


CUT = Scenario(
    name="connection_is_cut", play=connection_is_cut, ends=frozenset({"COMPLETED", "CANCELLED"})
)


@pytest.fixture(scope="module")
def rows(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """The accounting of all that is played, over each transport."""
    tasks = [Task(scenario=ALL[name], seed=SEED, over=kind) for name in SCENARIOS for kind in KINDS]
    tasks += [
        Task(scenario=CUT, seed=SEED + number, over=kind)
        for number in range(CUTS)
        for kind in KINDS
    ]
    runners = start_runners(len(tasks), tmp_path_factory.mktemp("runners"), sandbox_home, most=2)
    found = play_all(runners, tasks)
    print(f"\n{table(found)}\n{dict(ENDED)}")
    return {name: [row for row in found if row.scenario == name] for name in (*SCENARIOS, CUT.name)}


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(rows: dict[str, list[Row]], name: str) -> None:
    """Its accounting has no complaints, over either."""
    assert [complaint for row in rows[name] for complaint in row.complaints] == []
    assert [row.starts <= row.races for row in rows[name]] == [True] * len(KINDS)


def test_a_connection_that_is_cut(rows: dict[str, list[Row]]) -> None:
    """Nothing starts twice, nothing is left and nothing is lost, wherever it was cut."""
    cut = rows[CUT.name]
    assert [complaint for row in cut for complaint in row.complaints] == []
    assert (len(cut), ENDED["code 0"] + ENDED["code 125"]) == (2 * CUTS, 2 * CUTS)
    assert sum(row.lost for row in cut) == 0
    assert ENDED["cuts"] >= CUTS
