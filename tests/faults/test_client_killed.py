"""The client dies of kill -9 at every step: the command starts at most once, exactly once as soon
as any job was accepted, `rv ps` tells the truth afterwards, and nothing is left behind.

RV_SEEDS (default 2) is the number of runs of each step; the suite plays each once more.
"""

import json
import random
import time
from typing import Any

import pytest

from tests.faults.world import COUNTED, SEEDS, Client, World, eventually

COMMAND = f"{COUNTED}; echo one; sleep 0.3; echo two"
WHOLE = pytest.mark.parametrize("whole", [False, True], ids=["client", "whole-tree"])
SEED = pytest.mark.parametrize("seed", SEEDS)


def launch(world: World, *options: str, command: str = COMMAND) -> Client:
    return world.start("up", *options, "--run", command)


def kill_soon(client: Client, seed: int, *, whole: bool) -> None:
    """Within the first moments of a step, at another one for each seed; the first at once."""
    time.sleep(random.Random(seed).uniform(0, 0.2) if seed else 0)
    client.kill(whole=whole)


def check_the_end(world: World) -> bool:
    """Wait until all is quiet and compare what rv says with what happened; whether it started."""
    if not world.races():
        assert world.starts() == 0
        assert world.ps() == []
        return False
    (directory,) = world.races()
    accepted = world.known_jobs()
    if not accepted:
        world.backdate()
    race = world.settled("COMPLETED", "CANCELLED", "FAILED", "LOST", "ENDED", "REFUSED")
    eventually(lambda: not world.live_jobs())
    accepted = world.known_jobs()
    assert all(name.startswith(f"rv-{directory.name}-") for name in accepted)
    assert world.starts() == (1 if accepted else 0)
    # The exit file is there a moment before Slurm has the job's end, and rv shares answers for 1 s.
    again = eventually(lambda: (now := world.race()) and not live(now) and now)
    assert {**again, "jobs": None} == {**race, "jobs": None}
    if not accepted:
        assert (race["state"], race["winner"]) == ("CANCELLED", None)
        assert "never submitted" in race["why"]
        (directory / "verdict.json").unlink()  # the other files say the same
        assert "never submitted" in world.race()["why"]
        return False
    assert (race["state"], race["exit_code"]) == ("COMPLETED", 0)
    (start,) = world.lines(world.work / "starts")
    assert start.startswith(f"{race['winner']['job_id']}.0.")
    entry = next(job for job in race["jobs"] if job["job_id"] == race["winner"]["job_id"])
    assert entry["strategy"] == race["winner"]["strategy"]
    said = world.slurm("scontrol", "show", "job", "-o", str(race["winner"]["job_id"]))
    assert f"JobName=rv-{directory.name}-" in said
    assert f" NodeList={race['winner']['nodes']} " in said
    assert "JobState=COMPLETED" in said
    return True


def live(race: dict[str, Any]) -> bool:
    return any(job["state"] in ("PENDING", "RUNNING", "COMPLETING") for job in race["jobs"])


def check_now(world: World, state: str) -> None:
    """rv ps gives the state that Slurm has for the race's jobs."""
    race = world.race()
    assert race["state"] == state
    for job in race["jobs"]:
        if job["job_id"] and job["state"] != "UNKNOWN":
            said = world.slurm("scontrol", "show", "job", "-o", str(job["job_id"]))
            assert f"JobState={job['state']} " in said or race != world.race()


@WHOLE
@SEED
def test_while_staging(world: World, seed: int, whole: bool) -> None:
    """A race directory is there whole or not at all."""
    world.wrap("ln", '[ "$2" != nonce ] || at; exec "$real" "$@"')
    client = launch(world)
    world.reached("ln")
    kill_soon(client, seed, whole=whole)
    world.go("ln")
    if world.login:  # the shell there finishes what it began
        eventually(world.races)
        assert world.race()["state"] == "STAGED"
    else:
        assert world.ps() == []
    assert not check_the_end(world)


@SEED
def test_before_sbatch(world: World, seed: int) -> None:
    """Staged, and nothing was submitted."""
    world.wrap("sbatch", "at; exit 1")
    client = launch(world)
    world.reached("sbatch")
    kill_soon(client, seed, whole=True)
    (directory,) = world.races()
    for sent in (directory / "jobs").glob("*.sent"):
        sent.unlink()  # the last step before sbatch, and nothing else is between
    (world.bin / "sbatch").unlink()
    race = world.race()
    assert (race["state"], race["winner"]) == ("STAGED", None)
    assert not check_the_end(world)


@WHOLE
@SEED
def test_inside_sbatch_before_slurm_heard_of_it(world: World, seed: int, whole: bool) -> None:
    """The shell that submits outlives a client that dies alone; nothing outlives the whole tree,
    but for a shell on a login node.

    What was meant is written down: Slurm is asked for the job, and sent it again where it has none.
    """
    world.wrap("sbatch", 'at; exec "$real" "$@"')
    client = launch(world)
    world.reached("sbatch")
    kill_soon(client, seed, whole=whole)
    world.go("sbatch")
    race = world.race()
    assert race["state"] in ("STAGED", "PENDING", "RUNNING", "COMPLETED")
    if whole and not world.login:
        assert "job 1 is unconfirmed" in race["why"]
        eventually(lambda: world.race() and world.known_jobs())
    eventually(world.known_jobs)
    assert check_the_end(world)


@WHOLE
@SEED
def test_inside_sbatch_after_slurm_took_the_job(world: World, seed: int, whole: bool) -> None:
    """The job is accepted and its id is nowhere: it is found by name."""
    world.wrap("sbatch", 'out=$("$real" "$@"); at; echo "$out"')
    client = launch(world, "--fanout", "each")
    world.reached("sbatch")
    kill_soon(client, seed, whole=whole)
    world.go("sbatch")
    assert check_the_end(world)


@WHOLE
@SEED
def test_after_sbatch_was_accepted(world: World, seed: int, whole: bool) -> None:
    """As soon as rv said so."""
    client = launch(world)
    client.says("submitted")
    kill_soon(client, seed, whole=whole)
    assert check_the_end(world)


@WHOLE
@SEED
def test_between_waves(world: World, seed: int, whole: bool) -> None:
    """The first job does not start and nobody is left to send the others: it starts in the end."""
    world.ok("up", "--dry-run")
    release = world.drain()
    client = launch(world, "--widen-after", "10m")
    client.says("submitted 1 job")
    kill_soon(client, seed, whole=whole)
    check_now(world, "PENDING")
    assert len(world.live_jobs()) == 1
    release()
    assert check_the_end(world)


@WHOLE
@SEED
def test_before_the_claim(world: World, seed: int, whole: bool) -> None:
    """Every submission waits in a full cluster."""
    release = world.fill()
    client = launch(world)
    client.says("submitted 2 jobs")
    kill_soon(client, seed, whole=whole)
    check_now(world, "PENDING")
    release()
    assert check_the_end(world)


@WHOLE
@SEED
def test_after_the_claim(world: World, seed: int, whole: bool) -> None:
    """There is a winner; its siblings are cancelled by the job itself."""
    client = launch(world, "--fanout", "each")
    claim = world.race_dir() / "claim"
    eventually(claim.exists)
    kill_soon(client, seed, whole=whole)
    assert check_the_end(world)


@WHOLE
@SEED
def test_while_streaming(world: World, seed: int, whole: bool) -> None:
    """The output is all there for whoever comes back."""
    wait = f"until [ -e {world.path}/enough ]; do sleep 0.05; done"
    client = launch(world, command=f"{COUNTED}; echo one; {wait}; echo two")
    eventually(lambda: "one" in client.out)
    kill_soon(client, seed, whole=whole)
    check_now(world, "RUNNING")
    (world.path / "enough").touch()
    followed = world.rv("logs", "-f")
    assert (followed.returncode, followed.stdout) == (0, "one\ntwo\n")
    assert check_the_end(world)


@WHOLE
@SEED
@pytest.mark.parametrize("fanout", ["auto", "each"])
def test_at_any_moment(world: World, seed: int, whole: bool, fanout: str) -> None:
    """Wherever it is, from its first line of Python to its last."""
    client = launch(world, "--fanout", fanout)
    time.sleep(random.Random(f"{seed} {whole} {fanout}").uniform(0.1, 0.95))
    client.kill(whole=whole)
    check_the_end(world)


def test_a_client_that_dies_late_harms_no_second_race(world: World) -> None:
    """Two races at once: each command starts once, and cancelling what one left leaves the other alone."""
    first = launch(world, command=f"{COUNTED}; sleep 1")
    first.says("submitted")
    first.kill(whole=True)
    second = launch(world)
    assert second.wait() == 0
    eventually(lambda: {race["state"] for race in world.ps()} == {"COMPLETED"})
    assert world.starts() == 2
    assert len(world.races()) == 2
    eventually(lambda: not world.live_jobs())


# Unconfirmed submissions: nobody died, but nobody knows whether sbatch did submit.


def check_one_start(world: World, client: Client) -> None:
    assert client.wait() == 0, client.err
    assert world.starts() == 1
    eventually(lambda: not world.live_jobs())
    race = world.race()
    assert (race["state"], race["exit_code"]) == ("COMPLETED", 0)


def test_sbatch_that_submits_and_then_times_out_is_adopted(world: World) -> None:
    """It said `Socket timed out`, and the job was there all the same."""
    world.wrap(
        "sbatch",
        'calls >/dev/null; "$real" "$@" >/dev/null\n'
        'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2\n'
        "exit 1",
    )
    release = world.fill()
    client = launch(world)
    client.says("submitted 2 jobs")
    release()
    check_one_start(world, client)
    assert world.calls("sbatch") == 2, "what was accepted is not submitted again"
    ids = {int(path.read_text()) for path in world.race_dir().glob("jobs/*.id")}
    assert ids == {job["job_id"] for job in world.race()["jobs"]}


def test_a_refusal_because_of_an_unheard_acceptance_is_none(world: World) -> None:
    """One job at most; it was taken, nobody heard, and Slurm is away until the second try."""
    world.wrap(
        "sbatch",
        'n=$(calls); [ "$n" -gt 1 ] || "$real" "$@" >/dev/null\n'
        'what="Socket timed out on send/recv operation"\n'
        '[ "$n" -eq 1 ] || what="Job violates accounting/QOS policy (job submit limit)"\n'
        'echo "sbatch: error: Batch job submission failed: $what" >&2\n'
        "exit 1",
    )
    world.wrap(
        "squeue", '[ "$(wc -l <"${0%/bin/*}/calls.sbatch")" -ne 1 ] || exit 1; exec "$real" "$@"'
    )
    (world.path / "calls.sbatch").touch()
    release = world.fill()
    client = launch(world, "-p", "fast")
    client.says("submitted 1 job")
    release()
    assert client.wait() == 0, client.err
    assert world.starts() == 1
    assert world.race()["state"] == "COMPLETED"


def test_sbatch_that_submits_and_then_hangs_is_adopted(world: World) -> None:
    """The whole submission is given up after four message timeouts, and looked up by name."""
    world.wrap("sbatch", '"$real" "$@" >/dev/null; at')
    release = world.fill()
    client = launch(world)
    client.says("submitted 2 jobs")
    release()
    check_one_start(world, client)


def test_sbatch_that_fails_before_it_submits_is_repeated(world: World) -> None:
    """Not before Slurm must have dealt with the first, which may be late: twice the MessageTimeout."""
    world.wrap(
        "sbatch",
        'date +%s.%N >>"${0%/bin/*}/times"\n'
        '[ "$(calls)" -le 1 ] || exec "$real" "$@"\n'
        'echo "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)" >&2\n'
        "exit 1",
    )
    client = launch(world)
    check_one_start(world, client)
    first, second, *_ = (float(line) for line in world.lines(world.path / "times"))
    assert second - first >= 2 * 3


def test_a_late_duplicate_of_a_submission_starts_nothing(world: World) -> None:
    """A first sbatch that was only slow makes two jobs of one name; one of them loses."""
    world.wrap(
        "sbatch",
        'if [ "$(calls)" -le 1 ]; then\n'
        '  (at; "$real" "$@"; touch "${0%/bin/*}/late") </dev/null >/dev/null 2>&1 &\n'
        '  echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2\n'
        "  exit 1\n"
        'fi; exec "$real" "$@"',
    )
    wait = f"until [ -e {world.path}/enough ]; do sleep 0.05; done"
    client = launch(world, command=f"{COUNTED}; {wait}")
    client.says("started on")
    world.go("sbatch")
    eventually((world.path / "late").exists)
    eventually(lambda: len(world.live_jobs()) == 1)
    (world.path / "enough").touch()
    check_one_start(world, client)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_site_whose_sbatch_prints_a_banner(world: World, before: bool) -> None:
    """The id is found all the same."""
    banner = "echo 'Welcome! 42 jobs are running; see https://hpc.example/7'"
    body = f'{banner}; "$real" "$@"' if before else f'"$real" "$@"; {banner} >&2'
    world.wrap("sbatch", body)
    client = launch(world)
    check_one_start(world, client)
    (job_id,) = {int(path.read_text()) for path in world.race_dir().glob("jobs/*.id")}
    assert job_id == world.race()["winner"]["job_id"]


def test_json_of_a_killed_race_is_one_object(world: World) -> None:
    """Whatever state the race was left in."""
    client = launch(world)
    client.says("submitted")
    client.kill(whole=True)
    done = world.rv("ps", "--json")
    assert list(json.loads(done.stdout)) == ["races"]
    check_the_end(world)
