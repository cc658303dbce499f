"""A node that loses touch after the claim: one start, LOST with the evidence, and the last word counts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rv import sandbox
from tests.slurm.launching import RaceFiles, Rv, group, profile

Eventually = Callable[..., None]
Box = Callable[..., sandbox.Sandbox]
HOLD_S = 5


@pytest.fixture
def rv(fresh_sandbox: Box, tmp_path: Path) -> Rv:
    """Two equal nodes; a requeued job is held for five seconds.

    A node that was set down stays so: what still runs there may answer the controller.
    """
    settings = {"ReturnToService": 1}
    spec = profile([group("n", "a100", nodes=2)], cred_expire=HOLD_S, slurm_conf=settings)
    return Rv(box=fresh_sandbox(spec), home=tmp_path)


def start(rv: Rv, eventually: Eventually) -> tuple[RaceFiles, str, str]:
    """Start a race whose command waits for the file `go`; the race, its job and its node."""
    command = f"{rv.count_starts}; until [ -e {rv.home}/go ]; do sleep 0.1; done"
    done = rv("up", "--gpu", "4", "--time", "10m", "-d", "--run", command)
    assert done.returncode == 0, done.stderr
    race = rv.last()
    eventually(lambda: rv.starts, timeout=60)
    job, node = race.claim["owner"].partition(".")[0], race.claim["nodes"]
    eventually(lambda: "Requeue=0" in rv.slurm("scontrol", "show", "job", job))
    return race, job, node


def lose(rv: Rv, node: str) -> None:
    """The node's slurmd is gone, its processes go on, and somebody sets it down."""
    sandbox.stop_node(rv.box, node)
    rv.slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=test")


def test_a_node_that_loses_touch_loses_the_race(rv: Rv, eventually: Eventually) -> None:
    """Slurm's NODE_FAIL is the evidence; the command is not started again."""
    race, job, node = start(rv, eventually)
    lose(rv, node)
    eventually(lambda: rv.job_state(job) == "NODE_FAIL")
    said = rv.state()
    assert said["state"] == "LOST"
    assert "NODE_FAIL" in said["why"]
    assert node in said["why"]
    assert rv.state()["state"] == "LOST"
    assert rv.starts == {race.race_id: 1}
    assert not rv.queue()


def test_the_client_that_watches_ends_with_code_1(rv: Rv, eventually: Eventually) -> None:
    """And names LOST in its last line."""
    command = f"{rv.count_starts}; exec sleep 3600"
    with rv.launch("up", "--gpu", "4", "--time", "10m", "--run", command) as client:
        eventually(lambda: rv.starts, timeout=60)
        race = rv.last()
        eventually(lambda: "Requeue=0" in rv.slurm("scontrol", "show", "job"))
        lose(rv, race.claim["nodes"])
        _, err = client.communicate(timeout=150)
    assert client.returncode == 1
    assert f"race {race.race_id} LOST" in err.splitlines()[-1]
    assert rv.starts == {race.race_id: 1}


def test_a_job_requeued_after_its_claim_starts_nothing(rv: Rv, eventually: Eventually) -> None:
    """Where requeue=0 came too late: the restarted job finds the claim of its earlier self."""
    race, job, node = start(rv, eventually)
    rv.slurm("scontrol", "update", f"jobid={job}", "requeue=1")
    lose(rv, node)
    eventually((race.directory / "lost").exists, timeout=90)
    eventually(lambda: not rv.queue())
    said = rv.state()
    assert said["state"] == "LOST"
    assert f"job {job} was restarted by Slurm after its claim as {job}.0" in said["why"]
    assert rv.starts == {race.race_id: 1}
    assert race.claim["owner"].startswith(f"{job}.0.")


def test_a_requeued_winner_is_lost_before_it_restarts(rv: Rv, eventually: Eventually) -> None:
    """`rv ps` knows by the restart count; nothing is left in the queue."""
    race, job, node = start(rv, eventually)
    rv.slurm("scontrol", "update", f"jobid={job}", "requeue=1")
    lose(rv, node)
    eventually(lambda: rv.job_state(job) == "PENDING")
    assert rv.state()["state"] == "LOST"
    eventually(lambda: not rv.queue(), timeout=60)
    assert rv.starts == {race.race_id: 1}


@pytest.mark.parametrize("requeued", [False, True], ids=["ended", "requeued"])
def test_the_last_word_of_a_node_out_of_touch_beats_lost(
    rv: Rv, eventually: Eventually, requeued: bool
) -> None:
    """The command went on and ended well: the race is COMPLETED, with a note."""
    race, job, node = start(rv, eventually)
    if requeued:
        rv.slurm("scontrol", "update", f"jobid={job}", "requeue=1")
    lose(rv, node)
    if requeued:
        eventually((race.directory / "lost").exists, timeout=90)
    else:
        eventually(lambda: rv.job_state(job) == "NODE_FAIL")
    assert rv.state()["state"] == "LOST"
    (rv.home / "go").touch()
    eventually((race.directory / "ended").exists)
    said = rv.state()
    assert said["state"] == "COMPLETED"
    assert said["exit_code"] == 0
    assert "out of touch" in said["why"]
    assert rv.starts == {race.race_id: 1}
