"""From the winner's start to the last loser gone from the queue. Wanted: p99 at most 2 s.

The queue is read as fast as squeue answers while each race of many jobs runs.
"""

import os
import subprocess
import sys
import time

from cluster import RV, cluster
from timing import percentile

from rv.race.directory import load_races, read_state_files
from rv.race.file_names import STATE_FILES
from rv.workflow.cluster import Cluster
from tests.bench.results import Figure, note


def one_race(target: Cluster) -> tuple[float, int]:
    """Race with every strategy at once; return the seconds and the number of losers."""
    client = subprocess.Popen(
        [*RV, "up", "--gpu", "4", "--fanout", "each", "--run", "torchrun --help; sleep 4"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    last_seen = 0.0
    while client.poll() is None:
        printed = target.transport.run("squeue -h -t PD,R,CF -o '%j %T'", timeout_s=30).stdout
        if len(printed.splitlines()) > 1:
            last_seen = time.time()
    race = load_races(target.race_root, target.key, target.transport)[0]
    claim = read_state_files(target.transport.read_tree(race.directory, STATE_FILES)).claim
    assert claim is not None
    return max(0.0, last_seen - claim.started_at), len(race.entries) - 1


def main(rounds: int) -> None:
    """Print the percentiles."""
    with cluster("campus") as target:
        results = [one_race(target) for _ in range(rounds)]
    seconds = [value for value, _ in results]
    print(f"losers: {rounds} races of {results[0][1] + 1} jobs:", end=" ")
    print(
        f"p50 {percentile(seconds, 0.5):.2f} s, p99 {percentile(seconds, 0.99):.2f} s (want <= 2)"
    )
    what = f"{rounds} races of {results[0][1] + 1} jobs"
    note("losers", [Figure(what=f"{what}: p50", value=percentile(seconds, 0.5), unit="s")])
    note("losers", [Figure(what=f"{what}: p99", value=percentile(seconds, 0.99), unit="s", most=2)])


if __name__ == "__main__":
    main(int(os.environ.get("RV_ROUNDS", "30")) if len(sys.argv) < 2 else int(sys.argv[1]))
