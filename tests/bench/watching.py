"""Two hundred races at once, watched by one client and by twenty: squeues and memory.

Wanted: no more than one squeue a tick (3 s, a watching client's shortest) by sdiag's counts, however
many clients there are, and less than 80 MiB each. RV_WATCH_S (60) is how long each watches.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from rv.models.race import Race
from rv.models.request import Command, Request
from rv.workflow.cluster import Cluster
from rv.workflow.launch import prepare
from rv.workflow.start import start
from tests.bench.cluster import cluster, rpc_counts

RACES: Final = 200
CLIENTS: Final = (1, 20)
SECONDS: Final = float(os.environ.get("RV_WATCH_S", "60"))
TICK_S: Final = 3.0
MEMORY_MIB: Final = 80
_SQUEUES: Final = ("REQUEST_JOB_INFO", "REQUEST_JOB_USER_INFO", "REQUEST_JOB_INFO_SINGLE")
_PEAK: Final = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


class Silent:
    """A sink that shows nothing."""

    def status(self, status: object) -> None: ...
    def submitted(self, results: object) -> None: ...
    def output(self, chunk: object) -> None: ...
    def say(self, text: object) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What watching cost: the controller's answers about jobs, and the largest client's MiB."""

    clients: int
    seconds: float
    squeues: int
    peak_mib: float

    @property
    def allowed(self) -> int:
        """One squeue a tick, and one more at each end."""
        return int(self.seconds / TICK_S) + 2


def occupy(target: Cluster) -> None:
    """Fill the cluster, so that every race waits."""
    hog = "sbatch -N1 --exclusive -o /dev/null --wrap 'exec sleep 3600' >/dev/null"
    nodes = target.transport.run("sinfo -h -N -o %N | sort -u | wc -l", timeout_s=30).stdout
    target.transport.run(f"for n in $(seq {int(nodes)}); do {hog}; done", timeout_s=60)


def race(target: Cluster) -> Race:
    """Start a race that nobody watches."""
    request = Request(gpus=1, walltime=timedelta(minutes=5), command=Command(line="true"))
    made = prepare(request, target, str(Path.cwd()), dict(os.environ), time.time())
    return start(made, target, Silent(), detached=True)


def watched(target: Cluster, races: Sequence[Race], clients: int, seconds: float) -> Cost:
    """Watch for a while, with so many clients, each at a race of its own."""
    with _watching(races[:clients]) as processes:
        before = _asked(target)
        time.sleep(seconds)
        squeues = _asked(target) - before
        peaks = [_peak_mib(process.pid) for process in processes]
        gone = [process.returncode for process in processes if process.poll() is not None]
        assert not gone, f"clients ended with {gone}"
    return Cost(clients=clients, seconds=seconds, squeues=squeues, peak_mib=max(peaks))


@contextmanager
def _watching(races: Sequence[Race]) -> "Iterator[list[subprocess.Popen[bytes]]]":
    argv = [sys.executable, "-m", "rv", "logs", "-f"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen([*argv, one.race_id], **quiet) for one in races]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def _asked(target: Cluster) -> int:
    counts = rpc_counts(target)
    return sum(counts.get(name, 0) for name in _SQUEUES)


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = _PEAK.search(status)
    return int(found[1]) / 1024 if found else 0.0


def main() -> None:
    """Print the costs."""
    with cluster("small") as target:
        occupy(target)
        races = [race(target) for _ in range(RACES)]
        for clients in CLIENTS:
            cost = watched(target, races, clients, SECONDS)
            print(
                f"watching: {RACES} races, {cost.clients} clients, {cost.seconds:.0f} s:"
                f" {cost.squeues} squeues (at most {cost.allowed}),"
                f" {cost.peak_mib:.0f} MiB a client (at most {MEMORY_MIB})"
            )
            assert cost.squeues <= cost.allowed
            assert cost.peak_mib < MEMORY_MIB


if __name__ == "__main__":
    main()
