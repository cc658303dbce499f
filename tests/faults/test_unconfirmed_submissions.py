"""What nobody knows the fate of is found out, by whatever rv command comes next, and never twice."""

import json
from collections.abc import Callable
from pathlib import Path

from rv import sandbox
from tests.faults.conftest import MakeWorld
from tests.faults.test_status_resolution import detached, kill_batch_shell, vanished, winner
from tests.faults.world import COUNTED, TINY, World, eventually

LOST_ANSWER = (
    'if [ "$(calls)" -le 1 ]; then "$real" "$@" >/dev/null; at; else exec "$real" "$@"; fi'
)
"""sbatch whose first answer never comes, though Slurm took the job."""


def names_of(world: World) -> list[str]:
    """The jobs of the race that wait or run."""
    return sorted(world.live_jobs())


def shut(world: World) -> Callable[[], None]:
    """Nodes that seem idle start nothing: a race sends its first job alone."""
    world.ok("up", "--dry-run")
    return world.drain()


def killed_in_doubt(world: World, body: str) -> None:
    """A client is killed, with all that it started, inside its first sbatch."""
    world.wrap("sbatch", body)
    client = world.start("run", COUNTED)
    world.reached("sbatch")
    client.kill(whole=True)
    world.go("sbatch")
    assert list(world.race_dir().glob("jobs/*.sent")), "it is written down before it is done"
    assert not list(world.race_dir().glob("jobs/*.id"))


def test_a_job_whose_answer_was_lost_is_adopted_at_once(world: World) -> None:
    """By its name in the queue: its id is known again, and it is not sent a second time."""
    release = shut(world)
    killed_in_doubt(world, LOST_ANSWER)
    (name,) = names_of(world)
    race = world.race()
    assert race["state"] == "PENDING"
    assert "unconfirmed" not in race["why"]
    (id_file,) = world.race_dir().glob("jobs/*.id")
    assert id_file.read_text().split() == [str(race["jobs"][0]["job_id"])]
    assert world.calls("sbatch") == 1
    release()
    assert world.settled("COMPLETED")["exit_code"] == 0
    assert world.starts() == 1
    assert name.endswith("-1")


def test_a_job_that_is_over_before_anybody_asks_is_adopted(
    make_world: MakeWorld, forgetful: sandbox.Sandbox
) -> None:
    """The controller has forgotten it; accounting has its end, and nothing is sent again."""
    world = make_world(forgetful)
    release = shut(world)
    killed_in_doubt(world, LOST_ANSWER)
    (name,) = names_of(world)
    job_id = int(world.slurm("squeue", "-h", "-n", name, "-o", "%A"))
    world.slurm("scancel", str(job_id))
    eventually(lambda: vanished(world, job_id))
    eventually(lambda: world.race()["state"] == "CANCELLED")
    assert world.calls("sbatch") == 1
    release()
    assert world.starts() == 0


def test_the_next_race_settles_the_doubt_of_the_last(world: World) -> None:
    """Any rv command does, not `rv ps` alone; Slurm never heard of the first."""
    killed_in_doubt(world, 'if [ "$(calls)" -le 1 ]; then at; else exec "$real" "$@"; fi')
    assert not names_of(world)
    race = world.race()
    assert race["state"] == "STAGED"
    assert "job 1 is unconfirmed: it was sent " in race["why"]
    assert [job["job_id"] for job in race["jobs"]] == [None]

    def another() -> bool:
        assert world.rv("run", "true").returncode == 0
        return world.starts() == 1

    eventually(another)
    eventually(lambda: {race["state"] for race in world.ps()} == {"COMPLETED"})
    assert world.starts() == 1


def contents(path: Path) -> bytes:
    """What a file holds that another program is just replacing."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_controller_that_forgot_a_job_is_sent_it_again(fresh_sandbox, make_world) -> None:
    """Killed before it had saved what it took; accounting knows of no end. One start in all."""
    world = make_world(fresh_sandbox({**TINY, "slurm_conf": {"MessageTimeout": "3"}}))
    release = world.fill()
    state = world.box.directory / "state" / "job_state"
    # What is pending is saved within seconds, and what runs with it.
    world.slurm("sbatch", "-H", "--job-name=is-saved", "-o", "/dev/null", "--wrap", "true")
    kept: bytes = eventually(lambda: b"is-saved" in (found := contents(state)) and found)
    detached(world, COUNTED)
    assert len(names_of(world)) == 2
    sandbox.stop_daemon(world.box, "slurmctld")
    state.write_bytes(kept)
    state.with_name("job_state.old").unlink(missing_ok=True)
    sandbox.start_daemon(world.box, "slurmctld")
    assert names_of(world) == []
    assert world.race()["state"] == "UNKNOWN"
    eventually(lambda: world.race()["state"] == "PENDING" and len(names_of(world)) == 2)
    release()
    assert world.settled("COMPLETED")["exit_code"] == 0
    assert world.starts() == 1
    eventually(lambda: not world.live_jobs())


def test_a_duplicate_that_comes_up_after_the_end_is_reaped(world: World) -> None:
    """Its race is settled, and still its job is cancelled; others' jobs are left alone."""
    detached(world, COUNTED)
    world.settled("COMPLETED")
    # The first look may find the loser still there, and leave the verdict to the next.
    eventually(lambda: world.race() and (world.race_dir() / "verdict.json").exists())
    release = world.fill()
    hogs = world.slurm("squeue", "-h", "-o", "%A").split()
    script = world.race_dir() / "jobs" / "1.sh"
    late = world.slurm("sbatch", "--parsable", str(script)).strip()
    world.slurm(
        "sbatch", "--array=1-2", "--job-name=rv-tool", "-o", "/dev/null", "--wrap", "true"
    )  # fmt: skip
    assert "PENDING" in world.slurm("squeue", "-h", "-j", late, "-o", "%T")
    waits = ("squeue", "-h", "-j", late, "-t", "PD,R", "-o", "%T")
    eventually(lambda: world.race() and not world.slurm(*waits, check=False))
    assert "rv-tool" in world.slurm("squeue", "-h", "-a", "-o", "%j").split()
    assert set(hogs) <= set(world.slurm("squeue", "-h", "-o", "%A").split())
    release()
    eventually(lambda: not world.live_jobs())
    assert world.starts() == 1


def test_what_other_hands_do_to_a_waiting_job(world: World) -> None:
    """Held, let go, moved to another partition: it waits, says why, and is one job all the time.

    A job of another name is left alone, even where its id stands in the race's files.
    """
    release = world.fill()
    held = world.slurm("sbatch", "--parsable", "-H", "-o", "/dev/null", "--wrap", "true").strip()
    detached(world, COUNTED)
    first, _ = sorted(job["job_id"] for job in world.race()["jobs"])
    with (world.race_dir() / "jobs" / "2.id").open("a", encoding="utf-8") as ids:
        print(held, file=ids)  # as after a crash of the controller, which gave the id out again
    world.slurm("scontrol", "hold", str(first))
    race = eventually(lambda: "held" in (race := world.race())["why"] and race)
    assert race["state"] == "PENDING"
    assert f"job {first} is held by " in race["why"]
    assert f"scontrol release {first}" in race["why"]
    world.slurm("scontrol", "release", str(first))
    world.slurm("scontrol", "update", f"jobid={first}", "partition=slow")
    race = eventually(lambda: "held" not in (race := world.race())["why"] and race)
    assert race["state"] == "PENDING"
    assert len(names_of(world)) == 2
    release()
    assert world.settled("COMPLETED")["exit_code"] == 0
    assert world.starts() == 1
    eventually(lambda: not world.live_jobs())
    assert world.slurm("squeue", "-h", "-j", held, "-o", "%T").strip() == "PENDING"


def test_the_code_of_a_winner_killed_outright_is_waited_for(world: World) -> None:
    """squeue says FAILED and has no codes; the controller has."""
    client = world.start("run", f"{COUNTED}; exec sleep 600")
    job_id = winner(world)
    eventually(world.starts)
    kill_batch_shell(world, job_id)
    assert client.wait() == 137, client.err
    assert "FAILED, exit code 137" in client.err.splitlines()[-1]
    race = world.race()
    assert (race["state"], race["exit_code"]) == ("FAILED", 137)


def test_a_silent_controller_is_asked_once_a_command(world: World) -> None:
    """Not once for each race; and what could not be confirmed is said, with code 125."""
    release = world.fill()
    for _ in range(3):
        assert world.rv("run", "-d", COUNTED).returncode == 0
    eventually(lambda: [race["state"] for race in world.ps()] == ["PENDING"] * 3)
    world.wrap("squeue", "calls >/dev/null; sleep 8; exit 1")
    # An answer of a moment ago still serves: then nobody was asked yet.
    races = eventually(lambda: (found := world.ps()) and world.calls("squeue") and found)
    assert {race["state"] for race in races} <= {"UNKNOWN", "PENDING"}
    assert world.calls("squeue") == 1
    assert len(world.live_jobs()) == 6, "nothing is cancelled because nobody answered"
    done = world.rv("stop", "--all", "--json")
    assert done.returncode == 125, done.stderr
    rows = json.loads(done.stdout)["stopped"]
    assert [row["unconfirmed"] for row in rows] == ["Slurm does not answer"] * 3
    assert world.calls("squeue") < 8, "for all of them together"
    (world.bin / "squeue").unlink()
    release()
    eventually(lambda: {race["state"] for race in world.ps()} == {"CANCELLED"})
    eventually(lambda: not world.live_jobs())
    assert world.starts() == 0


def test_stop_waits_for_what_may_still_appear(world: World) -> None:
    """A submission that nobody heard of is waited for, and cancelled when it comes."""
    release = shut(world)
    held = 'if [ "$(calls)" -le 1 ]; then (at; "$real" "$@"; : >"${0%/bin/*}/late") & sleep 600; fi'
    killed_later(world, held)
    stopper = world.start("stop")
    eventually((world.race_dir() / "stop").exists)
    world.go("sbatch")
    assert stopper.wait() == 0, stopper.err
    eventually((world.path / "late").exists)
    eventually(lambda: world.race()["state"] == "CANCELLED" and not world.live_jobs())
    release()
    assert world.starts() == 0


def killed_later(world: World, body: str) -> None:
    """A client is killed alone inside its first sbatch, which goes on without it."""
    world.wrap("sbatch", body)
    client = world.start("run", COUNTED)
    world.reached("sbatch")
    client.kill(whole=False)


def test_a_probe_that_fails_for_a_moment_is_repeated(world: World) -> None:
    """It changes nothing, so it is safe; sbatch is never called twice for that."""
    world.wrap("scontrol", '[ "$(calls)" -gt 4 ] || exit 1; exec "$real" "$@"')
    done = world.rv("run", COUNTED)
    assert done.returncode == 0, done.stderr
    assert world.starts() == 1
