"""What the plan says of holes is what Slurm then does."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.slurm.launching import group, profile


def plan(*options: str) -> list[dict[str, Any]]:
    """The strategies of a dry run, from a snapshot taken now."""
    done = subprocess.run(
        [sys.executable, "-m", "rv", "up", "--dry-run", "--json", *options],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)["strategies"]


@pytest.fixture
def hole(fresh_sandbox, slurm, eventually, monkeypatch, tmp_path):
    """Two nodes: one full for ten minutes, and a job planned for both when it ends."""
    passes = {"bf_interval": 3, "bf_continue": "", "sched_interval": 5}
    box = fresh_sandbox(profile([group("v", "v100", nodes=2)], scheduler=passes))
    monkeypatch.setenv("SLURM_CONF", str(box.slurm_conf))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sleep = ("-o", "/dev/null", "--gres=gpu:v100:4", "-c", "8", "--mem=1G", "--wrap", "sleep 900")
    slurm(box, "sbatch", "-N1", "-t", "10", *sleep)
    eventually(lambda: "RUNNING" in slurm(box, "squeue", "-h", "-o", "%T"))
    slurm(box, "sbatch", "-N2", "-t", "60", "-J", "big", *sleep)
    eventually(lambda: "v[1-2]" in slurm(box, "squeue", "-h", "-t", "PD", "-O", "SchedNodes"))
    return box


def test_what_fits_the_hole_starts_and_what_does_not_waits(hole, slurm, eventually, tmp_path):
    """Five minutes fit before the planned job; twenty start after its end, and Slurm agrees."""
    (short,) = plan("--gpu", "4", "--time", "5m", "--single-node")
    assert (short["estimate"]["source"], short["mode"]) == ("hole", "backfill")
    assert short["estimate"]["start_in_s"] == 0
    assert 480 < short["estimate"]["window_s"] <= 600

    (part, long) = plan("--gpu", "4", "--time", "20m", "--single-node")
    assert (part["mode"], part["total_s"]) == ("checkpoint", 1200)
    assert part["segments"] > 2
    assert part["estimate"]["source"] == "hole"
    assert (long["estimate"]["source"], long["mode"]) == ("planned", "direct")
    assert 4000 < long["estimate"]["start_in_s"] <= 4200

    rv = [sys.executable, "-m", "rv", "up", "--gpu", "4", "--single-node"]
    waits = subprocess.run(
        [*rv, "--time", "20m", "--run", "true", "-d"], capture_output=True, text=True, check=True
    )
    starts = subprocess.run(
        [*rv, "--time", "5m", "--run", "true"], capture_output=True, text=True, timeout=30
    )
    assert starts.returncode == 0, starts.stderr

    name = f"rv-{waits.stdout.strip()}-1"
    form = f"--name={name},big", "-h", "-O", "Name:40,State:12,StartTime:24,EndTime:24"
    eventually(lambda: "N/A" not in slurm(hole, "squeue", *form))
    rows = {row.split()[0]: row.split()[1:] for row in slurm(hole, "squeue", *form).splitlines()}
    assert rows[name][0] == "PENDING"
    # Slurm plans in whole minutes (bf_resolution).
    assert rows[name][1][:16] >= rows["big"][2][:16]


def test_segments_and_shorter_times_start_in_the_hole(hole):
    """Twenty minutes do not fit: segments of them do, and so does less where less will do."""
    rv = [sys.executable, "-m", "rv", "up", "--gpu", "4", "--single-node", "--time", "20m"]
    for option in (["--checkpoint"], ["--min-time", "4m"]):
        done = subprocess.run(
            [*rv, *option, "--run", "squeue -h -j $SLURM_JOB_ID -o %l"],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        minutes = int(done.stdout.split(":")[0])
        assert 6 <= minutes <= 9, done.stdout


def test_a_saved_snapshot_plans_the_same_without_the_cluster(hole, tmp_path, monkeypatch):
    """`rv snapshot` on the cluster, `--snapshot FILE` anywhere."""
    saved = tmp_path / "cluster.json"
    done = subprocess.run(
        [sys.executable, "-m", "rv", "snapshot"], capture_output=True, text=True, check=True
    )
    saved.write_text(done.stdout, encoding="utf-8")
    here = plan("--gpu", "4", "--time", "5m")
    monkeypatch.setenv("SLURM_CONF", "/nonexistent/slurm.conf")
    assert plan("--gpu", "4", "--time", "5m", "--snapshot", str(saved)) == here
