"""What a plan costs the controller, by sdiag's counts: the same for one strategy as for twelve."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rv.workflow.locate import locate
from tests.bench.cluster import rpc_counts


@pytest.fixture
def quiet(fresh_sandbox, monkeypatch):
    """A cluster that nobody else asks anything."""
    box = fresh_sandbox("campus")
    monkeypatch.setenv("SLURM_CONF", str(box.slurm_conf))
    return locate("", os.environ)


def asked(target, monkeypatch, cache: Path, *options: str) -> tuple[int, dict[str, int]]:
    """Plan with nothing cached; return the number of strategies and the RPCs by their names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    before = rpc_counts(target)
    argv = [sys.executable, "-m", "rv", "up", "--dry-run", "--json", *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    after = rpc_counts(target)
    since = {name: after[name] - before.get(name, 0) for name in after}
    ours = {n: c for n, c in since.items() if n.startswith("REQUEST_") and c}
    ours.pop("REQUEST_STATS_INFO")  # sdiag itself
    return len(json.loads(done.stdout)["strategies"]), ours


def test_strategies_cost_the_controller_nothing(quiet, monkeypatch, tmp_path):
    """One probe asks each thing once, however many ways there are to serve the request."""
    one, few = asked(
        quiet, monkeypatch, tmp_path / "1", "--gpu", "4", "--type", "h200", "--single-node"
    )
    twelve, many = asked(quiet, monkeypatch, tmp_path / "2", "--gpu", "4")
    assert (one, twelve) == (1, 12)
    assert few == many
    assert few["REQUEST_JOB_INFO"] == few["REQUEST_NODE_INFO"] == 1
