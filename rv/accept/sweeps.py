"""A sweep over nodes: which nodes, what became of each so far, and the file that knows it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from rv.accept.folders import data_folder
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
    nodes: tuple[NodeState, ...] = field(default_factory=tuple)

    def at(self, stage: Stage) -> tuple[NodeState, ...]:
        """The nodes that are so far."""
        return tuple(node for node in self.nodes if node.stage is stage)

    def with_node(self, changed: NodeState) -> "Sweep":
        """The sweep with one node's new state."""
        nodes = (changed if node.node == changed.node else node for node in self.nodes)
        return replace(self, nodes=tuple(nodes))

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
    nodes = {node.name: node for node in every}
    unknown = [name for name in names if name not in nodes]
    if unknown:
        raise RvError(
            ErrorKind.USAGE, f"there is no node {unknown[0]!r}", hint="sinfo -N lists them"
        )
    chosen = [nodes[name] for name in dict.fromkeys(names)] or list(nodes.values())
    if partitions:
        members = {name for of in partitions.values() for name in of}
        chosen = [node for node in chosen if node.name in members]
    wanted = {state.upper() for state in states}
    if wanted:
        chosen = [node for node in chosen if wanted & node.states]
    if not names:
        chosen = [node for node in chosen if node.gpus]
    if not chosen:
        raise RvError(
            ErrorKind.INFEASIBLE, "no node is to be swept", hint="sinfo -N shows their states"
        )
    return tuple(chosen)


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


def load(word: str, cluster: str) -> Sweep:
    """Find a sweep of this cluster by its id or the beginning of one; `last` is the latest.

    Raises `RvError(USAGE)` for none, `RvError(CONFIG)` for a file that is broken.
    """
    paths = sorted(_folder().glob("*.json"), key=lambda path: -path.stat().st_mtime)
    for path in paths:
        if word != "last" and not path.stem.startswith(word):
            continue
        found = _read(path)
        if found.cluster == cluster:
            return found
    raise RvError(
        ErrorKind.USAGE, f"no sweep {word!r} of this cluster", hint="rv accept sweep begins one"
    )


def any_cluster(sweep_id: str) -> Sweep:
    """Find a sweep by its id alone. Raises `RvError(USAGE)` where there is none."""
    paths = [path for path in _folder().glob("*.json") if path.stem.startswith(sweep_id)]
    if len(paths) != 1:
        what = "fits several sweeps" if paths else "is no sweep here"
        raise RvError(ErrorKind.USAGE, f"{sweep_id!r} {what}", hint="rv accept sweep begins one")
    return _read(paths[0])


def _read(path: Path) -> Sweep:
    try:
        return build(Sweep, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise RvError(ErrorKind.CONFIG, f"{path} cannot be read: {error}") from error


def _folder() -> Path:
    return data_folder() / "sweeps"
