"""Who types for a result: rv by finish and by start, and four ways in which people ask by hand.

The work is that of `WORK_S` seconds of an a100-80: on a node of a model 20 to 120 s, as long as
the jobs of the load. What a model really does in the bench is no value
of rv's: the rates and the scaling loss are others than those that rv plans with.
"""

import math
import os
import shlex
import time
from collections.abc import Callable, Mapping
from typing import Final

from rv.accept.rates import performance
from rv.models.request import Objective, Request, Work
from rv.models.site import Site
from rv.render.script import sbatch_line
from rv.workflow.command_line import KnownFiles, from_line
from rv.workflow.launch import prepare
from tests.bench.cluster import RV
from tests.bench.contenders import COMMAND, GIB_PER_GPU, Lines
from tests.bench.load import CPUS_PER_GPU
from tests.bench.replay import Yard

WORK_S: Final = 160.0
MOST: Final = 8
A_NODE: Final = 4

TRUE_RATES: Final = {"v100": 0.40, "a6000": 0.44, "a100": 1.0, "h200": 2.3}
"""What a GPU does, by its partition, in those of the a100. rv's own: 0.34, 0.47, 1 and 2.76."""

_PREFIX: Final = {"v100": "v", "a6000": "s", "a100": "a", "h200": "h"}
"""What the names of a partition's nodes begin with: a job of several partitions names them all."""

_TRUE_POWER: Final = 0.93
_TRUE_BETWEEN_NODES: Final = 0.88

PROGRAM: Final = """\
#!/bin/bash
# Stands for the user's program: notes when it starts, where, and how long it computes; then does.
now=${{EPOCHREALTIME/,/.}}
IFS=, read -ra own <<<"$CUDA_VISIBLE_DEVICES"
case "${{SLURM_JOB_NODELIST:0:1}} $SLURM_JOB_NUM_NODES ${{#own[@]}}" in
{cases}
*) takes=9999 ;;
esac
echo "$now $SLURM_JOB_PARTITION $SLURM_JOB_NODELIST $takes" >{folder}/.$BASHPID &&
  mv {folder}/.$BASHPID {folder}/$SLURM_JOB_ID.$BASHPID
exec sleep $takes
"""


def takes_s(partition: str, nodes: int, gpus_per_node: int) -> float:
    """How long the program really computes there."""
    speed = TRUE_RATES[partition] * (nodes * gpus_per_node) ** _TRUE_POWER
    return WORK_S / speed / (_TRUE_BETWEEN_NODES if nodes > 1 else 1.0)


def program(folder: str) -> str:
    """The program, with the times of every layout that a contender may ask for."""
    layouts = [(nodes, gpus) for nodes in (1, 2) for gpus in range(1, A_NODE + 1)]
    cases = [
        f'"{_PREFIX[name]} {nodes} {gpus}") takes={takes_s(name, nodes, gpus):.2f} ;;'
        for name in TRUE_RATES
        for nodes, gpus in layouts
    ]
    return PROGRAM.format(folder=folder, cases="\n".join(cases))


def rv_finish(yard: Yard) -> Lines:
    """`rv up --for finish` with a range of sizes."""
    return [[*RV, "up", *_asked(), "--for", "finish", "--run", COMMAND, "-d"]]


def rv_start(yard: Yard) -> Lines:
    """`rv up` with the same range, ranked by the start."""
    return [[*RV, "up", *_asked(), "--run", COMMAND, "-d"]]


def _asked() -> list[str]:
    return ["--gpu", f"1-{MOST}", "--work", f"{WORK_S / 3600:.6f}gpuh:a100-80"]


def best_partition(yard: Yard) -> Lines:
    """A whole node in the partition that has the most GPUs idle."""
    free = yard.free_gpus()
    return [_by_hand([max(sorted(free), key=lambda name: free[name])], 1, A_NODE)]


def all_partitions(yard: Yard) -> Lines:
    """A whole node in any partition: Slurm takes the first that has room."""
    return [_by_hand(sorted(TRUE_RATES), 1, A_NODE)]


def first_fit(yard: Yard) -> Lines:
    """The largest number of GPUs on the first partition that has so many free; else a node of any."""
    free = yard.free_by_node()
    for nodes, gpus in ((2, A_NODE), (1, A_NODE), (1, 2), (1, 1)):
        for name in TRUE_RATES:
            if sum(count >= gpus for count in free.get(name, ())) >= nodes:
                return [_by_hand([name], nodes, gpus)]
    return all_partitions(yard)


def every_strategy(yard: Yard) -> Lines:
    """An sbatch for every strategy of rv's plan; the first that starts has won, as with a lock."""
    request = Request(
        gpus=MOST,
        sizes=tuple(1 << power for power in range(MOST.bit_length())),
        work=Work(gpu_hours=WORK_S / 3600, reference="a100-80"),
        objective=Objective.START,
        command=from_line(COMMAND, KnownFiles(is_file=lambda name: name == "train.py")),
    )
    site = Site(performance=performance(yard.target.key))
    made = prepare(request, yard.target, str(yard.work), dict(os.environ), time.time(), site)
    lines = [shlex.split(sbatch_line(strategy)) for strategy in made.plan.strategies]
    return [[*line[:-1], *_quiet(), line[-1]] for line in lines]


def _by_hand(partitions: list[str], nodes: int, gpus: int) -> list[str]:
    """A job as an expert would write it: the time is what the slowest of the partitions takes."""
    minutes = max(math.ceil(1.3 * takes_s(name, nodes, gpus) / 60) for name in partitions)
    return [
        "sbatch",
        f"--partition={','.join(partitions)}",
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        f"--gres=gpu:{gpus}",
        f"--cpus-per-gpu={CPUS_PER_GPU}",
        f"--mem-per-gpu={GIB_PER_GPU}G",
        f"--time={minutes}",
        *_quiet(),
        "job.sh",
    ]


def _quiet() -> list[str]:
    return ["--output=/dev/null", "--no-requeue"]


FINISHERS: Final[Mapping[str, Callable[[Yard], Lines]]] = {
    "rv --for finish": rv_finish,
    "rv --for start": rv_start,
    "best partition": best_partition,
    "all partitions": all_partitions,
    "every strategy": every_strategy,
    "first fit": first_fit,
}
OURS: Final = "rv --for finish"
RIVALS: Final = ("best partition", "all partitions", "every strategy", "first fit")
