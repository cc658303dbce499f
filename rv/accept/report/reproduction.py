"""The commands that show again what a ticket tells of: with rv, and without it. Pure."""

import re
import shlex
from collections.abc import Sequence
from typing import Final

from rv.accept.pairs import KIND
from rv.accept.report.heat import SILENT
from rv.accept.report.places import UNKNOWN
from rv.accept.results import RunResult
from rv.accept.runs import Run

_OWN_FLAGS: Final = frozenset({"--no-reference"})
"""Flags that are of rv's own making: its judging is not part of what is reproduced."""
_PORT: Final = 29500
"""Where torchrun's nodes meet: its own default."""


def with_rv(run: Run, place: str, payloads: Sequence[str]) -> str:
    """Write the sweep that runs payloads again, or pairs; "" where no nodes are known."""
    is_of_pairs = any(result.test_type == KIND for result in run.results)
    what = ["--pairs"] if is_of_pairs else payloads
    # A pair's own rate tells; a node, or a link of leaves, is judged by all pairs.
    nodes = pair_of(run, place) if is_of_pairs else _node(place)
    nodes = nodes or run.record.nodes
    profile = ["--profile", run.record.profile] if run.record.profile else []
    words = ["rv", "accept", "sweep", *what, *profile, "--nodes", ",".join(nodes), "--no-avoid"]
    return shlex.join(words) if nodes else ""


def _node(place: str) -> tuple[str, ...]:
    return () if place == UNKNOWN else (place,)


def by_itself(place: str, result: RunResult) -> str:
    """Write the command that runs a payload as it ran, without rv; "" where no nodes are known."""
    argv = [word for word in result.argv if word not in _OWN_FLAGS]
    where = _node(place) if result.nnodes == 1 else tuple(dict.fromkeys(result.hosts))
    if not where or len(where) != result.nnodes or "" in where:
        return ""
    gpus = len(result.devices) // result.nnodes
    tasks = ["-N1", "-n1"] if result.nnodes == 1 else [f"-N{len(where)}", "--ntasks-per-node=1"]
    slurm = ["srun", *tasks, "-w", ",".join(where), "--exclusive"]
    slurm += [f"--gpus-per-node={gpus}"] if gpus else []
    return shlex.join([*slurm, *_start(result, where[0]), f"{result.test_type}.py", *argv])


def ask_driver(place: str, uuid: str) -> str:
    """Write the command that says what the driver knows of a GPU; "" where no node is known."""
    srun = ["srun", "-N1", "-n1", "-w", place]
    return shlex.join([*srun, "nvidia-smi", "-q", "-i", uuid]) if _node(place) else ""


def _start(result: RunResult, first: str) -> list[str]:
    if result.world_size == 1:
        return ["python3"]
    ranks = f"--nproc-per-node={result.world_size // result.nnodes}"
    if result.nnodes == 1:
        return ["torchrun", ranks]
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={first}:{_PORT}"]
    return ["torchrun", f"--nnodes={result.nnodes}", ranks, *meeting]


def pair_of(run: Run, place: str) -> tuple[str, ...]:
    """Give the two nodes of the run that a place names, such as `a1 and a4`; () for another."""
    ends = tuple(re.split(r" and |,", place))
    return ends if len(ends) == 2 and set(ends) <= set(run.record.nodes) else ()


def reports_of(run: Run, place: str, seen: Sequence[RunResult]) -> dict[str, RunResult]:
    """Give what each payload reported that can be run again, by its name: the first one.

    `seen` are results that a ticket tells of. The judgement of a pair is of its job's results.
    """
    pair = set(pair_of(run, place))
    jobs = [each for each in run.results if each.nnodes == 2 and pair == set(each.hosts)]
    reports: dict[str, RunResult] = {}
    for each in (*seen, *jobs):
        if each.test_type not in (SILENT, KIND):
            reports.setdefault(each.test_type, each)
    return reports
