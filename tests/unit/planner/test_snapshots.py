"""Plans on the saved snapshots of all sandbox profiles: the same every time, and what they hold."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rv.models.request import Layouts, Request
from rv.models.snapshot import read_snapshot, write_snapshot
from rv.sandbox import schema
from tests.unit.planner.clusters import planned
from tests.unit.test_cli import rv  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "tests" / "data" / "snapshots").glob("*.json"))
PROFILES = ["small", "campus", *sorted(map(str, (ROOT / "examples" / "clusters").glob("*.yaml")))]
EVERY = {"layouts": Layouts.ALL}
# Strategies, exclusions and jobs: each was looked at once, and tests/slurm/test_feasible.py
# holds the first number to what Slurm runs.
COUNTS = {
    "campus": [({"gpus": 2}, (7, 1, 5)), ({"gpus": 4}, (12, 2, 10)), ({"gpus": 0}, (1, 0, 1))],
    "cpus": [
        ({"gpus": 1}, (0, 0, 0)),
        ({"gpus": 0, "cpus": 8}, (2, 1, 1)),
        ({"gpus": 0, "cpus": 8, "power_up": True}, (3, 0, 1)),
    ],
    "exclusive": [({"gpus": 1}, (3, 0, 3)), ({"gpus": 4, **EVERY}, (5, 1, 5))],
    "features": [
        ({"gpus": 1}, (8, 0, 8)),
        ({"gpus": 4, **EVERY}, (10, 6, 10)),
        ({"gpus": 2, "constraint": "[rack1|rack2]"}, (10, 0, 8)),
    ],
    "nodb": [({"gpus": 2}, (2, 5, 2)), ({"gpus": 2, "preemptible": True}, (4, 3, 2))],
    "preempt": [
        ({"gpus": 2}, (3, 3, 2)),
        ({"gpus": 2, "qos": "urgent"}, (3, 3, 2)),
        ({"gpus": 4, **EVERY}, (3, 5, 3)),
    ],
    "small": [({"gpus": 1}, (2, 0, 2)), ({"gpus": 4, **EVERY}, (4, 0, 4))],
    "typed": [({"gpus": 2}, (4, 2, 4)), ({"types": ("3g.40gb",)}, (1, 0, 1))],
}
CASES = [(name, *case) for name, cases in COUNTS.items() for case in cases]


def load(name):
    """Read a snapshot by its profile's name."""
    path = ROOT / "tests" / "data" / "snapshots" / f"{name}.json"
    return read_snapshot(path.read_text(encoding="utf-8"), name)


def test_every_profile_has_a_snapshot_and_every_snapshot_its_counts():
    """None is forgotten."""
    assert {Path(profile).stem for profile in PROFILES} == {path.stem for path in FILES}
    assert {path.stem for path in FILES} == set(COUNTS)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: Path(profile).stem)
def test_a_snapshot_holds_the_nodes_of_its_profile(profile):
    """A profile that has changed since needs a new one: tests/snapshots.sh takes it."""
    wanted, found = schema.load_profile(profile), load(Path(profile).stem)
    assert {node.name for node in found.nodes} == set(wanted.node_names)
    assert [part.name for part in found.partitions] == [part.name for part in wanted.partitions]
    assert write_snapshot(found).strip() in (
        path.read_text(encoding="utf-8").strip() for path in FILES
    )


@pytest.mark.parametrize(("name", "asked", "counts"), CASES)
def test_plans_are_what_they_were_and_the_same_in_any_order(name, asked, counts):
    """The counts, and one plan whatever the order of nodes, partitions and QOS."""
    snapshot, request = load(name), Request(**asked)
    made = planned(request, snapshot)
    assert (len(made.strategies), len(made.excluded), len(made.submissions)) == counts
    turned = replace(
        snapshot,
        nodes=snapshot.nodes[::-1],
        partitions=snapshot.partitions[::-1],
        qos=snapshot.qos[::-1],
        accounts=snapshot.accounts[::-1],
    )
    assert planned(request, snapshot) == planned(request, turned) == made


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dry_run_needs_no_cluster(rv, path):  # noqa: F811 - the fixture
    """`rv up --dry-run --snapshot FILE` plans on each."""
    gpus = ("--gpu", "0", "--cpus", "8") if path.stem == "cpus" else ("--gpu", "2")
    done = rv("up", "--dry-run", "--json", "--snapshot", str(path), *gpus)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["submissions"]
