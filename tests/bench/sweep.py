"""A sweep of 1,000 tasks, 5 % of which fail the first time, and what watching one costs.

Counts are sdiag's, of the whole cluster: also what the workers and Slurm's own nodes ask. The ten
minutes of watching pass on a clock of the watcher's own; every question it asks is a real one.
"""

import sys
import time
from collections import Counter
from pathlib import Path

from cluster import cluster, rpc_counts, rv
from rpcs import Clock, Silent, difference, report

from rv.models.race import Race
from rv.race.directory import load_races
from rv.race.watch import Watch
from rv.slurm.cache import SnapshotCache
from rv.slurm.squeue import OwnJobs
from rv.workflow.cluster import Cluster
from tests.bench.results import Figure, note

TEN_MINUTES = 600.0


class TimeIsUpError(Exception):
    """The watcher has slept for ten minutes."""


class Limited(Clock):
    """Time that passes only when somebody sleeps, until it is up."""

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.until = now + TEN_MINUTES

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.now > self.until:
            raise TimeIsUpError


def newest(target: Cluster) -> Race:
    """The sweep that was launched last."""
    return load_races(target.race_root, target.key, target.transport)[0]


def successes(race: Race) -> Counter[str]:
    """How often each task succeeded, by the lines of the workers."""
    texts = (path.read_text() for path in Path(race.directory, "workers").iterdir())
    rows = (line.split() for text in texts for line in text.splitlines())
    return Counter(row[1] for row in rows if row[:1] == ["end"] and row[2:4] == ["0", "-"])


def run_sweep(target: Cluster, tasks: int, folder: Path) -> None:
    """Run it, run its failed tasks again, and count starts, successes and RPCs."""
    line = (
        f"echo $RV_TASK_ID >> {folder}/starts; [ $((RV_TASK_ID % 20)) -ne 0 ]"
        f" || [ -e {folder}/seen.{{}} ] || {{ : > {folder}/seen.{{}}; exit 3; }}"
    )
    before, began_s = rpc_counts(target), time.monotonic()
    assert rv("sweep", "--gpu", "1", "--set", f"x=1..{tasks}", f"{line}; : {{x}}").returncode == 1
    took_s, first = time.monotonic() - began_s, newest(target)
    report(f"a sweep of {tasks} tasks, followed", difference(target, before), "sweep")
    before = rpc_counts(target)
    assert rv("rerun", "--failed").returncode == 0
    report("its failed tasks again", difference(target, before), "sweep")
    starts = Counter((folder / "starts").read_text().split())
    ends = successes(first) + successes(newest(target))
    print(f"sweep: {tasks / took_s:.1f} tasks a second on {len(list(workers(first)))} workers")
    print(f"sweep: tasks by number of starts {dict(Counter(starts.values()))}")
    print(f"sweep: tasks by number of successes {dict(Counter(ends.values()))}")
    assert len(ends) == tasks
    assert set(ends.values()) == {1}
    note(
        "sweep",
        [
            Figure(
                what=f"on {len(workers(first))} workers",
                value=tasks / took_s,
                unit="tasks a second",
            )
        ],
    )
    note(
        "sweep",
        [
            Figure(
                what="tasks that succeeded exactly once",
                value=list(ends.values()).count(1),
                unit=f"of {tasks:,}",
            )
        ],
    )


def workers(race: Race) -> list[Path]:
    """The files of its workers."""
    return list(Path(race.directory, "workers").iterdir())


def watch_ten_minutes(target: Cluster) -> None:
    """Watch a sweep whose tasks run, for ten minutes of the watcher's own time."""
    assert rv("sweep", "-d", "--gpu", "1", "--array", "0-99", "sleep 600").returncode == 0
    race = newest(target)
    while len(workers(race)) < 8:
        time.sleep(0.1)
    clock = Limited(time.time())
    cache = SnapshotCache(directory=target.cache.directory, key="bench-clock", clock=clock.time)
    queue = OwnJobs(transport=target.transport, cache=cache)
    watch = Watch(race=race, queue=queue, sink=Silent(), clock=clock.time, sleep=clock.sleep)
    before = rpc_counts(target)
    try:
        watch.run()
    except TimeIsUpError:
        report("ten minutes of watching a sweep that runs", difference(target, before), "sweep")
        assert rv("stop").returncode == 0
        return
    raise AssertionError("the sweep ended while it was watched")


def main() -> None:
    """Print the counts; the number of tasks is the only argument."""
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with cluster("small") as target:
        folder = Path(target.race_root).parent
        run_sweep(target, tasks, folder)
        watch_ten_minutes(target)


if __name__ == "__main__":
    main()
