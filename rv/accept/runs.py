"""Runs and sweeps of acceptance, as the files that keep them have them."""

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum

from rv.accept.origin import Origin
from rv.accept.pairs import names_of
from rv.accept.results import Jobs, JobTimes, RunResult
from rv.avoided_nodes import DAYS
from rv.dataclass import dataclass
from rv.models.request import Request


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord(Origin):
    """What a run was of: the race, and the job that won it.

    `race_id` names the run. Times are seconds since the epoch. `cluster` is the cluster's key, as
    races have it, `asked` the GPUs ("4 x a100"), `gpu` the model that the strategy promised.
    `over_at` is when the job's results were first fetched, 0 in records of an older rv.
    """

    race_id: str
    cluster: str
    label: str = ""
    profile: str = ""
    asked: str = ""
    gpu: str = ""
    payloads: tuple[str, ...] = ()
    submitted_at: float = 0.0
    fetched_at: float = 0.0
    over_at: float = 0.0

    @property
    def began_at(self) -> float:
        """When the job began: its node's clock says it, between two times of this machine's."""
        latest = min(self.started_at, self.times.over_at or self.started_at)
        return max(self.submitted_at, latest)

    @property
    def times(self) -> JobTimes:
        """The times of the job that this machine's clock has."""
        return JobTimes(submitted_at=self.submitted_at, over_at=self.over_at or self.fetched_at)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run with everything that was to report. `faults` names files that could not be read.

    `logs` has the end of what was printed on each node, printable lines, by the node's name, `jobs`
    the times of each job, by its id.
    """

    record: RunRecord
    results: tuple[RunResult, ...]
    faults: tuple[str, ...] = ()
    logs: Mapping[str, str] = field(default_factory=dict)
    jobs: Jobs = field(default_factory=dict)


class Stage(StrEnum):
    """How far a node is: to be submitted, in the queue, over, or not to be had at all."""

    WAITING = "waiting"
    SENT = "sent"
    OVER = "over"
    LEFT_OUT = "left out"


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeState:
    """One node of a sweep, or a pair ("a1,a2"): its race, where one was begun, and why it has none.

    `leaves` are the switches that its nodes are on, "" for one that nobody knows.
    """

    node: str
    stage: Stage = Stage.WAITING
    race: str = ""
    why: str = ""
    leaves: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """A sweep as its file has it. `begun_at` is seconds since the epoch.

    `base` is the request that each node's job is made of, `environment` its variables and `workdir`
    its folder, as the sweep was begun with; in files of an older rv there is none of them.
    """

    sweep_id: str
    cluster: str
    profile: str
    payloads: tuple[str, ...]
    begun_at: float
    nodes: tuple[NodeState, ...] = ()
    is_of_pairs: bool = False
    faults: tuple[str, ...] = ()
    max_jobs: int = 200
    avoid_days: int = DAYS
    base: Request | None = None
    environment: tuple[tuple[str, str], ...] = ()
    workdir: str = ""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a pair that is not of two nodes, or a node that is a pair.

        A node that is left out of the pairs, as no other is like it, has a state of its own.
        """
        for state in self.nodes:
            is_alone = not self.is_of_pairs or state.stage is Stage.LEFT_OUT
            ends = len(names_of(state.node))
            if not ((ends == 1 and is_alone) or (ends == 2 and self.is_of_pairs)):
                kind = "pair" if self.is_of_pairs else "node"
                raise ValueError(f"{state.node!r:.80} is no {kind}")

    @property
    def jobs(self) -> int:
        """How many nodes or pairs are to have a job."""
        ends = 2 if self.is_of_pairs else 1
        return sum(len(names_of(state.node)) == ends for state in self.nodes)

    @property
    def leaves(self) -> dict[str, str]:
        """The switch of each node that has one."""
        ends = (zip(names_of(state.node), state.leaves, strict=False) for state in self.nodes)
        return {name: leaf for each in ends for name, leaf in each if leaf}

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
