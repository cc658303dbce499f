"""What the planner calls feasible is exactly what Slurm runs on an empty cluster.

Each strategy is submitted as rv prints it and has to run; everything else that the cluster's
partitions, GPUs, layouts, accounts and QOS could be combined to is submitted too and must not.
"""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from rv import sandbox
from rv.config.gpu_models import load_catalogue
from rv.config.strategy_families import load_families
from rv.models.request import Layouts, Request
from rv.models.snapshot import read_snapshot
from rv.planner import plan
from rv.sandbox import schema
from tests.slurm.brute import (
    AS_NOBODY,
    NOBODY,
    Attempt,
    Cluster,
    Outcome,
    Way,
    as_planned,
    attempts,
    every_way,
    way_of,
)
from tests.slurm.launching import REPOSITORY, Rv

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root's sandbox serves other users")

GIB = 1024
TEN_HOURS = {"walltime": timedelta(hours=10), "walltime_given": True}
TWO_DAYS = {"walltime": timedelta(days=2), "walltime_given": True}
SIZES = [{"gpus": 1}, {"gpus": 2}, {"gpus": 4}, {"gpus": 8}]
REQUESTS: dict[str, list[dict[str, object]]] = {
    "small": [*SIZES, {"gpus": 2, "cpus": 48}, {"gpus": 2, "memory_mib": 400 * GIB}],
    "typed": [
        *SIZES,
        {"types": ("1g.10gb",)},
        {"types": ("3g.40gb",)},
        {"gpus": 2, "memory_mib": 200 * GIB},
        {"gpus": 2, "cpus": 33},
    ],
    "features": [*SIZES, {"gpus": 2, **TEN_HOURS}, {"gpus": 2, "cpus": 33}],
    "exclusive": [*SIZES, {"gpus": 1, **TEN_HOURS}, {"gpus": 2, "memory_mib": 200 * GIB}],
    "preempt": [
        *SIZES[:3],
        {"gpus": 4, "account": "lab"},
        {"gpus": 2, "qos": "urgent"},
        {"gpus": 2, **TWO_DAYS},
        {"gpus": 1, "account": "guests", "cpus": 9},
    ],
    "nodb": [*SIZES, {"gpus": 1, **TWO_DAYS}, {"gpus": 1, "memory_mib": 100 * GIB}],
    "cpus": [
        {"gpus": 0, "cpus": 8},
        {"gpus": 0, "cpus": 24},
        {"gpus": 0, "memory_mib": 100 * GIB},
        {"gpus": 0, "memory_mib": 300 * GIB},
        {"gpus": 0, "cpus": 1, **TWO_DAYS},
    ],
}
CONSTRAINTS = {"features": ("h100", "a100&hbm80g", "hbm40g", "v100-pcie|v100-sxm2")}
"""How a person would tell the GPUs of a profile apart whose GRES has no types."""


@dataclass(frozen=True)
class Trial:
    """One request on one profile: what the planner offers, and what Slurm did with all there is."""

    asked: dict[str, object]
    feasible: frozenset[Way]
    offered: list[Outcome]
    others: list[Outcome]


def profile_file(name: str) -> str:
    """A bundled profile by name, an example by its file."""
    example = REPOSITORY / "examples" / "clusters" / f"{name}.yaml"
    return str(example) if example.exists() else name


def try_all(name: str, home: Path) -> list[Trial]:
    """Bring a profile up, and try every request on it."""
    profile = schema.load_profile(profile_file(name))
    box = sandbox.up(f"brute-{name}", profile_file(name), users=("nobody",))
    try:
        saved = Rv(box=box, home=home, prefix=AS_NOBODY)("snapshot").stdout
        snapshot, cluster = read_snapshot(saved, name), Cluster(box)
        planned, left = [], []
        for asked in REQUESTS[name]:
            everywhere = tuple(partition.name for partition in profile.partitions)
            base = Request(layouts=Layouts.ALL, preemptible=True, partitions=everywhere)
            request = replace(base, **asked)
            made = plan(request, snapshot, load_catalogue(), load_families())
            feasible = frozenset(map(way_of, made.strategies))
            rest = set(every_way(profile, request, CONSTRAINTS.get(name, ("",)))) - feasible
            planned.append((asked, feasible, [as_planned(s) for s in made.strategies]))
            left.append([a for way in sorted(rest) for a in attempts(way, profile, request)])
        ran = outcomes(cluster, [tried for _, _, tried in planned])
        others = outcomes(cluster, left)
        return [
            Trial(asked, feasible, [ran[a] for a in tried], [others[a] for a in rest])
            for (asked, feasible, tried), rest in zip(planned, left, strict=True)
        ]
    finally:
        sandbox.down(box.name)


def outcomes(cluster: Cluster, groups: list[list[Attempt]]) -> dict[Attempt, Outcome]:
    """Try what is in any of the groups once."""
    unique = list(dict.fromkeys(attempt for group in groups for attempt in group))
    return {found.attempt: found for found in cluster.try_all(unique)}


@pytest.fixture(scope="module")
def trials(
    sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[list[Trial]]"]]:
    """All profiles, a few at a time: most of the time is waiting for what must not start."""
    home = sandbox_home / "brute"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    with ThreadPoolExecutor(max_workers=4) as pool:
        yield {name: pool.submit(try_all, name, home) for name in REQUESTS}


@pytest.mark.parametrize("name", REQUESTS)
def test_every_strategy_runs_and_nothing_else_does(
    name: str, trials: dict[str, "Future[list[Trial]]"]
) -> None:
    """Offered, it runs within ten seconds; left out, Slurm refuses it or lets it wait."""
    for trial in trials[name].result():
        waits = [found for found in trial.offered if not found.ran]
        assert not waits, f"{trial.asked}: planned, but does not run"
        runs = [found for found in trial.others if found.ran]
        assert not runs, f"{trial.asked}: runs, but is not planned"
        assert trial.feasible or trial.others
