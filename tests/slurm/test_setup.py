"""`rv init` and `rv doctor` on a login node: no ssh, the same answers."""

import json
from pathlib import Path

import pytest
import yaml

from rv import sandbox
from tests.slurm.launching import Rv


@pytest.fixture
def rv(small: sandbox.Sandbox, tmp_path: Path) -> Rv:
    """`rv` on `small`, with a configuration of its own."""
    return Rv(box=small, home=tmp_path, more={"HOME": str(tmp_path), "RV_RACE_ROOT": ""})


def test_init_on_a_login_node_names_what_is_there(rv: Rv) -> None:
    """Without an argument; then a name of the user's finds it, and a default counts for it."""
    done = rv("init", "--name", "here")
    assert done.returncode == 0, done.stderr
    path = rv.home / "config" / "rv" / "config.yaml"
    written = yaml.safe_load(path.read_text())
    assert written == {"cluster": "here", "clusters": {"here": {"host": f"sandbox:{rv.box.name}"}}}
    assert "rv up --gpu 1 --dry-run --cluster here shows what rv could run now" in done.stderr
    root = rv.home / "far" / "races"
    for key, value in {"race_root": "~/far/races", "defaults.time": "7m"}.items():
        assert rv("config", "set", f"clusters.here.{key}", value).returncode == 0
    ran = rv("run", "--json", "true")
    assert ran.returncode == 0, ran.stderr
    assert "time is 7m by" in ran.stderr
    assert [each.name for each in root.glob("[!.]*")] == [json.loads(ran.stdout)["race"]]


def test_doctor_on_a_login_node_leaves_nothing(rv: Rv) -> None:
    """Each link but ssh's; the race root that was not there is not there afterwards."""
    done = rv("doctor", "--json")
    checks = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert done.returncode == 0, done.stdout
    assert checks["connection"]["what"].startswith("on this machine")
    assert checks["race root from a node"]["verdict"] == "ok"
    assert checks["submission from a node"]["verdict"] == "ok"
    assert not (rv.home / ".local").exists()
    assert rv.slurm("squeue", "-h", "-o", "%j").split().count("rv-doctor") == 0
