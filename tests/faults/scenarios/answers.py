"""squeue, scontrol, sacct and scancel misbehave while a race runs."""

from functools import partial
from random import Random
from typing import Final

from tests.faults.misbehaving_programs import WORDS, misbehave, random_schedule
from tests.faults.scenarios.registry import (
    Scenario,
    held,
    launch,
    let_go,
    scenario,
    send,
    winner,
)
from tests.faults.world import World, eventually, kill, processes_of

_TIMES: Final = 4
_AS_VERB: Final = {
    "lost": "times_out",
    "code": "fails",
    "nothing": "says_nothing",
    "garbage": "answers_garbage",
    "truncated": "answers_half",
    "slow": "is_slow",
}


def _misanswers(program: str, word: str, world: World, dice: Random) -> None:
    """The first few calls of a program go wrong in one way; the race waits a while first."""
    release = world.fill()
    client = launch(world, "--fanout", dice.choice(["auto", "each"]))
    client.says("submitted 2 jobs")
    misbehave(world, program, [word] * _TIMES)
    world.ps()
    release()


ANSWERS: Final = tuple(
    Scenario(
        name=f"{program}_{_AS_VERB[word]}",
        play=partial(_misanswers, program, word),
        ends=frozenset({"COMPLETED"}),
    )
    for program, words in (
        ("squeue", ("lost", "code", "nothing", "garbage", "truncated", "slow")),
        ("scontrol", ("lost", "garbage", "slow")),
        ("scancel", ("lost", "nothing")),
    )
    for word in words
)
"""Each of the programs that a race asks, in each way in which it can fail."""


def _killed_outright(word: str, world: World, dice: Random) -> None:
    """The batch shell is killed and the controller has forgotten it: only accounting knows."""
    send(world, command=held(world))
    eventually(world.starts)
    job = int(winner(world))
    misbehave(world, "sacct", [word] * 2)
    kill([pid for pid, what in processes_of(job, world.box) if what == "below"])
    eventually(lambda: str(job) not in world.slurm("squeue", "-h", "-t", "all", "-o", "%A").split())
    world.ps()
    let_go(world)


ACCOUNTS: Final = tuple(
    Scenario(
        name=f"sacct_{_AS_VERB[word]}",
        play=partial(_killed_outright, word),
        ends=frozenset({"FAILED", "CANCELLED", "LOST", "ENDED"}),
        forgets=True,
    )
    for word in ("lost", "garbage", "nothing")
)
"""Accounting that is asked for the end of a job and does not say, for a while."""


@scenario(doubles=True)
def everything_is_intermittent(world: World, dice: Random) -> None:
    """Every other call of every program goes wrong, in any of the ways."""
    misbehave(
        world, "sbatch", random_schedule(dice, 2, *(word for word in WORDS if word != "slow"))
    )
    launch(world, "--fanout", dice.choice(["auto", "each"]))
    eventually(world.races)
    for program in ("squeue", "scontrol", "sacct", "scancel"):
        misbehave(world, program, random_schedule(dice, 8))
