"""Nodes that are not what they should be, and jobs that Slurm takes back."""

import os
import signal
from contextlib import suppress
from random import Random

from rv import sandbox
from tests.faults.scenarios.daemons import frozen
from tests.faults.scenarios.registry import (
    held,
    launch,
    let_go,
    node_of,
    occupy,
    scenario,
    send,
    winner,
)
from tests.faults.world import World, eventually, kill, processes_of

WAITS_BEFORE_ITS_CLAIM = 'at; exec "$real" "$@"'
HEARS_OF_ITS_END = "trap ': >\"${0%/bin/*}/told\"' TERM\n" + WAITS_BEFORE_ITS_CLAIM
"""The same, and it leaves the file `told` when Slurm takes the job back."""


@scenario()
def the_only_free_node_is_broken(world: World, dice: Random) -> None:
    """It is given up, and the same job waits for another."""
    sandbox.set_fault(world.box, "a1", dice.choice(["error", "wrong-model"]))
    free = occupy(world, "a2")
    send(world, "-p", "fast")
    eventually(lambda: list((world.race_dir() / "declined").glob("a1")))
    free()


@scenario()
def nvidia_smi_hangs(world: World, dice: Random) -> None:
    """On the first node that Slurm picks."""
    sandbox.set_fault(world.box, "a1", "hang")
    launch(world, "--fanout", dice.choice(["auto", "each"]))


@scenario("DECLINED")
def every_node_is_broken(world: World, dice: Random) -> None:
    """All are given up, and named."""
    for node in ("a1", "a2", "v1", "v2"):
        sandbox.set_fault(world.box, node, dice.choice(["error", "wrong-model"]))
    launch(world)


@scenario()
def three_nodes_are_broken(world: World, dice: Random) -> None:
    """The fourth is found."""
    good = dice.choice(["a1", "a2", "v1", "v2"])
    for node in {"a1", "a2", "v1", "v2"} - {good}:
        sandbox.set_fault(world.box, node, dice.choice(["error", "wrong-model"]))
    launch(world, "--fanout", dice.choice(["auto", "each"]))


@scenario()
def the_winner_is_requeued_by_hand(world: World, dice: Random) -> None:
    """Slurm refuses: a command is never started a second time."""
    launch(world, command=held(world))
    eventually(world.starts)
    job = winner(world)
    about = ("scontrol", "show", "job", job)
    is_safe = False
    with suppress(AssertionError):  # without it the accounting of starts shows what happens
        is_safe = eventually(lambda: "Requeue=0" in world.slurm(*about), timeout=10)
    world.slurm("scontrol", "requeue", job, check=False)
    eventually(lambda: is_safe or has_left_its_node(world.slurm(*about)))
    let_go(world)


def has_left_its_node(shown: str) -> bool:
    """Whether a requeued job's processes are gone: what still runs could end by itself, and well."""
    return "Restarts=1" in shown and "COMPLETING" not in shown


@scenario()
def requeued_before_the_claim(world: World, dice: Random) -> None:
    """What Slurm is taking back does not claim; the job comes back and is a racer as before."""
    world.wrap("sync", HEARS_OF_ITS_END)
    launch(world, "-p", "fast")
    world.reached("sync")
    (job,) = world.slurm("squeue", "-h", "-t", "R", "-o", "%A").split()
    world.slurm("scontrol", "requeue", job)
    eventually((world.path / "told").exists)
    world.go("sync")


@scenario("PREEMPTED")
def the_winner_is_preempted(world: World, dice: Random) -> None:
    """A job of a better QOS takes its node."""
    launch(world, "--qos", "scavenger", "--preemptible", "-p", "fast", command=held(world))
    eventually(world.starts)
    job = winner(world)
    eventually(lambda: "Requeue=0" in world.slurm("scontrol", "show", "job", job))
    occupy(world, node_of(world, job))()


@scenario()
def preempted_before_the_claim(world: World, dice: Random) -> None:
    """Slurm requeues it, and it starts when there is room again."""
    world.wrap("sync", WAITS_BEFORE_ITS_CLAIM)
    launch(world, "--qos", "scavenger", "--preemptible", "-p", "fast")
    world.reached("sync")
    (job,) = world.slurm("squeue", "-h", "-t", "R", "-o", "%A").split()
    free = occupy(world, node_of(world, job))
    world.go("sync")
    free()


def _down(world: World, node: str) -> None:
    world.slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=test")


@scenario("LOST")
def the_winners_node_dies(world: World, dice: Random) -> None:
    """With all that ran on it."""
    launch(world, command=held(world))
    eventually(world.starts)
    job = winner(world)
    node = node_of(world, job)
    sandbox.stop_node(world.box, node)
    kill([pid for pid, _ in processes_of(int(job), world.box)])
    _down(world, node)


@scenario("LOST")
def the_lost_node_comes_back(world: World, dice: Random) -> None:
    """Slurm then ends the command, which says so: the race was lost, and stays so.

    On a busy machine it has no time to say so before Slurm kills it (KillWait).
    """
    launch(world, command=held(world))
    eventually(world.starts)
    job = winner(world)
    node = node_of(world, job)
    sandbox.stop_node(world.box, node)
    _down(world, node)
    world.settled("LOST")
    sandbox.start_node(world.box, node)
    world.resume()
    eventually(lambda: not list(processes_of(int(job), world.box)))


@scenario()
def the_winners_node_is_out_of_touch(world: World, dice: Random) -> None:
    """Slurm gives it up; the command goes on there, to a good end."""
    launch(world, command=held(world))
    eventually(world.starts)
    node = node_of(world, winner(world))
    sandbox.stop_node(world.box, node)
    _down(world, node)
    world.ps()
    let_go(world)
    eventually((world.race_dir() / "ended").exists)
    sandbox.start_node(world.box, node)


@scenario()
def a_node_dies_before_the_claim(world: World, dice: Random) -> None:
    """Slurm requeues the job, which starts on another."""
    world.wrap("sync", WAITS_BEFORE_ITS_CLAIM)
    launch(world, "-p", "fast")
    world.reached("sync")
    (job,) = world.slurm("squeue", "-h", "-t", "R", "-o", "%A").split()
    node = node_of(world, job)
    sandbox.stop_node(world.box, node)
    kill([pid for pid, _ in processes_of(int(job), world.box)])
    _down(world, node)
    world.go("sync")


@scenario()
def slurmd_hangs_under_the_winner(world: World, dice: Random) -> None:
    """The command ends meanwhile."""
    launch(world, command=held(world))
    eventually(world.starts)
    with frozen(_slurmd(world, node_of(world, winner(world)))):
        let_go(world)
        eventually((world.race_dir() / "ended").exists)


@scenario()
def slurmd_restarts_under_the_winner(world: World, dice: Random) -> None:
    """The job outlives it."""
    launch(world, command=held(world))
    eventually(world.starts)
    node = node_of(world, winner(world))
    sandbox.stop_node(world.box, node)
    if dice.random() < 0.5:
        let_go(world)
    sandbox.start_node(world.box, node)
    let_go(world)


def _slurmd(world: World, node: str) -> int:
    shown = world.slurm("scontrol", "show", "config")
    (pattern,) = [line for line in shown.splitlines() if line.startswith("SlurmdPidFile")]
    path = pattern.partition("=")[2].strip().replace("%n", node)
    with open(path, encoding="ascii") as file:  # noqa: PTH123
        pid = int(file.read())
    os.kill(pid, signal.SIGCONT)
    return pid
