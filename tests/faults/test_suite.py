"""Every scenario once: each command starts at most once, nothing is left, and no state is wrong.

The scenarios run side by side, on a few clusters; RV_SEED (0) is what their dice are thrown with,
and with RV_FAULTS_OVER=openssh or paramiko the clients are on a laptop.
"""

import os
from pathlib import Path

import pytest

from tests.faults.accounting import Row, table
from tests.faults.scenario_runner import Task, names_asked_for, play_all, start_runners
from tests.faults.scenarios.catalogue import ALL

SEED = int(os.environ.get("RV_SEED", "0"))
CLUSTERS = int(os.environ.get("RV_LANES", "4"))


@pytest.fixture(scope="module")
def rows(
    request: pytest.FixtureRequest, sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Row]:
    """The accounting of all the scenarios that are asked for."""
    chosen = names_asked_for(request)
    runners = start_runners(
        len(chosen), tmp_path_factory.mktemp("runners"), sandbox_home, most=CLUSTERS
    )
    found = play_all(runners, [Task(scenario=ALL[name], seed=SEED) for name in chosen])
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{table(found)}")
    return {row.scenario: row for row in found}


@pytest.mark.parametrize("name", ALL)
def test_scenario(rows: dict[str, Row], name: str) -> None:
    """Its accounting has no complaints."""
    row = rows[name]
    assert not row.complaints, "\n".join(row.complaints)
    assert row.starts <= row.races
