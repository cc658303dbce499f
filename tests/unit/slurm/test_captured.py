"""What the oldest and the newest Slurm printed of one cluster is read as the same.

The texts are those that tests/versions.sh keeps: its check `records` has the jobs.
"""

from pathlib import Path

import pytest

from rv.models.job import JobState, is_live, job_state
from rv.models.request import Request
from rv.models.snapshot import Snapshot
from rv.planner.eligibility import node_filter
from rv.slurm import sacct, scontrol, squeue
from rv.slurm.probe import build_snapshot
from rv.slurm.script import parse_outputs

DATA = Path(__file__).parents[2] / "data" / "slurm"
S = "rv0123456789abcdef"
VERSIONS = ["20.11", "26.05"]
JOBS = {
    "rv-captured-1": JobState.RUNNING,
    "rv-captured-2": JobState.COMPLETED,
    "rv-captured-3": JobState.FAILED,
    "rv-captured-4": JobState.PENDING,
}


def text(version: str, name: str) -> str:
    return (DATA / version / f"{name}.txt").read_bytes().decode()


def snapshot(version: str) -> Snapshot:
    outputs = parse_outputs(text(version, "probe"), S)
    assert outputs is not None
    return build_snapshot(outputs, S)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "parse"),
    [
        ("own_queue", squeue.parse_squeue_own),
        ("own_show_jobs", scontrol.parse_show_job),
        ("own_sacct", sacct.parse_sacct),
    ],
)
def test_jobs_have_the_names_that_they_were_given(version: str, name: str, parse: object) -> None:
    """From 25.11 on an SLUID stands between a name and its user."""
    records = parse(text(version, name), S)  # type: ignore[operator]
    assert {job.name: job.state for job in records if job.name in JOBS} == JOBS


def test_a_name_that_looks_like_keys_sets_no_state() -> None:
    """The user's other jobs have any name."""
    line = next(x for x in text("26.05", "own_show_jobs").split("\n") if "rv-captured-1" in x)
    odd = line.replace("rv-captured-1", "odd SLUID=s1 UserId=x(1) JobState=FAILED")
    (job,) = scontrol.parse_show_job(f"{odd}\n\n{S} end 0\n", S) or ()
    assert not job.name.startswith("rv-")


def test_one_cluster_is_one_snapshot() -> None:
    """All but the moment, and what the scheduler has planned in it."""
    old, new = map(snapshot, VERSIONS)
    assert (old.config.version, new.config.version) == ("20.11.4", "26.05.5")
    assert old.partitions == new.partitions
    assert old.qos == new.qos
    assert set(old.associations or ()) == set(new.associations or ())
    assert [(node.name, node.gpus, node.partitions) for node in old.nodes] == [
        (node.name, node.gpus, node.partitions) for node in new.nodes
    ]
    assert [(job.name, job.state, job.gpus, job.nodes) for job in old.jobs] == [
        (job.name, job.state, job.gpus, job.nodes) for job in new.jobs
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_in_maintenance_are_not_to_be_had(version: str) -> None:
    """MAINT in 20.11, `IDLE+MAINTENANCE+RESERVED` in 26.05."""
    cluster = snapshot(version)
    (node,) = [node for node in cluster.nodes if node.name == "w1"]
    assert node_filter(Request(gpus=1), cluster).why_unusable(node) == "in maintenance"
    assert scontrol.parse_node_states("IDLE+MAINTENANCE") == {"IDLE", "MAINT"}


def test_a_job_that_is_requeued_at_once_is_live() -> None:
    """`sbatch --requeue=expedite` of 25.11, while its node is cleaned up."""
    line = f"{S} job JobId=1 JobName=rv-abc-1 UserId=root(0) JobState=EXPEDITING Reason=None"
    (job,) = scontrol.parse_show_job(f"{line}\n\n{S} end 0\n", S) or ()
    assert job.state is job_state("EXPEDITING") is JobState.EXPEDITING
    assert is_live(job.state)
    assert job.started is None
