"""Sweep nodes: one exclusive job on each, so many at once, until each has reported or cannot.

Over pairs of nodes each job is on two of them, and no node is in two jobs at a time.
The state is written after each step (`rv.accept.store`), so that a sweep that was cut off
goes on from there.
"""

import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rv.accept.kept_files import held
from rv.accept.pairs import names_of, schedule
from rv.accept.payload_command import (
    Profile,
    command,
    refuse_faults_of_pairs,
    require_nodes_of_faults,
)
from rv.accept.run import Conclusion, conclude, fetch
from rv.accept.runs import NodeState, Stage, Sweep
from rv.accept.store import is_kept, is_whole, load_sweep, results_of, save_sweep
from rv.avoided_nodes import DAYS
from rv.bundle import acceptance_dir
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.race import RaceStatus, StateFiles
from rv.models.request import NodeLimit, Pins, Request
from rv.models.site import Site
from rv.models.snapshot import Node, Snapshot
from rv.payloads.contract.catalogue import NODE, PAYLOADS, PayloadSpec
from rv.race.directory import load_race, load_state_files
from rv.race.watch import Sink
from rv.slurm import topology
from rv.workflow.cluster import Cluster
from rv.workflow.launch import Launch, prepare
from rv.workflow.races import list_races, stop_races
from rv.workflow.start import start

_FIRST_PAUSE_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepOptions:
    """What to run on which nodes; `max_jobs` are in the queue at once.

    `base` is the request that each node's is made of, `environment` are the variables of its job,
    and `workdir` is the folder that it runs in.
    `nodes`, `partitions` and `states` choose nodes, none of them all that have GPUs. A node that
    fails is avoided for `avoid_days`. `faults` are injected into every payload. `by_pairs`: all
    pairs of the nodes in place of each.
    """

    payloads: Sequence[PayloadSpec]
    profile: Profile
    base: Request
    environment: Mapping[str, str]
    workdir: str
    nodes: Sequence[str] = ()
    partitions: Sequence[str] = ()
    states: Sequence[str] = ()
    max_jobs: int = 200
    avoid_days: int = DAYS
    faults: Sequence[str] = ()
    by_pairs: bool = False


_UNLIKE: Final = "not run: no other of these nodes has as many GPUs of the same model"


def begin(options: SweepOptions, cluster: Cluster, snapshot: Snapshot) -> Sweep:
    """Choose the nodes of a new sweep and keep its state.

    Raises `RvError(USAGE)` for a name that is no node or partition, or a fault that no job shows;
    `RvError(INFEASIBLE)` where none is left. Of pairs, see `pairs.schedule`.
    """
    partitions = _members(snapshot, options.partitions)
    nodes = choose_nodes(snapshot.nodes, options.nodes, partitions, options.states)
    if options.by_pairs:
        require_nodes_of_faults(options.faults, [node.name for node in nodes])
    else:
        refuse_faults_of_pairs(options.faults)
    sweep = Sweep(
        sweep_id=f"sweep-{secrets.token_hex(4)}",
        cluster=cluster.key,
        profile=options.profile,
        payloads=tuple(payload.name for payload in options.payloads),
        begun_at=time.time(),
        nodes=tuple(_states(nodes, options, cluster)),
        is_of_pairs=options.by_pairs,
        faults=tuple(options.faults),
        max_jobs=options.max_jobs,
        avoid_days=options.avoid_days,
        base=options.base,
        environment=tuple(options.environment.items()),
        workdir=options.workdir,
    )
    save_sweep(sweep)
    return sweep


def _members(snapshot: Snapshot, names: Iterable[str]) -> dict[str, Sequence[str]]:
    """Give the nodes of each partition. Raises `RvError(USAGE)` for a name that is none."""
    members = {partition.name: partition.nodes for partition in snapshot.partitions}
    for name in names:
        if name not in members:
            hint = f"one of: {', '.join(members)}"
            raise RvError(ErrorKind.USAGE, f"there is no partition {name!r}", hint=hint)
    return {name: members[name] for name in names}


def _states(nodes: Sequence[Node], options: SweepOptions, cluster: Cluster) -> Iterator[NodeState]:
    """Give what is to be run: each node, or each pair with the switches that its nodes are on."""
    if not options.by_pairs:
        yield from (NodeState(node=node.name) for node in nodes)
        return
    pairs = schedule(nodes)
    leaves = topology.parse_show_topology(
        cluster.transport.run(topology.SCRIPT, timeout_s=30).stdout
    )
    for pair in pairs:
        yield NodeState(node=",".join(pair), leaves=tuple(leaves.get(end, "") for end in pair))
    paired = set(itertools.chain.from_iterable(pairs))
    for name in options.nodes:  # who named it would take its silence for a pass
        if name not in paired:
            yield NodeState(node=name, stage=Stage.LEFT_OUT, why=_UNLIKE)


def as_begun(sweep: Sweep) -> SweepOptions:
    """Give the options of a sweep that goes on: the other nodes are run as the first ones were.

    Raises `RvError(USAGE)` for a sweep of an older rv, which did not keep them.
    """
    if sweep.base is None or sweep.profile not in tuple(Profile):
        problem = f"{sweep.sweep_id} was begun by another rv, which did not keep its options"
        hint = "rv accept sweep begins one; rv accept export shows what this one has"
        raise RvError(ErrorKind.USAGE, problem, hint=hint)
    return SweepOptions(
        payloads=[payload for payload in PAYLOADS if payload.name in sweep.payloads],
        profile=Profile(sweep.profile),
        base=sweep.base,
        environment=dict(sweep.environment),
        workdir=sweep.workdir,
        max_jobs=sweep.max_jobs,
        avoid_days=sweep.avoid_days,
        faults=sweep.faults,
        by_pairs=sweep.is_of_pairs,
    )


def _with_lost(sweep: Sweep) -> Sweep:
    """Have the results fetched again of nodes whose run, or any file of it, cannot be read here."""
    for node in sweep.at(Stage.OVER):
        if not is_whole(node.race):
            sweep = sweep.with_node(replace(node, stage=Stage.SENT))
    return sweep


@dataclass(frozen=True, kw_only=True)
class Sweeper:
    """Runs the jobs of a sweep: `sink` hears of submissions, `say` of nodes that are left out."""

    options: SweepOptions
    cluster: Cluster
    snapshot: Snapshot
    site: Site
    sink: Sink
    say: Callable[[str], None]

    def conclude(self, sweep: Sweep) -> Conclusion:
        """Sweep the nodes that are left, then judge the results of all against each other."""
        run = results_of(self.run(sweep), self.cluster.label)
        return conclude(run, time.time(), self.options.avoid_days)

    def run(self, sweep: Sweep) -> Sweep:
        """Sweep until every node is over or left out.

        Raises `RvError(USAGE)` where another process runs this sweep.
        """
        lock = acceptance_dir() / "sweeps" / f"{sweep.sweep_id}.lock"
        with held(lock, f"sweep {sweep.sweep_id}"):
            return self._run(load_sweep(sweep.sweep_id, sweep.cluster))

    def _run(self, sweep: Sweep) -> Sweep:
        sweep = _with_lost(self._recover_unsent(sweep))
        sweep = self._observe(self._submit(sweep))
        pause_s = _FIRST_PAUSE_S
        while not sweep.is_over:
            time.sleep(pause_s)
            over_before = len(sweep.at(Stage.OVER))
            sweep = self._observe(self._submit(sweep))
            has_moved = len(sweep.at(Stage.OVER)) > over_before
            pause_s = _FIRST_PAUSE_S if has_moved else min(pause_s * 1.5, _LONGEST_PAUSE_S)
        return sweep

    def _recover_unsent(self, sweep: Sweep) -> Sweep:
        """Let a node wait again whose race was staged and never sent."""
        for node in sweep.at(Stage.SENT):
            directory = f"{self.cluster.race_root}/{node.race}"
            race = load_race(directory, self.cluster.transport)
            files = load_state_files(race, self.cluster.transport) if race else StateFiles()
            if not (files.sent or files.job_ids or files.refused):
                self.cluster.transport.remove(directory)
                sweep = sweep.with_node(replace(node, stage=Stage.WAITING, race=""))
        return sweep

    def _submit(self, sweep: Sweep) -> Sweep:
        """Send the next nodes' jobs; where a limit is full, wait for those in the queue."""
        for node in next_nodes(sweep, self.options.max_jobs):
            sweep = self._send(sweep, node)
            if node in sweep.at(Stage.WAITING):
                break
        return sweep

    def _send(self, sweep: Sweep, node: NodeState) -> Sweep:
        """Send one node's job; its race is written first, so that it is found in any case."""
        try:
            launch = self._prepare(node.node)
        except RvError as error:
            return self._leave_out(sweep, node, error.message)
        has_sent = bool(sweep.at(Stage.SENT))
        race = launch.script.race_id
        sweep = _keep(sweep, replace(node, stage=Stage.SENT, race=race))
        try:
            start(launch, self.cluster, self.sink, detached=True)
        except RvError as error:
            if error.kind is not ErrorKind.LIMIT or not has_sent:
                return self._leave_out(sweep, node, error.message)
            # Slurm took none of its jobs.
            self.cluster.transport.remove(f"{self.cluster.race_root}/{race}")
            return _keep(sweep, replace(node, stage=Stage.WAITING, race=""))
        return sweep

    def _prepare(self, node: str) -> Launch:
        """Plan one node's job on the sweep's own snapshot: one probe is enough for all."""
        cluster = replace(self.cluster, answer=lambda: self.snapshot)
        request, how = self._request(node), self.options
        return prepare(request, cluster, how.workdir, how.environment, time.time(), self.site)

    def _request(self, name: str) -> Request:
        """Ask for the whole of one node, or two, as soon as it can be had; of MIG for one slice."""
        nodes, is_mig = self._nodes(name)
        base = self.options.base
        gpus, sbatch = base.gpus, [*base.sbatch, ("nodelist", name)]
        if is_mig:
            gpus = 1
        elif nodes:
            gpus = sum(max((group.total for group in node.gpus), default=0) for node in nodes)
        if not is_mig:
            sbatch.append(("exclusive", ""))
        options, names = self.options, names_of(name)
        tests = command(self._payloads(name), options.profile, options.faults)
        if len(names) > 1:
            pins = Pins(nodes=len(names), processes_per_node=gpus // len(names))
            tests = replace(tests, pins=pins)
        return replace(
            base,
            gpus=gpus,
            mig=is_mig,
            only_nodes=names,
            node_limit=NodeLimit.MULTI if len(names) > 1 else base.node_limit,
            max_submissions=1,
            command=tests,
            sbatch=tuple(sbatch),
            wait_timeout=None,
        )

    def _payloads(self, name: str) -> Sequence[PayloadSpec]:
        """Give what a node can run: MIG slices cannot talk to each other, so nothing collective."""
        _, is_mig = self._nodes(name)
        return [p for p in self.options.payloads if p.starts == NODE or not is_mig]

    def _nodes(self, name: str) -> tuple[list[Node], bool]:
        """Find the nodes of a job, and say whether one has MIG slices alone."""
        names = names_of(name)
        nodes = [node for node in self.snapshot.nodes if node.name in names]
        return nodes, any(map(is_mig, nodes))

    def _leave_out(self, sweep: Sweep, node: NodeState, why: str) -> Sweep:
        """Write down why a node has no job."""
        self.say(f"{node.node}: not run: {why}")
        return _keep(sweep, replace(node, stage=Stage.LEFT_OUT, race="", why=why))

    def _observe(self, sweep: Sweep) -> Sweep:
        """See what has ended, with one question for all races."""
        races = {status.race.race_id: status for status in list_races(self.cluster, time.time())}
        for node in sweep.at(Stage.SENT):
            changed = self._state_now(node, races.get(node.race))
            if changed is not node:
                sweep = _keep(sweep, changed)
                left = len(sweep.at(Stage.SENT)) + len(sweep.at(Stage.WAITING))
                self.say(f"{node.node}: {changed.stage}; {left} of {sweep.jobs} to go")
        return sweep

    def _state_now(self, node: NodeState, status: RaceStatus | None) -> NodeState:
        if status is None:
            stage = Stage.OVER if is_kept(node.race) else Stage.LEFT_OUT
            return replace(node, stage=stage, why="its race directory was deleted")
        if status.state.is_over:
            fetch(status, self._payloads(node.node), self.options.profile, self.cluster)
            return replace(node, stage=Stage.OVER, why=status.why)
        waited_s = time.time() - status.race.submitted_at
        patience = self.options.base.wait_timeout
        if patience and not status.claim and waited_s > patience.total_seconds():
            stop_races([status.race], self.cluster)
            why = f"did not start: {status.why or 'no reason is known'}"
            self.say(f"{node.node}: {why}")
            return replace(node, stage=Stage.LEFT_OUT, why=why)
        return node


def _keep(sweep: Sweep, node: NodeState) -> Sweep:
    """Write a node's new state."""
    sweep = sweep.with_node(node)
    save_sweep(sweep)
    return sweep


def next_nodes(sweep: Sweep, max_jobs: int) -> tuple[NodeState, ...]:
    """The nodes to submit now: as many as have room beside those in the queue.

    Of pairs, those whose nodes are in no other job.
    """
    sent = sweep.at(Stage.SENT)
    busy = {name for state in sent for name in names_of(state.node)}
    chosen = list[NodeState]()
    for state in sweep.at(Stage.WAITING):
        names = set(names_of(state.node))
        if len(sent) + len(chosen) < max_jobs and not names & busy:
            chosen.append(state)
            busy |= names
    return tuple(chosen)


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
