"""Bugs that cost people days, each dead here: vanished fast jobs, late accounting, lost local files."""

import json
import sys

import pytest

from rv import sandbox
from tests.faults.conftest import MakeWorld
from tests.faults.test_status_resolution import (
    detached,
    late_slurmdbd,
    no_slurmdbd,
    run_short_job,
    vanished,
    winner,
)
from tests.faults.world import COUNTED, World, eventually


@pytest.fixture
def world(make_world: MakeWorld, forgetful: sandbox.Sandbox) -> World:
    """A world on a cluster that forgets a job after two seconds."""
    return make_world(forgetful)


def test_a_fast_job_that_vanished_from_squeue_is_completed_and_not_failed(world: World) -> None:
    """It ended between two looks of the monitor, and squeue did not list it any more."""
    run_short_job(world)
    # Once more, with nobody looking before Slurm has forgotten the job.
    (first,) = world.races()
    assert world.rv("run", "-d", f"{COUNTED}; sleep 0.1").returncode == 0
    (second,) = set(world.races()) - {first}
    eventually((second / "claim").exists)
    job_id = int((second / "claim").read_text().split(".")[0])
    eventually(lambda: vanished(world, job_id))
    assert {race["state"] for race in world.ps()} == {"COMPLETED"}


def test_a_job_whose_accounting_record_lags_is_never_called_failed(world: World) -> None:
    """Neither squeue nor sacct knew it yet: without evidence rv says UNKNOWN, and waits."""
    with late_slurmdbd(world):
        detached(world, f"{COUNTED}; sleep 0.1")
        job_id = winner(world)
        eventually((world.race_dir() / "ended").exists)
        eventually(lambda: vanished(world, job_id))
        (world.race_dir() / "ended").unlink()
        assert world.race()["state"] == "UNKNOWN"
    assert world.settled("COMPLETED", "FAILED", "ENDED")["state"] == "COMPLETED"


def test_a_job_without_any_accounting_is_never_called_failed(world: World) -> None:
    """slurmdbd is not there at all: the exit file is the evidence."""
    with no_slurmdbd(world):
        run_short_job(world)


def test_a_launchers_local_file_is_found_from_the_project_directory(world: World) -> None:
    """`torchrun --nproc_per_node=2 train.py`: the file is not the first word, and not in HOME."""
    (world.work / "train.py").write_text(
        "import os, pathlib\n"
        "with open('ranks', 'a') as out: print(os.environ['RANK'], os.environ['WORLD_SIZE'], file=out)\n",
        encoding="utf-8",
    )
    put_torchrun(world)
    done = world.rv("run", "-g", "2", "--", "torchrun", "--nproc_per_node=2", "train.py")
    assert done.returncode == 0, done.stderr
    assert sorted(World.lines(world.work / "ranks")) == ["0 2", "1 2"]


def put_torchrun(world: World) -> None:
    """Put a torchrun on PATH that needs no torch: it starts the ranks, where it was started."""
    body = (
        "import os, subprocess, sys\n"
        "n = int(sys.argv[1].split('=')[1])\n"
        "env = [os.environ | {'RANK': str(rank), 'WORLD_SIZE': str(n)} for rank in range(n)]\n"
        "ranks = [subprocess.Popen([sys.executable, *sys.argv[2:]], env=each) for each in env]\n"
        "sys.exit(max(rank.wait() for rank in ranks))\n"
    )
    path = world.bin / "torchrun"
    path.write_text(f"#!{sys.executable}\n{body}", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize(
    "words",
    [
        ("torchrun", "--nproc_per_node=2", "absent.py"),
        ("torchrun", "--nproc_per_node", "2", "--standalone", "absent.py"),
        ("python", "-m", "torch.distributed.run", "--nproc_per_node=2", "absent.py"),
        ("accelerate", "launch", "absent.py"),
        ("deepspeed", "absent.py"),
        ("env", "X=1", "python", "absent.py"),
        ("uv", "run", "absent.py"),
        ("absent.py",),
    ],
    ids=" ".join,
)
def test_a_launchers_missing_script_is_an_error_before_anything_is_submitted(
    world: World, words: tuple[str, ...]
) -> None:
    """Seen behind every launcher, so that no hour in the queue ends in `No such file`."""
    done = world.rv("run", "-g", "2", "--json", "--", *words)
    assert done.returncode == 2, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "usage"
    assert "absent.py" in error["message"]
    assert world.races() == []
