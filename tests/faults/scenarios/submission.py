"""sbatch misbehaves: nobody knows whether it did submit."""

from random import Random

from tests.faults.misbehaving_programs import WORDS, misbehave, random_schedule
from tests.faults.scenarios.registry import held, launch, let_go, scenario
from tests.faults.world import World, eventually


@scenario()
def sbatch_times_out_before_acceptance(world: World, dice: Random) -> None:
    """Slurm never heard of the first call: it is made again."""
    misbehave(world, "sbatch", ["lost"])
    launch(world)


@scenario()
def sbatch_times_out_after_acceptance(world: World, dice: Random) -> None:
    """The job is there all the same: it is found by name, and not submitted again."""
    misbehave(world, "sbatch", ["late", "late"])
    release = world.fill()
    client = launch(world, "--fanout", dice.choice(["auto", "each"]))
    client.says("submitted 2 jobs")
    release()


@scenario()
def sbatch_accepts_and_fails(world: World, dice: Random) -> None:
    """It prints the job's id and ends with code 1."""
    misbehave(world, "sbatch", ["code", "code"])
    launch(world)


@scenario()
def sbatch_does_nothing_and_succeeds(world: World, dice: Random) -> None:
    """Silence, and exit code 0."""
    misbehave(world, "sbatch", ["nothing"])
    launch(world)


@scenario(doubles=True)
def sbatch_answers_garbage(world: World, dice: Random) -> None:
    """Bytes of no encoding in place of the id."""
    misbehave(world, "sbatch", ["garbage", "garbage"])
    launch(world, "--fanout", dice.choice(["auto", "each"]))


@scenario(doubles=True)
def sbatch_answers_half(world: World, dice: Random) -> None:
    """A part of the id may be another job's id."""
    misbehave(world, "sbatch", ["truncated", "truncated"])
    launch(world, "--fanout", dice.choice(["auto", "each"]))


@scenario(doubles=True)
def sbatch_is_slow(world: World, dice: Random) -> None:
    """It submits in the end."""
    misbehave(world, "sbatch", ["slow", "slow"])
    launch(world)


@scenario(doubles=True)
def sbatch_is_intermittent(world: World, dice: Random) -> None:
    """Every other call fails, in any of the ways."""
    misbehave(world, "sbatch", random_schedule(dice, 3, *(word for word in WORDS if word != "ok")))
    launch(world, "--fanout", dice.choice(["auto", "each"]))


@scenario(doubles=True)
def sbatch_submits_late(world: World, dice: Random) -> None:
    """The call that timed out goes through after the one that took its place."""
    world.wrap(
        "sbatch",
        'if [ "$(calls)" -le 1 ]; then\n'
        '  (at; "$real" "$@"; touch "${0%/bin/*}/late") </dev/null >/dev/null 2>&1 &\n'
        '  echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1\n'
        'fi; exec "$real" "$@"',
    )
    client = launch(world, command=held(world))
    client.says("started on")
    world.go("sbatch")
    eventually((world.path / "late").exists)
    let_go(world)
