"""What users who launch and wait cost the controller: rv, sbatch and a look at the queue, submitit.

So many users at once (`--users 20`) each send one job to a full cluster, and then wait for it for
a minute (`--seconds 60`). Each has folders of their own, so that nobody gains from another's cache.
RPCs are sdiag's counts of the controller, and sacctmgr's of the accounting database; what 200 users
would make of them is the same rate times ten, which is extrapolated and says so.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rv.workflow.cluster import Cluster
from tests.bench.cluster import RV, cluster, rpc_counts
from tests.bench.results import Figure, note
from tests.bench.rivals import at_hand, installed

SITE: Final = 200
"""Users of the site that the rates are extrapolated to."""

SETTLES_S: Final = 20.0
"""From the beginning of the wait until it is counted."""

_SUBMITIT: Final = Path(__file__).with_name("with_submitit.py")
_SBATCH: Final = "sbatch --parsable -t 5 --gres=gpu:1 --mem=1G -o /dev/null --wrap true"
_NOT_THEIRS: Final = ("REQUEST_STATS_INFO", "MESSAGE_NODE_REGISTRATION_STATUS")
_DATABASE_ROW: Final = re.compile(
    r"^\s*(DBD_\w+|MSG_\w+|PERSIST_\w+)\s*\(.*?count:(\d+)", re.MULTILINE
)
_NOT_OF_USERS: Final = ("DBD_GET_STATS", "DBD_FINI", "SLURM_PERSIST_INIT")

Counts = Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """How a user launches, and how they wait for what the launch printed, as shell lines."""

    launch: str
    wait: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """RPCs of the controller and of the database, of all users: launches, and the counted wait."""

    launch: Counts
    wait: Counts
    launch_database: int
    wait_database: int


def ways() -> Mapping[str, Way]:
    """Who is compared: submitit only where a bench has installed it."""
    rv = " ".join(RV)
    known = {
        "rv": Way(launch=f"{rv} up --gpu 1 --time 5m --run true -d", wait=f"{rv} wait"),
        "sbatch, watch squeue (2 s)": Way(
            launch=_SBATCH, wait="while :; do squeue --me >/dev/null; sleep 2; done"
        ),
        "sbatch, squeue each 30 s": Way(
            launch=_SBATCH, wait="while :; do squeue --me >/dev/null; sleep 30; done"
        ),
        "sbatch --wait": Way(launch="true", wait=f"{_SBATCH} --wait"),
    }
    if "submitit" in at_hand():
        python = at_hand()["submitit"] / "python"
        known["submitit"] = Way(
            launch=f"{python} {_SUBMITIT} send $HOME/submitit",
            wait=f"{python} {_SUBMITIT} wait $HOME/submitit",
        )
    return known


def users(home: Path, count: int) -> list[dict[str, str]]:
    """Environments of so many users."""
    found = []
    for number in range(count):
        folder = home / f"u{number}"
        folder.mkdir(parents=True)
        own = {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("STATE", "CACHE", "CONFIG")}
        found.append(dict(os.environ) | own | {"HOME": str(folder)})
    return found


def measured(target: Cluster, way: Way, home: Path, count: int, seconds: float) -> Cost:
    """Let the users launch, then wait, and count."""
    people = users(home, count)
    before, database = rpc_counts(target), _database(target)
    _all(way.launch, people)
    launch, launch_database = _since(target, before), _database(target) - database
    waiting = [_start(way.wait, person) for person in people]
    try:
        time.sleep(SETTLES_S)
        before, database = rpc_counts(target), _database(target)
        time.sleep(seconds)
        cost = Cost(
            launch=launch,
            launch_database=launch_database,
            wait=_since(target, before),
            wait_database=_database(target) - database,
        )
        gone = [one.returncode for one in waiting if one.poll() is not None]
        assert not gone, f"{way.wait}: ended with {gone}"
    finally:
        for one in waiting:
            os.killpg(one.pid, 9)
            one.wait()
    return cost


def _all(line: str, people: Sequence[dict[str, str]]) -> None:
    """Run a line as each user, four at once."""
    for first in range(0, len(people), 4):
        started = [_start(line, person) for person in people[first : first + 4]]
        codes = [one.wait(timeout=120) for one in started]
        assert not any(codes), f"{line}: {codes}"


def _start(line: str, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Begin a line in a process group of its own."""
    quiet = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    return subprocess.Popen(["bash", "-c", line], env=environment, start_new_session=True, **quiet)


def _since(target: Cluster, before: Counts) -> Counts:
    after = rpc_counts(target)
    since = {name: after[name] - before.get(name, 0) for name in after}
    return {name: n for name, n in since.items() if n > 0 and name not in _NOT_THEIRS}


def _database(target: Cluster) -> int:
    """Count what the accounting database was asked, by whomever."""
    printed = target.transport.run("sacctmgr show stats", timeout_s=30).stdout
    rows = _DATABASE_ROW.findall(printed)
    return sum(int(count) for name, count in rows if name not in _NOT_OF_USERS)


def report(name: str, cost: Cost, count: int, seconds: float) -> None:
    """Print and keep what one way cost."""
    launch = sum(cost.launch.values()) / count
    minute = sum(cost.wait.values()) / count * 60 / seconds
    database = cost.wait_database / count * 60 / seconds
    print(
        f"users: {name}: {launch:.1f} RPCs a launch, {minute:.2f} a minute of waiting; database"
        f" {cost.launch_database / count:.1f} and {database:.2f}; {count} users measured;"
        f" {SITE} users would be {SITE * minute:.0f} a minute (extrapolated)"
    )
    for part, counts in (("launch", cost.launch), ("wait", cost.wait)):
        kinds = sorted(counts.items(), key=lambda item: -item[1])
        print(f"  {part}: " + ", ".join(f"{kind} {number / count:.2f}" for kind, number in kinds))
    columns = {
        "a launch": launch,
        "a minute of waiting": minute,
        "a launch, database": cost.launch_database / count,
        "a minute of waiting, database": database,
        f"{SITE} users, a minute of waiting (extrapolated)": SITE * minute,
    }
    note("users", [Figure(what=name, value=v, unit="RPCs", table=k) for k, v in columns.items()])
    kinds = [
        Figure(what=f"{kind} ({part})", value=number / count, unit="RPCs", table=name)
        for part, counts in (("launch", cost.launch), ("wait", cost.wait))
        for kind, number in counts.items()
    ]
    note("users_by_kind", kinds)


def main() -> None:
    """Print the costs of each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with installed(["submitit"]), cluster("small") as target:
        hog = "sbatch -N1 --exclusive -o /dev/null --wrap 'exec sleep 3600' >/dev/null"
        target.transport.run(f"for n in 1 2 3 4; do {hog}; done", timeout_s=60)
        folder = Path(os.environ["XDG_STATE_HOME"]).parent / "users"
        for number, (name, way) in enumerate(ways().items()):
            home = folder / str(number)
            report(
                name,
                measured(target, way, home, options.users, options.seconds),
                options.users,
                options.seconds,
            )
            target.transport.run("scancel --state=PENDING --me", timeout_s=60)


if __name__ == "__main__":
    sys.exit(main())
