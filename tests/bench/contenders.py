"""Who types: rv, four ways in which an expert would have asked by hand, and submitit."""

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from rv.models.request import Request
from rv.render.script import sbatch_line
from rv.workflow.command_line import KnownFiles, from_line
from rv.workflow.launch import prepare
from tests.bench.cluster import RV
from tests.bench.load import CPUS_PER_GPU
from tests.bench.replay import Yard
from tests.bench.rivals import at_hand
from tests.bench.scenarios import Scenario

COMMAND: Final = "torchrun train.py"
GIB_PER_GPU: Final = 50
_SUBMITIT: Final = Path(__file__).with_name("with_submitit.py")

Lines = list[list[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Typed:
    """What was typed when (seconds since the epoch), and the processes that do it."""

    at: float
    lines: Lines
    processes: tuple["subprocess.Popen[str]", ...]

    def said(self) -> str:
        """Wait for the commands' ends and return what they printed."""
        return "".join(process.communicate(timeout=60)[0] for process in self.processes)


def rv_up(yard: Yard, wanted: Scenario) -> Lines:
    """`rv up -d`, with its defaults."""
    request = ["--gpu", str(wanted.gpus), "--time", f"{wanted.minutes}m", "--run", COMMAND]
    return [[*RV, "up", *request, "-d"]]


def best_partition(yard: Yard, wanted: Scenario) -> Lines:
    """One node in the partition that has the most GPUs idle."""
    free = yard.free_gpus()
    return [_by_hand(max(sorted(free), key=lambda name: free[name]), wanted)]


def all_partitions(yard: Yard, wanted: Scenario) -> Lines:
    """One node in any partition: Slurm takes the first that has room."""
    return [_by_hand(",".join(sorted(yard.free_gpus())), wanted)]


def every_strategy(yard: Yard, wanted: Scenario) -> Lines:
    """An sbatch for every strategy of rv's plan, the covered ones too; planning is for free."""
    request = Request(
        gpus=wanted.gpus,
        walltime=timedelta(minutes=wanted.minutes),
        walltime_given=True,
        command=from_line(COMMAND, KnownFiles(is_file=lambda name: name == "train.py")),
    )
    made = prepare(request, yard.target, str(yard.work), dict(os.environ), time.time())
    lines = [shlex.split(sbatch_line(strategy)) for strategy in made.plan.strategies]
    return [[*line[:-1], *_quiet(), line[-1]] for line in lines]


def first_fit(yard: Yard, wanted: Scenario) -> Lines:
    """One node in the first partition with so many GPUs idle on a node, else in the first of all."""
    free = yard.free_by_node()
    fits = [name for name in free if max(free[name]) >= wanted.gpus]
    return [_by_hand((fits or list(free))[0], wanted)]


def submitit(yard: Yard, wanted: Scenario) -> Lines:
    """submitit with one node in any partition: the most that one of its jobs can ask for."""
    python = at_hand()["submitit"] / "python"
    partitions = ",".join(sorted(yard.free_gpus()))
    request = [partitions, str(wanted.gpus), str(wanted.minutes), *COMMAND.split()]
    return [[str(python), str(_SUBMITIT), "start", str(yard.home / "submitit"), *request]]


CONTENDERS: Final[Mapping[str, Callable[[Yard, Scenario], Lines]]] = {
    "rv": rv_up,
    "best partition": best_partition,
    "all partitions": all_partitions,
    "every strategy": every_strategy,
    "first fit": first_fit,
    "submitit": submitit,
}


def at_the_start() -> tuple[str, ...]:
    """Name the contenders that can type here: submitit only where a bench has installed it."""
    return tuple(name for name in sorted(CONTENDERS) if name != "submitit" or name in at_hand())


def type_lines(yard: Yard, lines: Lines) -> Typed:
    """Start all of these commands at once."""
    at = time.time()
    started = tuple(
        subprocess.Popen(
            line,
            cwd=yard.work,
            env=yard.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for line in lines
    )
    return Typed(at=at, lines=lines, processes=started)


def _by_hand(partitions: str, wanted: Scenario) -> list[str]:
    return [
        "sbatch",
        f"--partition={partitions}",
        "--nodes=1",
        f"--gres=gpu:{wanted.gpus}",
        f"--cpus-per-gpu={CPUS_PER_GPU}",
        f"--mem-per-gpu={GIB_PER_GPU}G",
        f"--time={wanted.minutes}",
        *_quiet(),
        "job.sh",
    ]


def _quiet() -> list[str]:
    return ["--output=/dev/null", "--no-requeue"]
