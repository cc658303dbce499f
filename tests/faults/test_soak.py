"""The soak: RV_SOAK races (1000) over all scenarios, on RV_LANES (8) clusters at once.

RV_SOAK=1000 tests/run.sh -s tests/faults/test_soak.py    # prints the table, and each failing seed
RV_SEED=17 tests/run.sh tests/faults/test_suite.py -k killed_between_waves    # plays one again
"""

import os
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from random import Random

import pytest

from tests.faults.accounting import Row, table
from tests.faults.scenario_runner import Task, play_all, start_runners
from tests.faults.scenarios.catalogue import ALL
from tests.faults.scenarios.registry import SOAK

CLUSTERS = int(os.environ.get("RV_LANES", "8"))
FIRST_SEED = int(os.environ.get("RV_SEED", "1"))


def tasks() -> Iterator[Task]:
    """Every scenario with one seed, in any order, then with the next."""
    for seed in count(FIRST_SEED):
        names = sorted(ALL)
        Random(seed).shuffle(names)
        yield from (Task(scenario=ALL[name], seed=seed) for name in names)


def say(row: Row) -> None:
    """Name what went wrong as soon as it did."""
    for complaint in row.complaints:
        print(complaint, flush=True)


@pytest.mark.skipif(not SOAK, reason="RV_SOAK=1000 runs it")
def test_soak(sandbox_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No more starts than races, nothing left behind, no wrong state."""
    runners = start_runners(CLUSTERS, tmp_path, sandbox_home, most=CLUSTERS)
    stream, rows = tasks(), list[Row]()
    with capsys.disabled():
        while (missing := SOAK - sum(row.races for row in rows)) > 0:
            rows += play_all(runners, islice(stream, min(missing, 10 * CLUSTERS)), say)
            print(f"{sum(row.races for row in rows)} races", flush=True)
        print(f"\n{table(rows)}")
    assert sum(row.starts for row in rows) <= sum(row.races for row in rows)
    assert not [complaint for row in rows for complaint in row.complaints]
