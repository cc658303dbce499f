"""What the plan says of holes is what Slurm then does."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.slurm.launching import Rv, group, profile


def plan(rv: Rv, *options: str) -> list[dict[str, Any]]:
    """The strategies of a dry run, from a snapshot taken now."""
    done = rv("up", "--dry-run", "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["strategies"]


@pytest.fixture
def rv(fresh_sandbox, slurm, eventually, tmp_path):
    """Two nodes: one full for ten minutes, and a job planned for both when it ends."""
    passes = {"bf_interval": 3, "bf_continue": "", "sched_interval": 5}
    box = fresh_sandbox(profile([group("v", "v100", nodes=2)], scheduler=passes))
    sleep = ("-o", "/dev/null", "--gres=gpu:v100:4", "-c", "8", "--mem=1G", "--wrap", "sleep 900")
    slurm(box, "sbatch", "-N1", "-t", "10", *sleep)
    eventually(lambda: "RUNNING" in slurm(box, "squeue", "-h", "-o", "%T"))
    slurm(box, "sbatch", "-N2", "-t", "60", "-J", "big", *sleep)
    eventually(lambda: "v[1-2]" in slurm(box, "squeue", "-h", "-t", "PD", "-O", "SchedNodes"))
    return Rv(box=box, home=tmp_path)


def test_what_fits_the_hole_starts_and_what_does_not_waits(rv, eventually):
    """Five minutes fit before the planned job; twenty start after its end, and Slurm agrees."""
    (short,) = plan(rv, "--gpu", "4", "--time", "5m", "--single-node")
    assert (short["estimate"]["source"], short["mode"]) == ("hole", "backfill")
    assert short["estimate"]["start_in_s"] == 0
    assert 480 < short["estimate"]["window_s"] <= 600

    (part, long) = plan(rv, "--gpu", "4", "--time", "20m", "--single-node")
    assert (part["mode"], part["total_s"]) == ("checkpoint", 1200)
    assert part["segments"] > 2
    assert part["estimate"]["source"] == "hole"
    assert (long["estimate"]["source"], long["mode"]) == ("planned", "direct")
    assert 4000 < long["estimate"]["start_in_s"] <= 4200

    up = ("up", "--gpu", "4", "--single-node")
    waits = rv(*up, "--time", "20m", "--run", "true", "-d")
    assert waits.returncode == 0, waits.stderr
    starts = rv(*up, "--time", "5m", "--run", "true", timeout=60)
    assert starts.returncode == 0, starts.stderr

    name = f"rv-{waits.stdout.strip()}-1"
    form = f"--name={name},big", "-h", "-O", "Name:40,State:12,StartTime:24,EndTime:24"
    eventually(lambda: "N/A" not in rv.slurm("squeue", *form))
    rows = {row.split()[0]: row.split()[1:] for row in rv.slurm("squeue", *form).splitlines()}
    assert rows[name][0] == "PENDING"
    # Slurm plans in whole minutes (bf_resolution).
    assert rows[name][1][:16] >= rows["big"][2][:16]


def test_segments_and_shorter_times_start_in_the_hole(rv):
    """Twenty minutes do not fit: segments of them do, and so does less where less will do."""
    up = ("up", "--gpu", "4", "--single-node", "--time", "20m")
    for option in (["--checkpoint"], ["--min-time", "4m"]):
        done = rv(*up, *option, "--run", "squeue -h -j $SLURM_JOB_ID -o %l", timeout=60)
        assert done.returncode == 0, done.stderr
        minutes = int(done.stdout.split(":")[0])
        assert 6 <= minutes <= 9, done.stdout


def test_a_saved_snapshot_plans_the_same_without_the_cluster(rv, tmp_path):
    """`rv snapshot` on the cluster, `--snapshot FILE` anywhere."""
    saved = tmp_path / "cluster.json"
    done = rv("snapshot")
    assert done.returncode == 0, done.stderr
    saved.write_text(done.stdout, encoding="utf-8")
    here = plan(rv, "--gpu", "4", "--time", "5m")
    away = replace(rv, more={"SLURM_CONF": "/nonexistent/slurm.conf"})
    assert plan(away, "--gpu", "4", "--time", "5m", "--snapshot", str(saved)) == here
