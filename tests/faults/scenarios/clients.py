"""The client dies of kill -9 at each of its steps, alone or with all that it started."""

import time
from random import Random

from tests.faults.scenarios.registry import COMMAND, held, launch, let_go, scenario
from tests.faults.world import World, eventually

SUBMITTED_OR_NOT = ("COMPLETED", "CANCELLED")


@scenario("CANCELLED")
def killed_before_sbatch(world: World, dice: Random) -> None:
    """While it stages: the race directory is there whole, or not at all."""
    world.wrap("ln", '[ "$2" != nonce ] || at; exec "$real" "$@"')
    client = launch(world)
    world.reached("ln")
    client.kill(whole=dice.random() < 0.5)
    world.go("ln")


@scenario(*SUBMITTED_OR_NOT)
def killed_inside_sbatch_before_acceptance(world: World, dice: Random) -> None:
    """The shell that submits outlives a client that dies alone."""
    world.wrap("sbatch", 'at; exec "$real" "$@"')
    client = launch(world)
    world.reached("sbatch")
    whole = dice.random() < 0.5
    client.kill(whole=whole)
    world.go("sbatch")
    if not whole:
        eventually(world.known_jobs)


@scenario()
def killed_inside_sbatch_after_acceptance(world: World, dice: Random) -> None:
    """The job is accepted and its id is nowhere."""
    world.wrap("sbatch", 'out=$("$real" "$@"); at; echo "$out"')
    client = launch(world, "--fanout", dice.choice(["auto", "each"]))
    world.reached("sbatch")
    client.kill(whole=dice.random() < 0.5)
    world.go("sbatch")


@scenario()
def killed_after_sbatch(world: World, dice: Random) -> None:
    """As soon as rv said so."""
    client = launch(world)
    client.says("submitted")
    client.kill(whole=dice.random() < 0.5)


@scenario()
def killed_between_waves(world: World, dice: Random) -> None:
    """Nobody is left to send the second wave."""
    world.ok("up", "--dry-run")
    release = world.drain()
    client = launch(world, "--widen-after", "10m")
    client.says("submitted 1 job")
    client.kill(whole=dice.random() < 0.5)
    release()


@scenario()
def killed_before_the_claim(world: World, dice: Random) -> None:
    """Every submission waits in a full cluster."""
    release = world.fill()
    client = launch(world)
    client.says("submitted 2 jobs")
    client.kill(whole=dice.random() < 0.5)
    release()


@scenario()
def killed_after_the_claim(world: World, dice: Random) -> None:
    """There is a winner."""
    client = launch(world, "--fanout", "each")
    eventually((world.race_dir() / "claim").exists)
    client.kill(whole=dice.random() < 0.5)


@scenario()
def killed_while_streaming(world: World, dice: Random) -> None:
    """The command goes on without it."""
    client = launch(world, command=f"echo one; {held(world)}")
    client.prints("one")
    client.kill(whole=dice.random() < 0.5)
    let_go(world)


@scenario(*SUBMITTED_OR_NOT)
def killed_at_any_moment(world: World, dice: Random) -> None:
    """From its first line of Python to its last."""
    client = launch(world, "--fanout", dice.choice(["auto", "each"]), command=COMMAND)
    if dice.random() < 0.8:
        eventually(world.races)
    time.sleep(dice.uniform(0, 1.5))
    client.kill(whole=dice.random() < 0.5)
