"""An acceptance run whose race has ended: fetch its results, keep them, judge them, remember."""

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rv import avoided_nodes
from rv.accept.bad_nodes import bad_nodes, cleared, is_of_hardware, still_accused
from rv.accept.baselines import Baselines, baselines_for
from rv.accept.collect import result_patterns
from rv.accept.history import History, history
from rv.accept.judge import Judge, Others, Past
from rv.accept.kept_records import records
from rv.accept.measurements import (
    CONTENDED,
    FAULTY,
    RETIRED,
    SOUND,
    Measurement,
    measurements,
    node_of,
)
from rv.accept.remarks import Gpu, gpu_key, is_of_shared, seen_shared, shared_gpus
from rv.accept.results import RunResult, Status
from rv.accept.runs import Run, RunRecord
from rv.accept.store import find_run, load_kept, save
from rv.accept.trends import Comparison, compare
from rv.avoided_nodes import AvoidedNode
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.race import Race, RaceStatus
from rv.payloads.contract.catalogue import PAYLOADS, PayloadSpec
from rv.race.output import log_sizes
from rv.slurm.hostlist import expand
from rv.workflow.cluster import Cluster

_LOG_BYTES: Final = 256 * 1024
"""What is kept of each node's log: its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conclusion:
    """A run judged; `avoided` are the nodes found bad, `notes` what changed, in sentences."""

    run: Run
    avoided: tuple[AvoidedNode, ...]
    notes: tuple[str, ...]


def conclude(fetched: Run, now_s: float, avoid_days: int = avoided_nodes.DAYS) -> Conclusion:
    """Judge a run, add it to the history, and write down which nodes to avoid from now on.

    What was judged bad is kept too, and marked: it is no reference for later runs. Where the
    history cannot be used, the run is judged without it, and no node is good again for it.
    Raises `RvError(CONFIG)` for a file of baselines that is broken.
    """
    cluster = fetched.record.cluster
    repairs = avoided_nodes.repairs(cluster, now_s)
    run, lost = _remembering(fetched, repairs)
    bad = bad_nodes(run.results, run.record.race_id, now_s, avoid_days, repairs, run.jobs)
    bad = _without_passed(bad, cluster, now_s, _judged_alone if lost else judged)
    recovered = () if lost else _recovered(run, now_s)
    notes = [lost] if lost else []
    notes += _written_down(run.record, bad, recovered, now_s)
    avoided = tuple(entry for entry in bad if entry.until > now_s)
    return Conclusion(run=run, avoided=avoided, notes=tuple(notes))


def _written_down(
    record: RunRecord, bad: Sequence[AvoidedNode], recovered: Sequence[AvoidedNode], now_s: float
) -> list[str]:
    """Write down which nodes are bad, and which good again; give what is to be said of it."""
    if not (bad or recovered):
        return []
    problem = avoided_nodes.problem_of(record.cluster)
    damaged = [f"{problem}; it is kept as .broken, and replaced"] if problem else []
    try:
        avoided_nodes.update(record.cluster, bad, recovered, now_s)
    except RvError as error:  # a verdict is worth more
        names = ", ".join(entry.node for entry in (*bad, *recovered))
        return [f"{error.message}; nothing is remembered of {names}: {_how_again(record)}"]
    told = damaged + [f"{entry.node} {entry.reason}" for entry in bad if entry.until > now_s]
    return told + [f"{entry.node} is good again, and no longer avoided" for entry in recovered]


def _recovered(run: Run, now_s: float) -> tuple[AvoidedNode, ...]:
    """Give the avoided nodes that a judged run found good again."""
    before = avoided_nodes.load(run.record.cluster, now_s)
    good = cleared(run.results) - still_accused(before, run.results, run.jobs)
    return tuple(entry for entry in before if entry.node in good)


def _remembering(fetched: Run, repairs: Mapping[str, float]) -> tuple[Run, str]:
    """Judge a run and add it to the history; where that cannot be used, judge it all the same.

    Gives what is to be said of that too, "" for nothing.
    """
    again, kept = _how_again(fetched.record), history()
    try:
        baselines = baselines_for(fetched.record.cluster)
    except RvError as error:
        raise RvError(
            error.kind, error.message, hint=f"{error.hint or 'mend it'}; {again}"
        ) from error
    try:
        run = _judged_by(fetched, baselines, kept)
    except RvError as error:
        run = _judged_by(fetched, baselines, None)
        return run, f"judged without the history, and not added to it: {error.message}; {again}"
    try:
        kept.add(remembered(run, repairs))
    except RvError as error:
        return run, f"not added to the history: {error.message}; {again}"
    return run, ""


def _how_again(record: RunRecord) -> str:
    """Say how a run that could not be judged or remembered as it should is judged again."""
    kind = "sweep" if record.race_id.startswith("sweep-") else "run"
    command = f"rv accept {kind} --resume {record.race_id}"
    return f"{command}, once that is mended, judges it again"


def _without_passed(
    bad: Sequence[AvoidedNode], cluster: str, now_s: float, judge: Callable[[Run], Run]
) -> tuple[AvoidedNode, ...]:
    """Leave out the nodes of which a newer run that is kept here answers all.

    One of the future was kept when a clock was ahead, or this one is behind: it answers nothing.
    """
    kept = [r for r in records() if r.cluster == cluster and r.submitted_at <= now_s] if bad else ()
    return tuple(entry for entry in bad if not _has_passed_since(entry, kept, judge))


def _has_passed_since(
    entry: AvoidedNode, kept: Sequence[RunRecord], judge: Callable[[Run], Run]
) -> bool:
    """Whether a newer run of those kept here answers all that a node is accused of."""
    for record in kept:
        is_newer = record.submitted_at >= (entry.over_at or entry.since)
        if is_newer and entry.node in record.nodes:
            run = judge(load_kept(record.race_id))
            if entry.node in cleared(run.results) - still_accused([entry], run.results, run.jobs):
                return True
    return False


def fetch(
    status: RaceStatus, payloads: Sequence[PayloadSpec], profile: str, cluster: Cluster
) -> Run:
    """Bring a race's results to this machine and keep them."""
    names = tuple(payload.name for payload in payloads)
    record = _record_of(status, names, profile, cluster.label)
    patterns = result_patterns(names, len(record.nodes))
    files = cluster.transport.read_tree(f"{status.race.directory}/results", patterns)
    return save(record, files, _log_ends(status.race, cluster))


def _log_ends(race: Race, cluster: Cluster) -> dict[str, bytes]:
    """Read the end of what each node printed; a log that nobody gives is no fault of the run."""
    try:
        sizes = log_sizes(race, cluster.transport)
        starts = {name: max(0, size - _LOG_BYTES) for name, size in sizes.items()}
        read = cluster.transport.read_new(
            race.directory, ["output/node[0-9]*.out"], starts, _LOG_BYTES
        )
    except RvError:
        return {}
    return {name.rpartition("/")[2]: data for name, data in read.items()}


def _planned(payloads: Collection[str]) -> tuple[str, ...]:
    """Return what the results of these payloads will hold: `PAYLOAD TEST` of each test."""
    specs = [payload for payload in PAYLOADS if payload.name in payloads]
    return tuple(f"{spec.name} {test}" for spec in specs for test in spec.results.split())


def _record_of(
    status: RaceStatus, payloads: tuple[str, ...], profile: str, label: str
) -> RunRecord:
    """Describe a race for whoever reads its results later."""
    race, claim = status.race, status.claim
    record = RunRecord(
        race_id=race.race_id,
        cluster=race.cluster,
        label=label,
        profile=profile,
        payloads=payloads,
        planned=_planned(payloads),
        submitted_at=race.submitted_at,
        fetched_at=time.time(),
        nodes=race.request.only_nodes if race.request else (),
        state=str(status.state),
        ended=f"the race {status.state}" + (f": {status.why}" if status.why else ""),
    )
    if claim is None:
        return record
    if winner := race.winner(claim):
        asked = f"{winner.gpus} x {winner.gpu or 'no GPU'}"
        record = replace(record, asked=asked, gpu=winner.gpu, gpus=winner.gpus)
    return replace(
        record,
        job_id=claim.job_id,
        restart=claim.restart,
        nodes=expand(claim.nodes),
        started_at=claim.started_at,
    )


def judged(run: Run) -> Run:
    """Judge a run by the baselines and the history of this machine.

    Raises `RvError(CONFIG)` for a file of baselines or a history that is broken.
    """
    return _judged_by(run, baselines_for(run.record.cluster), history())


def _judged_alone(run: Run) -> Run:
    """Judge a run without the history."""
    return _judged_by(run, baselines_for(run.record.cluster), None)


def _judged_by(run: Run, baselines: Baselines, kept: History | None) -> Run:
    record = run.record
    judge = Judge(
        baselines=baselines,
        past=earlier(kept, record.race_id) if kept else _nothing,
        others=others(kept, record.race_id) if kept else _nothing,
        run=record.race_id,
        cluster=record.cluster,
        time_s=record.began_at,
    )
    return replace(run, results=judge.judge(run.results))


def _nothing(_: Measurement) -> Sequence[Measurement]:
    """No other run is known."""
    return ()


def measured_of(run: Run) -> Sequence[Measurement]:
    """Give every number of a run whose payload neither failed nor injected a fault."""
    record = run.record
    time_s = record.began_at
    return [
        measured
        for result in run.results
        if result.status in (Status.PASS, Status.WARN) and "--inject" not in result.argv
        for measured in measurements(result, record.race_id, record.cluster, time_s)
    ]


def remembered(run: Run, repairs: Mapping[str, float] | None = None) -> Sequence[Measurement]:
    """Give every number of a judged run, each with what it counts for in later runs.

    Numbers of a device that others used in the run are contended, those of one that failed any test
    of it faulty, or retired where its node was repaired since. What was measured beside a fault on
    order is left out.
    """
    record = run.record
    seen, bad = seen_shared(run.results), _faulty_devices(run.results)
    time_s = record.began_at
    kept = list[Measurement]()
    for result in run.results:
        if "--inject" in result.argv:
            continue
        shared = shared_gpus(result, seen)
        for measured in measurements(result, record.race_id, record.cluster, time_s):
            standing = _standing(measured, result, shared, bad)
            kept.append(_retired(replace(measured, standing=standing), repairs or {}))
    return kept


def _retired(measured: Measurement, repairs: Mapping[str, float]) -> Measurement:
    """Let what was judged bad count for nothing where its node was repaired since."""
    is_past = measured.time <= repairs.get(measured.node, 0.0)
    if is_past and measured.standing != SOUND:
        return replace(measured, standing=RETIRED)
    return measured


def _standing(
    measured: Measurement,
    result: RunResult,
    shared: Collection[Gpu],
    bad: Collection[tuple[str, str]],
) -> str:
    """Say what a number counts for in later runs, by what became of its device in the run."""
    device, whole_node = (measured.node, measured.device), (measured.node, "")
    gpu = gpu_key(measured.node, measured.device, measured.gpu_uuid)
    if gpu in shared or (not measured.device and is_of_shared(result, shared)):
        return CONTENDED
    is_bad = device in bad or whole_node in bad
    return FAULTY if is_bad and measured.standing == SOUND else measured.standing


def _faulty_devices(results: Sequence[RunResult]) -> set[tuple[str, str]]:
    """Give the devices, by node, whose hardware failed, or whose result is not to be trusted.

    A device that the test does not name is "".
    """
    return {
        (node_of(test, result), test.device)
        for result in results
        for test in result.tests
        if is_of_hardware(test) or test.code == "result_invalid"
    }


def compare_runs(before: str, after: str) -> Comparison:
    """Compare two runs, each named as `find_run` takes it: their numbers, and their verdicts.

    Numbers count where the payload did not fail, verdicts as the run was judged.
    Raises `RvError(USAGE)` for runs of two clusters.
    """
    first, second = find_run(before), find_run(after)
    require_one_cluster([first, second])
    results = (judged(first).results, judged(second).results)
    return compare(measured_of(first), measured_of(second), results)


def require_one_cluster(runs: Sequence[Run]) -> None:
    """Raise `RvError(USAGE)` for runs of several clusters: nodes of one name are not the same."""
    clusters = {run.record.cluster: run for run in runs if run.record.cluster}
    if len(clusters) > 1:
        named = (
            f"{run.record.race_id} of {run.record.label or key}" for key, run in clusters.items()
        )
        problem = f"these are runs of several clusters: {', '.join(named)}"
        raise RvError(ErrorKind.USAGE, problem, hint="name runs of one cluster at a time")


def others(kept: History, run: str) -> Others:
    """Look up what other runs measured on any device of a model, with the same payload."""
    read = functools.cache(kept.all)

    def points(measured: Measurement) -> Sequence[Measurement]:
        rows = read(model=measured.gpu, payload=measured.payload)
        return [row for row in rows if row.run != run and row.cluster == measured.cluster]

    return points


def earlier(kept: History, run: str) -> Past:
    """Look up what other runs measured in the same way on the same device."""
    read = functools.cache(kept.all)

    def points(measured: Measurement) -> Sequence[Measurement]:
        gpu = measured.gpu_uuid
        rows = read(gpu=gpu, node="" if gpu else measured.node, payload=measured.payload)
        alike = [row for row in rows if row.key == measured.key]
        return [row for row in alike if row.run != run and row.subject == measured.subject]

    return points
