"""sbatch misbehaves: nobody knows whether it did submit."""

from random import Random

from tests.faults.harness import World, eventually
from tests.faults.scenarios.registry import held, launch, let_go, scenario
from tests.faults.unruly import WORDS, moods, unruly


@scenario()
def sbatch_times_out_before_acceptance(world: World, dice: Random) -> None:
    """Slurm never heard of the first call: it is made again."""
    unruly(world, "sbatch", ["lost"])
    launch(world)


@scenario()
def sbatch_times_out_after_acceptance(world: World, dice: Random) -> None:
    """The job is there all the same: it is found by name, and not submitted again."""
    unruly(world, "sbatch", ["late", "late"])
    release = world.fill()
    client = launch(world, "--fanout", dice.choice(["auto", "each"]))
    client.says("submitted 2 jobs")
    release()


@scenario()
def sbatch_accepts_and_fails(world: World, dice: Random) -> None:
    """It prints the job's id and ends with code 1."""
    unruly(world, "sbatch", ["code", "code"])
    launch(world)


@scenario()
def sbatch_does_nothing_and_succeeds(world: World, dice: Random) -> None:
    """Silence, and exit code 0."""
    unruly(world, "sbatch", ["nothing"])
    launch(world)


@scenario(doubles=True)
def sbatch_answers_garbage(world: World, dice: Random) -> None:
    """Bytes of no encoding in place of the id."""
    unruly(world, "sbatch", ["garbage", "garbage"])
    launch(world, "--fanout", dice.choice(["auto", "each"]))


@scenario(doubles=True)
def sbatch_answers_half(world: World, dice: Random) -> None:
    """A part of the id may be another job's id."""
    unruly(world, "sbatch", ["truncated", "truncated"])
    launch(world, "--fanout", dice.choice(["auto", "each"]))


@scenario(doubles=True)
def sbatch_is_slow(world: World, dice: Random) -> None:
    """It submits in the end."""
    unruly(world, "sbatch", ["slow", "slow"])
    launch(world)


@scenario(doubles=True)
def sbatch_is_intermittent(world: World, dice: Random) -> None:
    """Every other call fails, in any of the ways."""
    unruly(world, "sbatch", moods(dice, 3, *(word for word in WORDS if word != "ok")))
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
