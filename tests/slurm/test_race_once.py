"""Many races on an idle cluster: each command starts once, and nothing is left behind.

RV_RACES (30) and RV_AUTO_RACES (20) say how many; the counts are printed.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import pytest
import yaml

from rv import sandbox
from tests.slurm.launching import RaceFiles, Rv, twelve_models

RACES = int(os.environ.get("RV_RACES", "30"))
AUTO_RACES = int(os.environ.get("RV_AUTO_RACES", "20"))
AT_ONCE = 4
JOBS = 12


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """Twelve partitions, a GPU model each, whose nvidia-smi takes its time as real ones do."""
    path = tmp_path_factory.mktemp("profile") / "twelve.yaml"
    path.write_text(yaml.safe_dump(twelve_models()))
    found = sandbox.up("twelve", path)
    program = found.directory / "bin" / "nvidia-smi"
    program.write_text(program.read_text().replace("set -u\n", "set -u\nsleep 1\n", 1))
    yield found
    sandbox.down("twelve")


@pytest.fixture
def rv(box: sandbox.Sandbox, tmp_path: Path) -> Rv:
    return Rv(box=box, home=tmp_path)


@dataclass
class QueueWatch:
    """Looks at the queue many times a second and notes when each job was first missed."""

    rv: Rv
    gone: dict[str, float] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        before: set[str] = set()
        while not self.ended.wait(0.05):
            now = set(self.rv.queue())
            seen = time.time()
            self.gone.update(dict.fromkeys(before - now, seen))
            before = now

    def __enter__(self) -> "QueueWatch":
        self._thread = threading.Thread(target=self.run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._thread.join()

    def last_loser(self, race: RaceFiles) -> float | None:
        """Seconds from the winner's start until the last of the others was gone; None: none seen."""
        winner = f"rv-{race.race_id}-{race.claim['submission']}"
        others = [at for name, at in self.gone.items() if race.race_id in name and name != winner]
        return max(others) - float(race.claim["started"]) if others else None


def jobs_left(rv: Rv) -> list[str]:
    """What is in the queue after `rv ps` had its chance, and jobs had theirs to end."""
    rv.states()
    deadline = time.monotonic() + 30
    while (left := rv.queue()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def run_all(rv: Rv, count: int, at_once: int, *options: str) -> float:
    """Run that many races to their ends; how long it took."""

    def one(_: int) -> None:
        done = rv("up", *options, "--run", rv.count_starts)
        assert done.returncode == 0, done.stderr

    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, range(count)))
    return time.monotonic() - began


def test_a_command_starts_once_whatever_starts_together(
    rv: Rv, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twelve jobs a race, sent at once on idle nodes, several races at once."""
    with QueueWatch(rv) as watch:
        seconds = run_all(rv, RACES, AT_ONCE, "--gpu", "1", "--time", "10m", "--fanout", "each")
    starts, races, left = rv.starts, rv.files(), jobs_left(rv)
    states = rv.states()
    twice = [race for race, count in starts.items() if count > 1]
    together = sum(len(race.begun) > 1 for race in races)
    contested = sum(len(race.claimants) > 1 for race in races)
    waits = [wait for race in races if (wait := watch.last_loser(race)) is not None]
    percents = quantiles(waits, n=100, method="inclusive") if len(waits) > 1 else [0.0] * 99
    with capsys.disabled():
        print(
            f"\nraces={len(races)} starts={starts.total()} twice={len(twice)}"
            f" two_or_more_started={together} two_or_more_claimed={contested}"
            f" jobs_left={len(left)} seconds={seconds:.0f}"
            f" last_loser_gone_p50={percents[49]:.2f}s p99={percents[98]:.2f}s"
        )
    assert len(races) == len(starts) == starts.total() == RACES
    assert not twice
    assert not left
    assert all(len(race.record["entries"]) == JOBS for race in races)
    assert {race["state"] for race in states.values()} == {"COMPLETED"}
    assert together >= RACES / 2
    if len(waits) >= 100:  # of fewer, a hundredth says nothing
        assert percents[98] <= 2


def test_the_best_idle_strategy_wins_alone(rv: Rv, capsys: pytest.CaptureFixture[str]) -> None:
    """In waves, on idle nodes, one job is enough: the one ranked first."""
    seconds = run_all(rv, AUTO_RACES, 2, "--gpu", "1", "--time", "10m")
    starts, races, left = rv.starts, rv.files(), jobs_left(rv)
    first = sum(race.claim["submission"] == "1" for race in races)
    alone = sum(list(race.submitted) == [1] and race.begun == [1] for race in races)
    with capsys.disabled():
        print(
            f"\nauto_races={len(races)} starts={starts.total()} first_ranked_won={first}"
            f" one_job_submitted={alone} jobs_left={len(left)} seconds={seconds:.0f}"
        )
    assert len(races) == len(starts) == starts.total() == AUTO_RACES
    assert not left
    assert all(len(race.record["entries"]) == JOBS for race in races)
    assert first >= 0.99 * AUTO_RACES
    assert alone >= 0.99 * AUTO_RACES


@pytest.mark.parametrize("fanout", ["each", "auto"])
def test_a_detached_race_needs_no_client(
    rv: Rv, fanout: str, eventually: Callable[..., None]
) -> None:
    """The jobs settle it among themselves; nobody looks until all are gone."""
    options = ("--gpu", "1", "--time", "10m", "--fanout", fanout)
    done = rv("up", *options, "-d", "--run", rv.count_starts)
    assert done.returncode == 0, done.stderr
    race = rv.last()
    assert done.stdout.split() == [race.race_id]
    eventually(lambda: race.claim and not rv.queue(), timeout=60)
    assert rv.starts == {race.race_id: 1}
    assert len(race.submitted) == JOBS
    assert rv.state()["state"] == "COMPLETED"
    if fanout == "auto":
        assert race.begun == [1]
