"""What rv says of a job is true: on a cluster that forgets at once, with an accounting database that
is down or late, and whatever ended the job."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rv import sandbox
from rv.sandbox.processes import started_at
from tests.faults.conftest import MakeWorld
from tests.faults.world import COUNTED, World, eventually, kill, processes_of


@pytest.fixture
def world(make_world: MakeWorld, forgetful: sandbox.Sandbox) -> World:
    """A world on a cluster that forgets a job after two seconds."""
    return make_world(forgetful)


@contextmanager
def no_slurmdbd(world: World) -> Iterator[None]:
    """Accounting is down; afterwards it hears what it missed before anything else is asked of it."""
    sandbox.stop_daemon(world.box, "slurmdbd")
    try:
        yield
    finally:
        sandbox.start_daemon(world.box, "slurmdbd")
        eventually(lambda: re.search(r"DBD Agent queue size: *0\n", world.slurm("sdiag")))


@contextmanager
def late_slurmdbd(world: World) -> Iterator[None]:
    """Accounting hears nothing now, and what it was told later."""
    daemons = {daemon.name: daemon.pid for daemon in sandbox.status(world.box.name).daemons}
    pid = daemons["slurmdbd"]
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def vanished(world: World, job_id: int) -> bool:
    """Whether the controller has forgotten the job."""
    listed = world.slurm("squeue", "-h", "-a", "-t", "all", "-o", "%A").split()
    shown = world.slurm("scontrol", "show", "job", str(job_id), check=False)
    return str(job_id) not in listed and not shown.strip()


def detached(world: World, command: str, *options: str) -> None:
    """Start a race that nobody watches."""
    done = world.rv("run", "-d", *options, command)
    assert done.returncode == 0, done.stderr
    (directory,) = world.races()
    assert done.stdout == f"{directory.name}\n"


def winner(world: World) -> int:
    """The job that won, once one did."""
    claim = world.race_dir() / "claim"
    eventually(claim.exists)
    return int(claim.read_text().split(".")[0])


def check_completed(world: World) -> None:
    """rv ps says COMPLETED, and did not say anything else that is final on the way."""
    seen = []

    def completed() -> bool:
        seen.append(world.race())
        return bool(seen[-1]["state"] == "COMPLETED")

    eventually(completed)
    assert {race["state"] for race in seen} <= {"PENDING", "RUNNING", "UNKNOWN", "COMPLETED"}
    assert seen[-1]["exit_code"] == 0
    assert world.starts() == 1


def run_short_job(world: World) -> None:
    """A job of a tenth of a second, watched."""
    done = world.rv("run", f"{COUNTED}; sleep 0.1; echo out")
    assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
    assert "COMPLETED" in done.stderr.splitlines()[-1]
    assert "FAILED" not in done.stderr
    check_completed(world)


def run_short_job_unwatched(world: World) -> None:
    """A job of a tenth of a second that Slurm has forgotten before anybody asks."""
    detached(world, f"{COUNTED}; sleep 0.1")
    job_id = winner(world)
    eventually(lambda: vanished(world, job_id))
    check_completed(world)


def test_a_short_job(world: World) -> None:
    run_short_job(world)


def test_a_short_job_that_nobody_watched(world: World) -> None:
    run_short_job_unwatched(world)


def test_a_short_job_with_accounting_down(world: World) -> None:
    with no_slurmdbd(world):
        run_short_job(world)


def test_a_short_job_that_nobody_watched_with_accounting_down(world: World) -> None:
    with no_slurmdbd(world):
        run_short_job_unwatched(world)


def test_a_short_job_with_accounting_late(world: World) -> None:
    with late_slurmdbd(world):
        run_short_job(world)
    check_completed(world)


def test_a_short_job_that_nobody_watched_with_accounting_late(world: World) -> None:
    with late_slurmdbd(world):
        run_short_job_unwatched(world)
    check_completed(world)


def test_a_short_job_without_an_exit_file_waits_for_accounting(world: World) -> None:
    """The winner's last word is lost: rv does not know, and says so until the database does."""
    with late_slurmdbd(world):
        detached(world, f"{COUNTED}; sleep 0.1")
        job_id = winner(world)
        eventually((world.race_dir() / "ended").exists)
        eventually(lambda: vanished(world, job_id))
        (world.race_dir() / "ended").unlink()
        first = world.race()
        assert (first["state"], first["exit_code"]) == ("UNKNOWN", None), first
    check_completed(world)


def kill_batch_shell(world: World, job_id: int) -> None:
    """Everything of the job on the node is gone at once, the epilogue with it."""
    found = eventually(lambda: [pid for pid, _ in processes_of(job_id, world.box)])
    below = [pid for pid, what in processes_of(job_id, world.box) if what == "below"]
    assert below
    kill(below)
    eventually(lambda: not any(started_at(pid) for pid in below))
    assert found


def test_a_batch_shell_killed_outright_with_accounting_down_is_ended(world: World) -> None:
    """Nobody knows why; so says rv, after the controller has twice not known the job."""
    with no_slurmdbd(world):
        detached(world, f"{COUNTED}; sleep 600")
        job_id = winner(world)
        eventually(world.starts)
        kill_batch_shell(world, job_id)
        eventually(lambda: vanished(world, job_id))
        first = world.race()
        assert first["state"] == "UNKNOWN", "one answer is not enough"
        states = []

        def ended() -> bool:
            states.append(world.race())
            return bool(states[-1]["state"] == "ENDED")

        eventually(ended)
        assert {race["state"] for race in states} <= {"UNKNOWN", "ENDED"}
        assert states[-1]["exit_code"] is None
        assert "cause unknown" in states[-1]["why"]
        followed = world.rv("logs", "-f")
        assert followed.returncode == 1
        assert "ENDED" in followed.stderr.splitlines()[-1]
    # Accounting is back, and may have heard of the cause from the controller; then it is told.
    race = world.race()
    assert (race["state"], race["exit_code"]) in {("ENDED", None), ("FAILED", 137)}
    assert world.starts() == 1


def test_a_batch_shell_killed_outright_is_what_slurm_says(world: World) -> None:
    """Accounting has the record: FAILED by signal 9."""
    detached(world, f"{COUNTED}; sleep 600")
    job_id = winner(world)
    eventually(world.starts)
    kill_batch_shell(world, job_id)
    eventually(lambda: vanished(world, job_id))
    race = world.settled("FAILED", "COMPLETED", "ENDED", "LOST", "CANCELLED")
    said = world.slurm("sacct", "-X", "-n", "-P", "-j", str(job_id), "-o", "State,ExitCode").strip()
    assert said == "FAILED|0:9"
    assert (race["state"], race["exit_code"]) == ("FAILED", 137)
    assert "Slurm says FAILED" in race["why"]


@pytest.mark.parametrize("seen_by_watcher", [True, False], ids=["watched", "unwatched"])
def test_scancel_from_outside_is_cancelled(world: World, seen_by_watcher: bool) -> None:
    """By the user's own scancel, whether or not rv looks on."""
    command = f"{COUNTED}; sleep 600"
    client = world.start("run", command) if seen_by_watcher else None
    if client is None:
        detached(world, command)
    job_id = winner(world)
    eventually(world.starts)
    world.slurm("scancel", str(job_id))
    race = world.settled("CANCELLED", "FAILED", "COMPLETED", "ENDED")
    assert (race["state"], race["exit_code"]) == ("CANCELLED", 143)
    if client is not None:
        assert client.wait() == 143
        assert "CANCELLED" in client.err.splitlines()[-1]
    eventually(lambda: not world.live_jobs())


def test_scancel_before_the_start_is_cancelled(world: World) -> None:
    """Every job of it: then the race is over, and its client says so."""
    release = world.fill()
    client = world.start("run", COUNTED)
    client.says("submitted 2 jobs")
    names = world.live_jobs()
    world.slurm("scancel", *[f"--name={name}" for name in names[:1]])
    world.slurm("scancel", f"--name={names[1]}")
    assert client.wait() == 1
    assert "CANCELLED" in client.err.splitlines()[-1]
    assert world.race()["state"] == "CANCELLED"
    release()
    assert world.starts() == 0


def test_a_time_limit_is_timeout(world: World) -> None:
    """Slurm sends TERM; its record says why."""
    client = world.start("run", f"{COUNTED}; exec sleep 600")
    job_id = winner(world)
    eventually(world.starts)
    world.slurm("scontrol", "update", f"jobid={job_id}", "timelimit=1")
    assert client.wait(180) == 143, client.err
    assert "TIMEOUT" in client.err.splitlines()[-1]
    race = world.race()
    assert (race["state"], race["exit_code"]) == ("TIMEOUT", 143)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 3", 3),
        ("false", 1),
        ("kill -TERM $$", 128 + signal.SIGTERM),
        ("kill -SEGV $$", 128 + signal.SIGSEGV),
        ("kill -KILL $$", 128 + signal.SIGKILL),
        ("exit 255", 255),
        ("exit 77", 77),
        ("no-such-program", 127),
    ],
)
def test_the_commands_own_end_is_its_code(world: World, command: str, code: int) -> None:
    """FAILED, and rv ends with the same."""
    done = world.rv("run", f"{COUNTED}; {command}")
    assert done.returncode == code, done.stderr
    race = world.race()
    assert (race["state"], race["exit_code"]) == ("FAILED", code)
    assert world.starts() == 1
    assert f"exit code {code}" in done.stderr.splitlines()[-1]


def test_a_controller_that_is_away_changes_nothing(world: World) -> None:
    """While nobody can be asked, what the directory says is said; nothing is cancelled."""
    client = world.start("run", f"{COUNTED}; until [ -e {world.path}/enough ]; do sleep 0.1; done")
    winner(world)
    eventually(world.starts)
    sandbox.stop_daemon(world.box, "slurmctld")
    try:
        away = world.race()
        assert away["state"] in ("RUNNING", "UNKNOWN")
        (world.path / "enough").touch()
        eventually((world.race_dir() / "ended").exists)
        over = world.race()
        assert (over["state"], over["exit_code"]) == ("COMPLETED", 0)
    finally:
        sandbox.start_daemon(world.box, "slurmctld")
        world.idle()
    assert client.wait() == 0
    assert world.race()["state"] == "COMPLETED"


def test_json_of_a_run_is_the_race(world: World) -> None:
    """One object on stdout; the command's own output on stderr."""
    done = world.rv("run", "--json", "echo out; exit 3")
    said = json.loads(done.stdout)
    assert "state" in said, said
    assert (done.returncode, said["state"], said["exit_code"]) == (3, "FAILED", 3)
    assert "out\n" in done.stderr
