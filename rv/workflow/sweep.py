"""Runs a sweep: one job a node, so many at once, until every node has reported or cannot.

What is known is written down after each step, so that a sweep that was cut off goes on from there.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from rv.accept.sweeps import NodeState, Stage, Sweep, next_nodes, save
from rv.errors import ErrorKind, RvError
from rv.models.race import RaceStatus, StateFiles
from rv.models.request import Request
from rv.models.site import Site
from rv.models.snapshot import Snapshot
from rv.race.directory import load_race, load_state_files
from rv.race.watch import Sink
from rv.workflow import launch as flow
from rv.workflow.cluster import Cluster
from rv.workflow.races import list_races, stop_races

_LOOK_S: Final = 2.0
_LONGEST_LOOK_S: Final = 20.0


@dataclass(frozen=True, kw_only=True)
class Sweeper:
    """What a sweep needs: where, with what, and who is told.

    `request_of` makes a node's request; `over` is called with every race that has ended.
    """

    target: Cluster
    snapshot: Snapshot
    workdir: str
    environment: Mapping[str, str]
    site: Site
    sink: Sink
    request_of: Callable[[str], Request]
    over: Callable[[str, RaceStatus], None]
    say: Callable[[str], None]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    max_jobs: int
    patience: timedelta | None = None

    def run(self, sweep: Sweep) -> Sweep:
        """Sweep until all nodes are over."""
        sweep = self._resumed(sweep)
        pause = _LOOK_S
        while not sweep.is_over:
            sweep = self._submit(sweep)
            before = len(sweep.at(Stage.OVER))
            sweep = self._look(sweep)
            if sweep.is_over:
                break
            moved = len(sweep.at(Stage.OVER)) > before
            pause = _LOOK_S if moved else min(pause * 1.5, _LONGEST_LOOK_S)
            self.sleep(pause)
        return sweep

    def _resumed(self, sweep: Sweep) -> Sweep:
        """Of one that was cut off: a node whose race was staged, and never sent, still waits."""
        for node in sweep.at(Stage.SENT):
            directory = self._directory(node.race)
            race = load_race(directory, self.target.transport)
            files = load_state_files(race, self.target.transport) if race else StateFiles()
            if not (files.sent or files.job_ids or files.refused):
                self.target.transport.remove(directory)
                sweep = sweep.with_node(replace(node, stage=Stage.WAITING, race=""))
        return sweep

    def _directory(self, race: str) -> str:
        return f"{self.target.race_root}/{race}"

    def _submit(self, sweep: Sweep) -> Sweep:
        """Send the next nodes' jobs; where a limit is full, wait for those in the queue."""
        for node in next_nodes(sweep, self.max_jobs):
            sweep = self._send(sweep, node)
            if node in sweep.at(Stage.WAITING):
                break
        return sweep

    def _send(self, sweep: Sweep, node: NodeState) -> Sweep:
        """Send one node's job; its race is written down first, so that it is found in any case."""
        try:
            made = self._prepare(node.node)
        except RvError as error:
            return self._not_sent(sweep, node, error.message)
        before = sweep.at(Stage.SENT)
        race = made.facts.race_id
        sweep = sweep.with_node(replace(node, stage=Stage.SENT, race=race))
        save(sweep)
        try:
            flow.start(made, self.target, self.sink, detached=True)
        except RvError as error:
            if error.kind is not ErrorKind.LIMIT or not before:
                return self._not_sent(sweep, node, error.message)
            self.target.transport.remove(self._directory(race))  # Slurm took none of its jobs
            return self._not_sent(sweep, node, "")
        return sweep

    def _not_sent(self, sweep: Sweep, node: NodeState, why: str) -> Sweep:
        """Write down that a node has no race: for now, or, with a reason, for good."""
        if why:
            self.say(f"{node.node}: not run: {why}")
        changed = replace(node, stage=Stage.LEFT_OUT if why else Stage.WAITING, race="", why=why)
        sweep = sweep.with_node(changed)
        save(sweep)
        return sweep

    def _prepare(self, node: str) -> flow.Launch:
        """Plan one node's job on the sweep's own snapshot: one probe is enough for all."""
        answer: Future[Snapshot] = Future()
        answer.set_result(self.snapshot)
        seen = replace(self.target, answer=answer)
        request = self.request_of(node)
        return flow.prepare(request, seen, self.workdir, self.environment, self.clock(), self.site)

    def _look(self, sweep: Sweep) -> Sweep:
        """See what has ended, with one question for all races."""
        sent = {node.race: node for node in sweep.at(Stage.SENT)}
        if not sent:
            return sweep
        races = {status.race.race_id: status for status in list_races(self.target, self.clock())}
        for race_id, node in sent.items():
            status = races.get(race_id)
            changed = self._seen(node, status)
            if changed is not node:
                sweep = sweep.with_node(changed)
                save(sweep)
        return sweep

    def _seen(self, node: NodeState, status: RaceStatus | None) -> NodeState:
        if status is None:
            return replace(node, stage=Stage.LEFT_OUT, why="its race is gone")
        if status.state.is_over:
            self.over(node.node, status)
            return replace(node, stage=Stage.OVER, why=status.why)
        waited = self.clock() - status.race.submitted_at
        if self.patience and not status.claim and waited > self.patience.total_seconds():
            stop_races([status.race], self.target)
            why = f"did not start: {status.why or 'no reason is known'}"
            self.say(f"{node.node}: {why}")
            return replace(node, stage=Stage.LEFT_OUT, why=why)
        return node
