"""What the jobs of a race do to themselves and to each other works for a user without any rights."""

import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from rv import sandbox
from tests.slurm.launching import Rv, group, profile, rv_of

Eventually = Callable[..., None]

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root's sandbox serves other users")


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """Slurm prefers b1 to g1; v1 has another model and a partition of its own."""
    spec = profile(
        [group("b", "a100"), group("g", "a100", weight=9), group("v", "v100")],
        {"main": ["b", "g"], "other": ["v"]},
    )
    path = tmp_path_factory.mktemp("profile") / "plain.yaml"
    path.write_text(yaml.safe_dump(spec))
    yield sandbox.up("plain", path, users=("nobody",))
    sandbox.down("plain")


@pytest.fixture
def rv(box: sandbox.Sandbox, sandbox_home: Path) -> Iterator[Rv]:
    """`rv` as nobody, with folders of their own."""
    with rv_of("nobody", box, sandbox_home / "nobody") as rv:
        rv.wait_for_idle_nodes()
        yield rv
        rv.slurm("scancel", "--user=nobody")
        rv.slurm("scancel", "--user=root")
        sandbox.set_fault(box, "b1", None)


def test_a_plain_users_job_declines_and_runs_elsewhere(rv: Rv, eventually: Eventually) -> None:
    """Requeue, ExcNodeList and StartTime are the owner's to change."""
    sandbox.set_fault(rv.box, "b1", "error")
    done = rv(
        "up", "--gpu", "4", "--time", "10m", "-p", "main", "--run", f"id -u; {rv.count_starts}"
    )
    race = rv.last()
    assert done.returncode == 0, done.stderr + race.logs()
    assert done.stdout.split() == [str(pwd.getpwnam("nobody").pw_uid)]
    assert race.claim["nodes"] == "g1"
    assert race.submitted == {1: [int(race.claim["owner"].partition(".")[0])]}
    assert race.names("declined") == ["b1"]
    assert rv.starts == {race.race_id: 1}


def test_a_plain_users_job_turns_requeue_off_and_cancels_its_siblings(
    rv: Rv, eventually: Eventually
) -> None:
    """One job waits for a busy node when the other claims; no client is there."""
    filler = rv.fill("v1", 4, "-p", "other")
    eventually(lambda: rv.job_state(filler) == "RUNNING")
    command = f"{rv.count_starts}; until [ -e {rv.home}/go ]; do sleep 0.1; done"
    done = rv("up", "--gpu", "4", "--time", "10m", "--fanout", "each", "-d", "--run", command)
    assert done.returncode == 0, done.stderr
    race = rv.last()
    eventually(lambda: rv.starts, timeout=60)
    job = race.claim["owner"].partition(".")[0]
    eventually(lambda: "Requeue=0" in rv.slurm("scontrol", "show", "job", job))
    assert len(race.submitted) == 2
    eventually(lambda: rv.queue() == [f"rv-{race.race_id}-{race.claim['submission']}"])
    (rv.home / "go").touch()
    eventually(lambda: not rv.queue())
    assert rv.starts == {race.race_id: 1}
    assert rv.state()["state"] == "COMPLETED"
