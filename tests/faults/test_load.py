"""Many clients cost the controller what one does. tests/bench/watching.py does it with 200 races."""

from pathlib import Path

import pytest

from tests.bench import watching
from tests.bench.cluster import cluster

RACES = 10
CLIENTS = 4
SECONDS = 15


def test_clients_share_their_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One squeue a tick for all of them, and little memory each."""
    for kind in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path))  # the cluster's own, undone after
    monkeypatch.setenv("SLURM_CONF", "")
    with cluster("small") as target:
        watching.occupy(target)
        races = [watching.race(target) for _ in range(RACES)]
        cost = watching.watched(target, races, CLIENTS, SECONDS)
    assert 0 < cost.squeues <= cost.allowed
    assert cost.peak_mib < watching.MEMORY_MIB
