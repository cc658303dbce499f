"""What a launch and ten minutes of watching cost the controller, by sdiag's counts.

The ten minutes pass on a clock of the watcher's own; every question it asks is a real one.
"""

from datetime import timedelta

from cluster import cluster, rpc_counts, rv

from rv.race.directory import load_races
from rv.race.watch import WaitTimedOut, Watch
from rv.slurm.cache import SnapshotCache
from rv.slurm.squeue import OwnJobs
from rv.workflow.cluster import Cluster
from tests.bench.results import Figure, note


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Silent:
    """A sink that shows nothing."""

    def status(self, status: object) -> None: ...
    def submitted(self, results: object) -> None: ...
    def output(self, chunk: object) -> None: ...
    def say(self, text: object) -> None: ...


def difference(target: Cluster, before: dict[str, int]) -> dict[str, int]:
    """Count what came since; sdiag's own question is left out."""
    after = rpc_counts(target)
    since = {name: after[name] - before.get(name, 0) for name in after}
    quiet = ("REQUEST_STATS_INFO", "MESSAGE_NODE_REGISTRATION_STATUS")
    return {name: n for name, n in since.items() if n and name not in quiet}


def report(what: str, counts: dict[str, int], bench: str = "rpcs") -> None:
    """Print the sum and the parts, and keep both as a bench's."""
    parts = ", ".join(
        f"{name} {n}" for name, n in sorted(counts.items(), key=lambda item: -item[1])
    )
    print(f"rpcs: {what}: {sum(counts.values())} ({parts})")
    note(bench, [Figure(what=what, value=sum(counts.values()), unit="RPCs")])
    note(
        bench,
        [Figure(what=kind, value=count, unit="RPCs", table=what) for kind, count in counts.items()],
    )


def watch_ten_minutes(target: Cluster) -> None:
    """Watch the newest race for ten minutes of the watcher's own time."""
    race = load_races(target.race_root, target.key, target.transport)[0]
    clock = Clock(race.submitted_at + 1)
    cache = SnapshotCache(directory=target.cache.directory, key="bench-clock", clock=clock.time)
    watch = Watch(
        race=race,
        queue=OwnJobs(transport=target.transport, cache=cache),
        sink=Silent(),
        wait_timeout=timedelta(minutes=10),
        clock=clock.time,
        sleep=clock.sleep,
    )
    try:
        watch.run()
    except WaitTimedOut:
        return
    raise AssertionError("the race ended while it was watched")


def main() -> None:
    """Print the counts."""
    with cluster("small") as target:
        before = rpc_counts(target)
        assert rv("up", "--gpu", "1", "--run", "true").returncode == 0
        report("one launch, run and end", difference(target, before))
        fill = "for n in 1 2 3 4; do sbatch -N1 --exclusive -o /dev/null --wrap 'sleep 900' >/dev/null; done"
        target.transport.run(fill, timeout_s=30)
        assert rv("up", "--gpu", "1", "--run", "true", "-d").returncode == 0
        before = rpc_counts(target)
        watch_ten_minutes(target)
        watching = difference(target, before)
        report("ten minutes of watching a pending race", watching)
        a_minute = sum(watching.values()) / 10
        note("rpcs", [Figure(what="a minute of it, on average", value=a_minute, unit="RPCs")])


if __name__ == "__main__":
    main()
