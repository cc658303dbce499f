"""Ranked by the finish, on real Slurm: what is sent, for how long, and what is learned of it."""

import json
import shutil
from dataclasses import replace
from typing import Any

import pytest

from tests.slurm.launching import Rv, group, profile

SLOW = """\
#!/bin/bash
case "$*" in */1.sh*) sleep 1 ;; esac
exec {sbatch} "$@"
"""
ASK = ("--gpu", "1-4", "--for", "finish", "--name", "night")


@pytest.fixture
def rv(fresh_sandbox, slurm, eventually, tmp_path):
    """Four V100 that are free, and four H200 that are taken for ten minutes."""
    box = fresh_sandbox(profile([group("v", "v100"), group("h", "h200")], {"v": ["v"], "h": ["h"]}))
    sleep = ("-o", "/dev/null", "--gres=gpu:h200:4", "--mem=1G", "--wrap", "sleep 900")
    slurm(box, "sbatch", "-J", "taken", "-p", "h", "-N1", "-t", "10", *sleep)
    eventually(lambda: "RUNNING" in slurm(box, "squeue", "-h", "-o", "%T"))
    return Rv(box=box, home=tmp_path)


def first_is_slow(rv: Rv) -> Rv:
    """Let sbatch take a second longer for the best job than for the others."""
    folder = rv.home / "slow"
    folder.mkdir()
    script = folder / "sbatch"
    script.write_text(SLOW.format(sbatch=shutil.which("sbatch")), encoding="utf-8")
    script.chmod(0o755)
    return replace(rv, more={"PATH": f"{folder}:{rv.environment['PATH']}"})


def plan(rv: Rv, work: str) -> dict[str, Any]:
    done = rv("up", *ASK, "--work", work, "--run", "true", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_short_work_starts_now_and_a_long_one_waits_for_the_fast_gpus(rv, slurm, eventually):
    """Each asks for its own time, and the next plan knows how long it took."""
    show = 'squeue -h -j $SLURM_JOB_ID -o "%l $RV_STRATEGY"'
    short = rv("up", *ASK, "--work", "0.3gpuh:v100", "--run", show, timeout=90)
    assert short.returncode == 0, short.stderr
    limit, strategy = short.stdout.split()
    assert strategy.startswith("v100/1x4/")
    assert limit == "9:00"  # 0.3 h on four of them over PCIe is 5m31s; 1.3 and 1.2 times that

    again = plan(rv, "0.3gpuh:v100")
    assert again["strategies"][0]["correction"] == "x0.25 by 1 past run of this name"
    assert again["strategies"][0]["walltime_s"] == 540

    long = plan(rv, "4gpuh:v100")
    best, *others = long["strategies"]
    assert (best["gpu"], best["gpus"], best["estimate"]["source"]) == ("h200", 4, "planned")
    assert best["finish_p50_s"] > best["estimate"]["start_in_s"] > 500
    late = [one for one in others if one["left_out"]]
    assert {one["id"] for one in late} >= {"v100/1x1/v", "v100/1x2/v"}
    assert len(long["submissions"]) == len(long["strategies"]) - len(late)

    slow = first_is_slow(rv)
    waits = slow("up", *ASK, "--work", "4gpuh:v100", "--run", "true", "-d")
    assert waits.returncode == 0, waits.stderr
    names = rv.slurm("squeue", "-h", "-t", "PD", "-S", "i", "-O", "Name:60").split()
    assert len(names) > 1
    assert names == sorted(names), "of equal jobs Slurm starts that with the lowest id"
    rows = rv.slurm("squeue", "-h", "-t", "PD", "-O", "Partition:20").split()
    assert "h" in rows
    assert "v" not in rows
    slurm(rv.box, "scancel", "-n", "taken")
    ended = rv("wait", waits.stdout.strip(), timeout=90)
    assert ended.returncode == 0, ended.stderr
