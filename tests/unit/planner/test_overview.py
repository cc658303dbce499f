"""What `rv status` shows: GPUs by model and partition, who waits, and the user's limits."""

from dataclasses import replace

from rv.config.gpu_models import load_catalogue
from rv.models.job import JobState
from rv.models.snapshot import QueuedJob
from rv.planner.report import overview
from tests.unit.planner.clusters import campus, nodes, partition, snapshot

CATALOGUE = load_catalogue()


def test_campus_by_model_and_partition():
    """Every pool once, MIG slices too, with the limits that count for this user."""
    views = {view.partition: view for view in overview(campus(), CATALOGUE)}
    assert set(views) == {
        "gpu-v100", "gpu-a6000", "gpu-a40", "gpu-a100-40", "gpu-a100-80", "gpu-h200",
        "interactive-rtx3090", "gpu-mig",
    }  # fmt: skip
    assert views["gpu-h200"].limits == ("4 a user",)
    assert "2 a job" in views["interactive-rtx3090"].limits
    assert views["gpu-a100-80"].gpu == "a100-80"
    assert views["gpu-v100"].free == views["gpu-v100"].total > 0


def test_free_lost_and_waiting():
    """Used GPUs are not free, drained ones are out of service, pending jobs are counted."""
    part = nodes("u", 1, gres={"t4": 4}, used=3) + nodes(
        "d", 1, gres={"t4": 4}, states=("IDLE", "DRAIN")
    )
    cluster = snapshot((partition("gpu", part), part))
    queued = QueuedJob(job_id="1", user="o", partition="gpu,x", state=JobState.PENDING)
    (view,) = overview(replace(cluster, jobs=(queued, queued)), CATALOGUE)
    assert (view.free, view.largest, view.total, view.lost) == (1, 1, 8, 4)
    assert view.waiting == 2


def test_a_partition_that_is_closed_says_why_and_comes_last():
    """Down is down, however many GPUs are free there."""
    down = nodes("d", 2, gres={"h100": 8})
    up = nodes("u", 1, gres={"t4": 1})
    views = overview(
        snapshot((partition("off", down, state="DOWN"), down), (partition("on", up), up)), CATALOGUE
    )
    assert [view.partition for view in views] == ["on", "off"]
    assert views[1].closed == "partition off is DOWN"
