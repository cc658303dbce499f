"""What a fault scenario is: a name, what it does to a world, and how its races may end."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.faults.world import Client, World, do_nothing, eventually

SOAK: Final = int(os.environ.get("RV_SOAK", "0"))
SLOW_S: Final = 30 if SOAK else 3
"""How slow a slow answer is. Half a minute is longer than any client waits for one."""

START: Final = 'echo "$RV_RACE $RV_ME" >>starts'
END: Final = 'echo "$RV_RACE $RV_ME" >>ends'
COMMAND: Final = f"{START}; sleep 0.3; {END}"
"""A command that leaves a line at its start and one at its end, in the working directory."""

Play = Callable[[World, Random], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """`ends`: the states its races may come to. `doubles`: a submission may become two jobs.

    `forgets`: it is about a cluster that forgets an ended job at once.
    """

    name: str
    play: Play
    ends: frozenset[str]
    doubles: bool = False
    forgets: bool = False


def scenario(
    *ends: str, doubles: bool = False, forgets: bool = False
) -> Callable[[Play], Scenario]:
    """Make a function over a world and a seeded dice a scenario; COMPLETED is its usual end."""
    states = frozenset(ends or ("COMPLETED",))
    return lambda play: Scenario(
        name=play.__name__, play=play, ends=states, doubles=doubles, forgets=forgets
    )


def found_in(values: Iterable[object]) -> Iterator[Scenario]:
    """The scenarios among the values of a module, those of its tuples too."""
    for value in values:
        if isinstance(value, Scenario):
            yield value
        elif isinstance(value, tuple):
            yield from found_in(value)


def launch(world: World, *options: str, command: str = COMMAND) -> Client:
    """Start a race that its client watches."""
    return world.start("up", *options, "--run", command)


def send(world: World, *options: str, command: str = COMMAND) -> None:
    """Start a race that nobody watches."""
    world.ok("up", *options, "-d", "--run", command)


def held(world: World) -> str:
    """A command that goes on until `let_go`."""
    return f"{START}; until [ -e {world.path}/enough ]; do sleep 0.1; done; {END}"


def let_go(world: World) -> None:
    """Let the commands that are `held` end."""
    (world.path / "enough").touch()


def winner(world: World) -> str:
    """The id of the job that won, once one did."""
    claim = world.race_dir() / "claim"
    eventually(claim.exists)
    return claim.read_text(encoding="utf-8").split(".", maxsplit=1)[0]


def node_of(world: World, job: str) -> str:
    """The node on which a job runs."""
    return world.slurm("squeue", "-h", "-j", job, "-o", "%N").strip()


def occupy(world: World, *nodes: str) -> Callable[[], None]:
    """Fill some nodes; returns what frees them."""
    jobs = [_hog(world, node) for node in nodes]

    def running() -> bool:
        states = world.slurm("squeue", "-h", "-j", ",".join(jobs), "-o", "%T").split()
        return states == ["RUNNING"] * len(jobs)

    eventually(running)
    return lambda: do_nothing(world.slurm("scancel", *jobs))


def _hog(world: World, node: str) -> str:
    part = world.slurm("sinfo", "-h", "-N", "-n", node, "-o", "%R").split()[0]
    argv = (
        "sbatch",
        "--parsable",
        "-w",
        node,
        "-p",
        part,
        "--exclusive",
        "-J",
        "hog",
        "--qos=urgent",
    )
    return world.slurm(*argv, "-o", "/dev/null", "--wrap", "exec sleep 3600").strip()
