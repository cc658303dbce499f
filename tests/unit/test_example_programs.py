"""The examples as jobs run them: programs with an environment and an exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ONLY = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": ""}


def python(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script in an environment of nothing but `env`."""
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, env={**ONLY, **env}, capture_output=True, text=True, timeout=120)


def test_what_i_got_names_the_job_and_its_variables() -> None:
    """The quickstart's script prints the job, and the variables that rv and torchrun use."""
    done = python(EXAMPLES / "what_i_got.py", SLURM_JOB_ID="17", RV_RACE="r1", PET_NNODES="2")

    assert (done.returncode, done.stderr) == (0, "")
    shown = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (shown["SLURM_JOB_ID"], shown["RV_RACE"], shown["PET_NNODES"]) == ("17", "r1", "2")


def test_what_i_got_survives_a_broken_nvidia_smi(tmp_path: Path) -> None:
    """An error of the driver is shown, not raised."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho broken >&2\nexit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)

    done = python(EXAMPLES / "what_i_got.py", PATH=f"{tmp_path}:{ONLY['PATH']}")

    assert done.returncode == 0
    assert "broken" in done.stdout


@pytest.mark.parametrize("ranks", [1, 2])
def test_training_counts_every_rank(ranks: int) -> None:
    """`torchrun train.py` on CPU: each rank reports itself, is counted once, and the loss falls."""
    pytest.importorskip("torch")
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]

    done = python(*launcher, EXAMPLES / "train.py", OMP_NUM_THREADS="1")

    assert done.returncode == 0, done.stderr
    assert ranks == done.stdout.count(f"/{ranks} on ")
    assert f"[TRAIN] world={ranks} ranks counted={ranks} loss " in done.stdout


def test_training_runs_without_torchrun() -> None:
    """Plain python is a world of one, also where the job script left other variables behind."""
    pytest.importorskip("torch")

    done = python(EXAMPLES / "train.py", MASTER_ADDR="192.0.2.1", MASTER_PORT="1", NODE_RANK="1")

    assert done.returncode == 0, done.stderr
    assert "[TRAIN] world=1 ranks counted=1" in done.stdout
