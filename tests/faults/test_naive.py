"""The accounting complains of a naive fan-out: it starts commands twice, and leaves jobs behind.

Each fault here is a scenario of the suite too, where rv's accounting has no complaints.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.faults.accounting import Row, table
from tests.faults.misbehaving_programs import misbehave
from tests.faults.scenario_runner import Task, play_all, start_runners
from tests.faults.scenarios.registry import Scenario, occupy
from tests.faults.world import Client, World, eventually

NAIVE = Path(__file__).with_name("naive.py")
COMMAND = 'echo "naive $SLURM_JOB_ID" >>starts; sleep 2'


def fan_out(world: World, command: str = COMMAND) -> Client:
    """Race by hand in both partitions."""
    return world.start_program(sys.executable, str(NAIVE), "naive", command, "fast", "slow")


def siblings_start_together(world: World, dice: Random) -> None:
    """Both partitions are idle."""
    fan_out(world)
    eventually(lambda: world.starts() >= 2, timeout=30)


def killed_before_it_cancels(world: World, dice: Random) -> None:
    """One partition is idle, and nobody is left to cancel the other's job."""
    occupy(world, "v1", "v2")
    client = fan_out(world)
    eventually(lambda: len(world.live_jobs()) == 2 or world.starts())
    client.kill(whole=True)
    eventually(world.starts)


def sbatch_times_out_after_acceptance(world: World, dice: Random) -> None:
    """It never learns the id of a job that runs."""
    misbehave(world, "sbatch", ["late"])
    fan_out(world)
    eventually(lambda: world.starts() >= 2, timeout=30)


FAULTS: dict[str, tuple[Callable[[World, Random], None], Callable[[Row], bool]]] = {
    "siblings start together": (siblings_start_together, lambda row: row.starts > row.races),
    "killed before it cancels": (killed_before_it_cancels, lambda row: bool(row.leftovers)),
    "sbatch times out": (sbatch_times_out_after_acceptance, lambda row: row.starts > row.races),
}


@pytest.fixture(scope="module")
def rows(
    request: pytest.FixtureRequest, sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Row]:
    """The accounting of one race by hand for each fault."""
    runners = start_runners(2, tmp_path_factory.mktemp("naive"), sandbox_home)
    plays = [Scenario(name=name, play=play, ends=frozenset()) for name, (play, _) in FAULTS.items()]
    found = play_all(runners, [Task(scenario=play, seed=0, patience=5) for play in plays])
    accounts = {row.scenario: replace(row, races=1) for row in found}
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\na naive fan-out:\n{table(list(accounts.values()))}")
    return accounts


@pytest.mark.parametrize("name", FAULTS)
def test_a_naive_fan_out_is_found_wanting(rows: dict[str, Row], name: str) -> None:
    """Two starts of one race, or a job that nobody waits for."""
    _, is_wanting = FAULTS[name]
    assert is_wanting(rows[name]), rows[name]


def test_the_reference_is_short() -> None:
    """It is what anybody would write."""
    assert len(NAIVE.read_text(encoding="utf-8").splitlines()) <= 60
