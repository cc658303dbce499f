"""The race itself: siblings that start together, a claim in the way, a winner that cannot cancel."""

from random import Random

from tests.faults.scenarios.registry import held, launch, let_go, scenario, send
from tests.faults.world import World, eventually

_TOGETHER = """
calls >/dev/null
for _ in {1..200}; do [ "$(wc -l <"${0%/bin/*}/calls.sync")" -lt 2 ] || break; sleep 0.05; done
exec "$real" "$@"
"""
"""Holds each job right before its claim until another one is there too."""


@scenario()
def siblings_start_together(world: World, dice: Random) -> None:
    """Both are through with their checks before either claims."""
    world.wrap("sync", _TOGETHER)
    launch(world, "--fanout", "each")


@scenario("FAILED")
def a_directory_in_place_of_the_claim(world: World, dice: Random) -> None:
    """Nobody can claim, and so nobody starts the command."""
    world.wrap("sync", _TOGETHER)
    release = world.fill()
    client = launch(world, "--fanout", "each")
    client.says("submitted 2 jobs")
    (world.race_dir() / "claim").mkdir()
    release()


@scenario()
def the_winner_cannot_cancel(world: World, dice: Random) -> None:
    """Its scancel does nothing: the siblings are left to the next rv command."""
    world.wrap("scancel", '[ -z "$SLURM_JOB_ID" ] || exit 0; exec "$real" "$@"')
    world.fill()
    send(world, "--fanout", "each", command=held(world))
    world.slurm("scancel", "-n", "hog", "-p", dice.choice(["fast", "slow"]))
    eventually(world.starts)
    let_go(world)
    eventually((world.race_dir() / "ended").exists)
    eventually(lambda: len(world.live_jobs()) == 1)
    world.ps()
    told = world.race()
    assert "PENDING" not in {job["state"] for job in told["jobs"]}, f"cancelled just now: {told}"


@scenario()
def a_hostile_environment(world: World, dice: Random) -> None:
    """The user's own Slurm variables would hide the job; the client dies before it knows its id."""
    world.env |= {"SQUEUE_PARTITION": "slow", "SQUEUE_STATES": "S", "SACCT_FORMAT": "User"}
    world.env |= {"SBATCH_JOB_NAME": "mine", "SCANCEL_USER": "nobody", "SLURM_TIME_FORMAT": "%s"}
    world.wrap("sacct", "exit 1")
    world.wrap("sbatch", 'out=$("$real" "$@"); at; echo "$out"')
    release = world.fill()
    client = launch(world, "-p", "fast")
    world.reached("sbatch")
    client.kill(whole=True)
    world.go("sbatch")
    world.backdate()
    said = world.race()["state"]
    assert said == "PENDING", f"rv says {said} of a race whose job Slurm knows"
    release()
