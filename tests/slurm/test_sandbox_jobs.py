"""What jobs see and what the profiles do to them, on real clusters."""

import os
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from rv import sandbox

Slurm = Callable[..., str]
RunJob = Callable[..., str]
Eventually = Callable[..., None]


@pytest.mark.parametrize("export", ["--export=NONE", "--export=ALL"])
def test_a_job_sees_its_nodes_nvidia_smi(
    small: sandbox.Sandbox, run_job: RunJob, export: str
) -> None:
    """In the batch script and in srun's tasks, with and without the submitter's environment."""
    script = (
        "unset SLURM_EXPORT_ENV\nnvidia-smi -L | head -1\n"
        "srun nvidia-smi --query-gpu=name --format=csv,noheader | sort -u"
    )
    said = run_job(small, script, export, "-w", "v1", "--gres=gpu:v100:1")
    first, second = said.splitlines()
    assert first.startswith("GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-")
    assert second == "Tesla V100-SXM2-32GB"


def test_gpus_are_numbered_in_the_job(small: sandbox.Sandbox, run_job: RunJob) -> None:
    """As by a real gres plugin."""
    said = run_job(small, "echo $CUDA_VISIBLE_DEVICES", "--gres=gpu:a100:2")
    assert len(said.strip().split(",")) == 2


def test_a_fault_is_seen_by_the_next_job(small: sandbox.Sandbox, run_job: RunJob) -> None:
    """On that node only, and no longer once cleared."""
    ask = (
        "nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c; exit ${PIPESTATUS[0]}"
    )
    try:
        sandbox.set_fault(small, "a1", "wrong-model")
        assert run_job(small, ask, "-w", "a1").split(None, 1)[1] == "Tesla K80\n"
        assert "A100" in run_job(small, ask, "-w", "a2")
        sandbox.set_fault(small, "a1", "missing-gpu")
        assert run_job(small, ask, "-w", "a1").split()[0] == "3"
        sandbox.set_fault(small, "a1", "error")
        assert run_job(small, "nvidia-smi >&2; echo $?", "-w", "a1").endswith("9\n")
        sandbox.set_fault(small, "a1", "hang")
        assert run_job(small, "timeout 0.5 nvidia-smi; echo $?", "-w", "a1") == "124\n"
    finally:
        sandbox.set_fault(small, "a1", None)
    assert run_job(small, ask, "-w", "a1").split()[0] == "4"


def test_the_mig_trap_of_the_findings(
    campus: sandbox.Sandbox, slurm: Slurm, run_job: RunJob, eventually: Eventually
) -> None:
    """16 G on gpu-mig become two CPUs, which its QOS does not allow; 8000 M run."""
    mig = ("-p", "gpu-mig", "--gres=gpu:1")
    for options in (["--mem=16G", "-c1"], ["-c2"]):
        out = slurm(campus, "sbatch", "--parsable", *mig, *options, "--wrap", "true")
        job = out.strip()
        eventually(
            lambda job=job: (
                slurm(campus, "squeue", "-h", "-j", job, "-o", "%r").strip()
                == "QOSMaxCpuPerJobLimit"
            )
        )
        slurm(campus, "scancel", job)
    said = run_job(campus, "nproc --all; nvidia-smi -L | grep -c MIG", *mig, "-c1", "--mem=8000")
    assert said.endswith("56\n")


@pytest.mark.parametrize(
    ("partition", "gpus", "reason"),
    [
        ("interactive-rtx3090", 3, "QOSMaxGRESPerJob"),
        ("gpu-h200", 5, "QOSMaxGRESPerUser"),
    ],
)
def test_the_limits_of_campus(
    campus: sandbox.Sandbox,
    slurm: Slurm,
    eventually: Eventually,
    partition: str,
    gpus: int,
    reason: str,
) -> None:
    """RTX 3090: 2 a job; H200: 4 a user."""
    job = slurm(
        campus, "sbatch", "--parsable", "-p", partition, f"--gres=gpu:{gpus}", "--wrap", "true"
    ).strip()
    eventually(lambda: slurm(campus, "squeue", "-h", "-j", job, "-o", "%r").strip() == reason)
    slurm(campus, "scancel", job)


def test_campus_is_the_cluster_of_the_findings(campus: sandbox.Sandbox, slurm: Slurm) -> None:
    """Partitions, GPUs a node, features and prices."""
    rows = slurm(campus, "sinfo", "-h", "-o", "%P|%G|%f").splitlines()
    found = {row.split("|")[0]: row.split("|")[1:] for row in rows}
    assert {name: gres for name, (gres, _) in found.items()} == {
        "standard*": "(null)",
        "gpu-mig": "gpu:1g.10gb:56",
        "gpu-v100": "gpu:v100:4",
        "interactive-rtx3090": "gpu:rtx3090:4",
        "gpu-a6000": "gpu:a6000:8",
        "gpu-a40": "gpu:a40:8",
        "gpu-a100-40": "gpu:a100:8",
        "gpu-a100-80": "gpu:a100:8",
        "gpu-h200": "gpu:h200:8",
    }
    assert "gpupod,a100_80gb" in found["gpu-a100-80"][1]
    shown = slurm(campus, "scontrol", "show", "partition", "gpu-a100-80")
    assert "GRES/gpu=508.89" in shown


def test_a_finished_job_vanishes_from_campus(
    campus: sandbox.Sandbox, slurm: Slurm, eventually: Eventually
) -> None:
    """MinJobAge is two seconds."""
    job = slurm(campus, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true").strip()
    eventually(
        lambda: "Invalid job id" in slurm(campus, "scontrol", "show", "job", job, check=False),
        timeout=60,
    )


def test_two_nodes_run_one_job(small: sandbox.Sandbox, run_job: RunJob) -> None:
    """srun reaches the tasks of both."""
    said = run_job(
        small, "srun bash -c 'echo $SLURM_PROCID $SLURMD_NODENAME'", "-N2", "-w", "a[1-2]"
    )
    assert sorted(said.split("\n")) == ["", "0 a1", "1 a2"]


def test_a_node_that_loses_touch_keeps_its_job(
    fresh_sandbox: Callable[..., sandbox.Sandbox],
    slurm: Slurm,
    eventually: Eventually,
    tmp_path: Path,
) -> None:
    """slurmd is gone, the job's processes are not; the node comes back."""
    box = fresh_sandbox("small")
    beat = tmp_path / "beat"
    wrap = f"while :; do echo x >>{beat}; sleep 0.1; done"
    slurm(box, "sbatch", "-w", "a1", "-o", "/dev/null", "--wrap", wrap)
    eventually(beat.exists)
    sandbox.stop_node(box, "a1")
    status = sandbox.status(box.name)
    assert (status.nodes_up, status.nodes_total) == (3, 4)
    size = beat.stat().st_size
    eventually(lambda: beat.stat().st_size > size)
    sandbox.start_node(box, "a1")
    assert sandbox.status(box.name).nodes_up == 4


def busy_gpus(box: sandbox.Sandbox, slurm: Slurm) -> int:
    rows = slurm(box, "squeue", "-h", "-t", "R", "-n", "rv-load", "-o", "%b").split()
    return sum(int(row.rpartition(":")[2]) for row in rows)


def test_load_keeps_its_share_busy(
    fresh_sandbox: Callable[..., sandbox.Sandbox], slurm: Slurm, eventually: Eventually
) -> None:
    """Half of 16 GPUs, also after the first jobs have ended; then nothing."""
    box = fresh_sandbox("small")
    sandbox.load(box, 0.5, timedelta(seconds=2), timedelta(seconds=4), 1)
    eventually(lambda: busy_gpus(box, slurm) >= 7)
    first = set(slurm(box, "squeue", "-h", "-o", "%i").split())
    eventually(lambda: first.isdisjoint(slurm(box, "squeue", "-h", "-t", "R", "-o", "%i").split()))
    eventually(lambda: 7 <= busy_gpus(box, slurm) <= 9)
    assert sandbox.stop_load(box)
    eventually(lambda: busy_gpus(box, slurm) == 0)
    assert not sandbox.stop_load(box)


def test_load_goes_elsewhere_when_its_gpus_are_taken(
    fresh_sandbox: Callable[..., sandbox.Sandbox], slurm: Slurm, eventually: Eventually
) -> None:
    """A job of the load that waits for a whole node would hold its share back until one is free."""
    box = fresh_sandbox("small")
    job = ("sbatch", "--mem=100", "--output=/dev/null", "--chdir=/", "--wrap=sleep 600")
    for node in ("a1", "a2", "v1", "v2"):
        for name in ("stays", "goes"):
            slurm(box, *job, f"--nodelist={node}", "--gres=gpu:1", f"--job-name={name}")
    eventually(lambda: slurm(box, "squeue", "-h", "-t", "R", "-o", "x").count("x") == 8)
    sandbox.load(box, 0.5, timedelta(seconds=600), timedelta(seconds=600), 1)
    user = ["--uid=daemon"] if os.getuid() == 0 else []
    slurm(box, *job, *user, "--job-name=rv-load", "--gres=gpu:4")
    slurm(box, "scancel", "--name=goes")
    eventually(lambda: busy_gpus(box, slurm) == 4)


def test_load_on_campus_learns_the_limits(
    fresh_sandbox: Callable[..., sandbox.Sandbox], slurm: Slurm, eventually: Eventually
) -> None:
    """Limits a user in some partitions: the others carry the share, and my own jobs have theirs."""
    box = fresh_sandbox("campus")
    sandbox.load(box, 0.6, timedelta(seconds=60), timedelta(seconds=90), 1)
    eventually(lambda: busy_gpus(box, slurm) >= 0.58 * 160, timeout=60)
    if os.getuid() == 0:
        assert set(slurm(box, "squeue", "-h", "-o", "%u").split()) == {"daemon"}
        four = ("--partition=gpu-h200", "--gres=gpu:4", "--mem=100", "--time=1", "--immediate=30")
        assert slurm(box, "srun", *four, "echo", "ran").strip() == "ran"
    assert sandbox.stop_load(box)
    eventually(lambda: not slurm(box, "squeue", "-h"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root's sandbox serves other users")
def test_any_local_user_submits_to_roots_sandbox(
    fresh_sandbox: Callable[..., sandbox.Sandbox], slurm: Slurm, sandbox_home: Path
) -> None:
    """As a plain user: no operator rights, its own uid in the job."""
    box = fresh_sandbox("small", users=("nobody",))
    home = sandbox_home / "plain"
    home.mkdir()
    home.chmod(0o777)
    drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    env = {"SLURM_CONF": str(box.slurm_conf), "PATH": "/usr/bin:/bin", "HOME": str(home)}
    script = "#!/bin/sh\nid -u\nnvidia-smi -L | wc -l\n"
    subprocess.run(
        [*drop, "sbatch", "--wait", "--export=NONE", "-o", "out"],
        input=script,
        env=env,
        cwd=home,
        text=True,
        check=True,
        timeout=60,
    )
    assert (home / "out").read_text().split() == ["65534", "4"]
    refused = subprocess.run(
        [*drop, "scontrol", "update", "nodename=a1", "state=down", "reason=x"],
        env=env,
        capture_output=True,
        text=True,
    )
    assert "Invalid user id" in refused.stderr
