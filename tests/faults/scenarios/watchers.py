"""Several clients at one race: watching, asking, stopping, and dying of it."""

import time
from random import Random

from tests.faults.scenarios.registry import held, launch, let_go, scenario, send
from tests.faults.world import World, eventually

STOPPED_OR_NOT = ("COMPLETED", "CANCELLED")


@scenario()
def two_clients_watch_one_race(world: World, dice: Random) -> None:
    """The one that started it, and one that came later."""
    client = launch(world, "--fanout", "each", command=f"echo one; {held(world)}; echo two")
    client.prints("one")
    other = world.start("logs", "-f")
    other.prints("one")
    let_go(world)
    client.prints("two")
    other.prints("two")


@scenario()
def many_ask_at_once(world: World, dice: Random) -> None:
    """Each of them puts the race in order."""
    release = world.fill()
    client = launch(world, "--widen-after", "1")
    client.says("submitted 2 jobs")
    for _ in range(3):
        world.start("ps")
    release()
    for _ in range(3):
        world.start("ps")


@scenario(*STOPPED_OR_NOT)
def rv_stop_races_with_the_start(world: World, dice: Random) -> None:
    """At any moment around the submission, the claim and the start."""
    launch(world, "--fanout", dice.choice(["auto", "each"]))
    eventually(world.races)
    time.sleep(dice.uniform(0, 1))
    world.rv("stop")


@scenario("CANCELLED")
def rv_stop_between_the_claim_and_the_start(world: World, dice: Random) -> None:
    """The winner sees the stop and ends with 0 before it can be cancelled; so says Slurm of it."""
    world.wrap("scontrol", 'case "$*" in *requeue=0*) at ;; esac; exec "$real" "$@"')
    world.wrap("scancel", '[ -n "$SLURM_JOB_ID" ] || at; exec "$real" "$@"')
    launch(world)
    world.reached("scontrol")
    world.start("stop")
    world.reached("scancel")
    world.go("scontrol")
    world.wait_for_the_end_of_jobs()
    world.go("scancel")


@scenario("CANCELLED")
def rv_stop_inside_sbatch(world: World, dice: Random) -> None:
    """The job is accepted and its id is nowhere: it is found by name."""
    world.wrap("sbatch", 'out=$("$real" "$@"); at; echo "$out"')
    world.fill()
    launch(world)
    world.reached("sbatch")
    world.rv("stop")
    world.go("sbatch")


@scenario(*STOPPED_OR_NOT)
def rv_stop_is_killed(world: World, dice: Random) -> None:
    """Somewhere before, at or after its mark."""
    send(world, command=held(world))
    eventually(world.starts)
    stop = world.start("stop")
    time.sleep(dice.uniform(0.2, 1.5))
    stop.kill(whole=dice.random() < 0.5)
    if not (world.race_dir() / "stop").exists():
        let_go(world)


@scenario()
def rv_ps_is_killed(world: World, dice: Random) -> None:
    """While it puts in order what the winner left."""
    world.wrap("scancel", '[ -z "$SLURM_JOB_ID" ] || exit 0; exec "$real" "$@"')
    world.fill()
    send(world, "--fanout", "each", command=held(world))
    world.slurm("scancel", "-n", "hog", "-p", dice.choice(["fast", "slow"]))
    eventually(world.starts)
    for _ in range(2):
        asking = world.start("ps")
        time.sleep(dice.uniform(0.2, 1))
        asking.kill(whole=dice.random() < 0.5)
    let_go(world)


@scenario("CANCELLED")
def interrupted_before_the_claim(world: World, dice: Random) -> None:
    """Ctrl-C stops the race."""
    world.fill()
    client = launch(world)
    client.says("submitted 2 jobs")
    client.interrupt()


@scenario()
def interrupted_after_the_claim(world: World, dice: Random) -> None:
    """Ctrl-C detaches."""
    client = launch(world, command=held(world))
    client.says("started on")
    client.interrupt()
    client.wait()
    let_go(world)


@scenario()
def three_races_at_once(world: World, dice: Random) -> None:
    """One client dies; each race is its own."""
    clients = [launch(world, "--fanout", dice.choice(["auto", "each"])) for _ in range(3)]
    dice.choice(clients).says("submitted")
    clients[0].says("submitted")
    clients[0].kill(whole=True)
