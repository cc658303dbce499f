"""The state of a sweep: which nodes, how far each is, the file that has it, and the results."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from rv.accept.results import RunResult, Status, TestResult
from rv.accept.store import Run, RunRecord
from rv.accept.store import load as load_run
from rv.bundle import acceptance_dir
from rv.errors import ErrorKind, RvError
from rv.files import write_atomically
from rv.models.plain import build, plain
from rv.models.snapshot import Node

CHUNK: Final = 256
"""Jobs of one sweep that are in the queue at once, at most: more nodes wait for their turn."""


class Stage(StrEnum):
    """How far a node is: to be submitted, in the queue, over, or not to be had at all."""

    WAITING = "waiting"
    SENT = "sent"
    OVER = "over"
    LEFT_OUT = "left out"


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeState:
    """One node of a sweep: its race, where one was begun, and why it has none."""

    node: str
    stage: Stage = Stage.WAITING
    race: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """A sweep as its file has it. `begun_at` is seconds since the epoch."""

    sweep_id: str
    cluster: str
    profile: str
    payloads: tuple[str, ...]
    begun_at: float
    nodes: tuple[NodeState, ...] = ()

    def at(self, stage: Stage) -> tuple[NodeState, ...]:
        """The nodes that are so far."""
        return tuple(node for node in self.nodes if node.stage is stage)

    def with_node(self, changed: NodeState) -> "Sweep":
        """The sweep with one node's new state."""
        nodes = {node.node: node for node in self.nodes} | {changed.node: changed}
        return replace(self, nodes=tuple(nodes.values()))

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return not self.at(Stage.WAITING) and not self.at(Stage.SENT)


def next_nodes(sweep: Sweep, max_jobs: int) -> tuple[NodeState, ...]:
    """The nodes to submit now: as many as have room beside those in the queue."""
    room = min(max_jobs, CHUNK) - len(sweep.at(Stage.SENT))
    return sweep.at(Stage.WAITING)[: max(0, room)]


def choose_nodes(
    every: Iterable[Node],
    names: Sequence[str],
    partitions: Mapping[str, Sequence[str]],
    states: Sequence[str],
) -> tuple[Node, ...]:
    """Choose nodes by name, by the members of partitions, and by state; all with GPUs for none.

    Raises `RvError(USAGE)` for a name that is no node, `RvError(INFEASIBLE)` where none is left.
    """
    nodes = _named(every, names)
    if partitions:
        members = set(itertools.chain.from_iterable(partitions.values()))
        nodes = [node for node in nodes if node.name in members]
    if states:
        in_capitals = {state.upper() for state in states}
        nodes = [node for node in nodes if in_capitals & node.states]
    if not nodes:
        hint = "sinfo -N shows their states"
        raise RvError(ErrorKind.INFEASIBLE, "no node is to be swept", hint=hint)
    return tuple(nodes)


def _named(every: Iterable[Node], names: Sequence[str]) -> list[Node]:
    """Give the nodes of these names, each once in that order, or all that have GPUs for none."""
    if not names:
        return [node for node in every if node.gpus]
    nodes = {node.name: node for node in every}
    for name in names:
        if name not in nodes:
            raise RvError(ErrorKind.USAGE, f"there is no node {name!r}", hint="sinfo -N lists them")
    return [nodes[name] for name in dict.fromkeys(names)]


def is_mig(node: Node) -> bool:
    """Whether all that the node has of GPUs is cut into MIG slices."""
    from rv.planner.catalogue import mig_profile

    return bool(node.gpus) and all(mig_profile(group.type) for group in node.gpus)


def save(sweep: Sweep) -> None:
    """Keep a sweep. Raises `RvError(STAGE)` where this machine's disk does not take it."""
    path = _folder() / f"{sweep.sweep_id}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(plain(sweep), indent=1))
    except OSError as error:
        why = error.strerror or str(error)
        raise RvError(ErrorKind.STAGE, f"cannot keep the sweep: {why}, on {path}") from error


def load(name: str, cluster: str) -> Sweep:
    """Find a sweep of this cluster by its id or the beginning of one; `last` is the latest.

    Raises `RvError(USAGE)` for none, `RvError(CONFIG)` for a file that is broken.
    """
    for path in _files("" if name == "last" else name):
        sweep = _read(path)
        if sweep.cluster == cluster:
            return sweep
    raise RvError(
        ErrorKind.USAGE, f"no sweep {name!r} of this cluster", hint="rv accept sweep begins one"
    )


def _files(beginning: str) -> list[Path]:
    """List the files of the sweeps whose id begins so, the newest first."""
    paths = _folder().glob("*.json")
    named = [path for path in paths if path.name.startswith(beginning)]
    return sorted(named, key=lambda path: -path.stat().st_mtime)


def _read(path: Path) -> Sweep:
    try:
        return build(Sweep, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise RvError(ErrorKind.CONFIG, f"{path} cannot be read: {error}") from error


def _folder() -> Path:
    return acceptance_dir() / "sweeps"


def find_run(name: str) -> Run:
    """Find a run by its race, `last`, or the path of results; a sweep's by the sweep's id.

    Raises `RvError(USAGE)` for what is none of these.
    """
    if not name.startswith("sweep-"):
        return load_run(name)
    paths = _files(name)
    if len(paths) != 1:
        problem = "fits several sweeps" if paths else "is no sweep here"
        raise RvError(ErrorKind.USAGE, f"{name!r} {problem}", hint="rv accept sweep begins one")
    return results_of(_read(paths[0]))


def results_of(sweep: Sweep, label: str = "") -> Run:
    """Put a sweep's results together as one run; a node without any is an ERROR."""
    record = RunRecord(
        race_id=sweep.sweep_id,
        cluster=sweep.cluster,
        label=label,
        profile=sweep.profile,
        payloads=sweep.payloads,
        submitted_at=sweep.begun_at,
        nodes=tuple(node.node for node in sweep.nodes),
    )
    results = itertools.chain.from_iterable(_results_of(node) for node in sweep.nodes)
    return Run(record=record, results=tuple(results))


def _results_of(node: NodeState) -> Sequence[RunResult]:
    why = node.why
    if node.race and node.stage is Stage.OVER:
        try:
            if results := load_run(node.race).results:
                return results
        except RvError as error:
            why = error.message
    return [_no_result(node, why)]


def _no_result(node: NodeState, why: str) -> RunResult:
    reason = f"no result reported: {why or 'its job ended without one'}"
    test = TestResult(
        name="sweep", status=Status.ERROR, code="no_result", reason=reason, host=node.node
    )
    return RunResult(test_type="sweep", status=Status.ERROR, hostname=node.node, tests=(test,))
