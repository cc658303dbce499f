"""What acceptance keeps on this machine: runs, with their files as fetched, and sweeps.

Below the user's data folder a run has a folder named by its race, with `run.json` and `results/`;
a sweep, which is one run of many races, a file named by its id.
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rv.accept.collect import collect, without_twins
from rv.accept.foreign_results import foreign_results
from rv.accept.kept_files import without_damaged, write_all
from rv.accept.kept_records import (
    RECORD,
    is_there,
    last_begun,
    last_sweep,
    no_run,
    read_record,
    readable,
    run_folder,
    run_folders,
    sweep_files,
    sweeps_in,
)
from rv.accept.pairs import judged_pairs, names_of
from rv.accept.result_files import read_tree
from rv.accept.results import RunResult, Status, TestResult
from rv.accept.runs import NodeState, Run, RunRecord, Stage, Sweep
from rv.bundle import acceptance_dir
from rv.errors import ErrorKind, RvError
from rv.models.plain import plain
from rv.slurm.printable import printable

RESULTS: Final = "results"
_NOT_WHOLE: Final = ("result_unreadable", "results_lost", "no_result", "not_run")
LOGS: Final = "logs"
"""What each node's command printed last: `nodeN.out`, N as in the record's nodes."""


def save(
    record: RunRecord, files: Mapping[str, bytes], logs: Mapping[str, bytes] | None = None
) -> Run:
    """Keep a run's files, and its logs by file name, over what was kept of it before.

    A file that is kept and that the cluster has no more, or damaged since, stays. Each is replaced
    whole, so that two that keep the same run harm nothing. Raises `RvError(STAGE)` where this
    machine's disk does not take them.
    """
    folder = run_folder(record.race_id)
    record = replace(record, over_at=_first_fetched(record, folder))
    sound = without_damaged(folder / RESULTS, files)
    fresh = {f"{RESULTS}/{name}": data for name, data in sound.items()}
    fresh |= {f"{LOGS}/{name}": data for name, data in (logs or {}).items()}
    again = f"mend that, then rv accept run --resume {record.race_id}, or that of its sweep"
    write_all(folder, {**fresh, RECORD: json.dumps(plain(record), indent=1).encode()}, again)
    return _kept(folder)


def _first_fetched(record: RunRecord, folder: Path) -> float:
    """Say when the job of a record was first known to be over, by the record that is kept of it."""
    over_at = record.fetched_at
    for kept in readable([folder / RECORD], RunRecord):
        # One that was requeued since has started again.
        if (kept.job_id, kept.restart) == (record.job_id, record.restart):
            over_at = min(over_at, kept.times.over_at or over_at)
    return over_at


def _results(files: Mapping[str, bytes], record: RunRecord) -> tuple[RunResult, ...]:
    """Collect a run's results, each with the time of its job, which a sweep of many has too."""
    results = collect(files, record.payloads, record)
    return tuple(replace(result, began=record.began_at) for result in results)


def _by_node(record: RunRecord, logs: Mapping[str, bytes]) -> dict[str, str]:
    """Name logs by their nodes, and make their lines printable: they are a cluster's text."""
    found = {}
    for number, node in enumerate(record.nodes):
        lines = logs.get(f"node{number}.out", b"").decode(errors="replace").splitlines()
        if lines:
            found[node] = "\n".join(map(printable, lines))
    return found


def save_sweep(sweep: Sweep) -> None:
    """Keep a sweep. Raises `RvError(STAGE)` where this machine's disk does not take it."""
    document = json.dumps(plain(sweep), indent=1).encode()
    write_all(acceptance_dir() / "sweeps", {f"{sweep.sweep_id}.json": document})


def find_run(name: str) -> Run:
    """Find a run by its race, `last`, or the path of results; a sweep by its id or its file.

    Raises `RvError(USAGE)` for what is none of these.
    """
    name = last_begun() if name == "last" else name
    sweep = _sweep_named(name)
    return results_of(sweep) if sweep else load(name)


def _sweep_named(name: str) -> Sweep | None:
    """Find a sweep by its id, the beginning of one, or its file; None where it is a run."""
    path, paths = Path(name), sweep_files(name) if name.startswith("sweep-") else []
    if [kept.stem for kept in paths] == [name]:
        return read_record(paths[0], Sweep)
    if path.name.startswith("sweep-") and path.is_file():
        return read_record(path, Sweep)
    if not name.startswith("sweep-") or path.exists():
        return None
    if len(paths) != 1:
        problem = "fits several sweeps" if paths else "is no sweep here"
        raise RvError(ErrorKind.USAGE, f"{name!r} {problem}", hint="rv accept sweep begins one")
    return read_record(paths[0], Sweep)


def load(name: str) -> Run:
    """Find a run by its race's id, the beginning of one, or the path of a folder or file.

    A run that is kept counts before a folder of its name that happens to lie here. A folder or file
    that rv did not keep is read as results of any known format.
    Raises `RvError(USAGE)` for what is none of these, or holds no result.
    """
    if not name:  # a path of that name would be the current folder
        raise no_run(name, "is no run")
    if is_kept(name):
        return load_kept(name)
    path = Path(name)
    if (path / RECORD).is_file():
        return _kept(path)
    if path.exists():
        return _foreign(path)
    return _kept(_folder_of(name))


def load_kept(race: str) -> Run:
    """Give what is kept of a race, whatever else has its name. Raises `RvError(USAGE)` for none."""
    if not is_kept(race):
        raise no_run(race, "is no run here")
    return _kept(run_folder(race))


def is_kept(race: str) -> bool:
    """Whether anything is kept of a race here, be it damaged, or only that it was begun."""
    return Path(race).name == race and race not in ("", "..") and is_there(run_folder(race))


def is_whole(race: str) -> bool:
    """Whether what is kept of a race can be read, and has all that its job left."""
    try:
        run = load_kept(race)
    except RvError:
        return False
    return not any(test.code in _NOT_WHOLE for result in run.results for test in result.tests)


def _folder_of(name: str) -> Path:
    """Find a run by the beginning of its race's id."""
    folders = [folder for folder in run_folders() if folder.name.startswith(name)]
    if not folders:
        raise no_run(name, "is no run here, nor a file")
    if len(folders) > 1:
        raise no_run(name, "fits several runs")
    return folders[0]


def load_sweep(name: str, cluster: str) -> Sweep:
    """Find a sweep of this cluster by its id or the beginning of one; `last` is the latest.

    Raises `RvError(USAGE)` for none, `RvError(CONFIG)` for a file that is broken.
    """
    if not name:
        raise RvError(ErrorKind.USAGE, "no sweep was named", hint="--resume last is the latest")
    paths = last_sweep(cluster) if name == "last" else sweep_files(name)
    mine = [sweep for sweep in sweeps_in(paths) if sweep.cluster == cluster]
    if len(mine) > 1:
        raise RvError(ErrorKind.USAGE, f"{name!r} fits several sweeps", hint="write more of its id")
    if mine:
        return mine[0]
    for path in paths:
        read_record(path, Sweep)  # says what is broken
    hint = "rv accept sweep begins one"
    raise RvError(ErrorKind.USAGE, f"no sweep {name!r} of this cluster", hint=hint)


def _kept(folder: Path) -> Run:
    if not is_there(folder / RECORD):
        problem = f"run {folder.name} was begun here, and has no verdict yet"
        judges = f"rv accept run --resume {folder.name} judges it"
        hint = f"{judges}; where nothing of it was submitted, name another run"
        raise RvError(ErrorKind.USAGE, problem, hint=hint)
    record = read_record(folder / RECORD, RunRecord)
    tree, logs = read_tree(folder / RESULTS), read_tree(folder / LOGS, ".out")
    return Run(
        record=record,
        results=_results(tree.files, record),
        faults=tuple(tree.unread.values()),
        logs=_by_node(record, logs.files),
        jobs={str(record.job_id): record.times},
    )


def _foreign(path: Path) -> Run:
    results, faults = foreign_results(path)
    payloads = tuple(dict.fromkeys(result.test_type for result in results))
    record = RunRecord(race_id=path.name, cluster="", label=str(path), payloads=payloads)
    return Run(record=record, results=results, faults=faults)


def results_of(sweep: Sweep, label: str = "") -> Run:
    """Put a sweep's results together as one run; a node without any is an ERROR.

    Those of pairs are judged by each other.
    """
    runs = {node.node: _run_of(node) for node in sweep.nodes}
    every = without_twins(
        tuple(itertools.chain.from_iterable(run.results for run in runs.values()))
    )
    names = dict.fromkeys(name for node in sweep.nodes for name in names_of(node.node))
    if sweep.is_of_pairs:
        every = (*every, *judged_pairs(_of_pairs(runs), sweep.leaves))
    record = RunRecord(
        race_id=sweep.sweep_id,
        cluster=sweep.cluster,
        label=label,
        profile=sweep.profile,
        payloads=sweep.payloads,
        submitted_at=sweep.begun_at,
        nodes=tuple(names),
    )
    logs = _merged(run.logs for run in runs.values())
    faults = tuple(itertools.chain.from_iterable(run.faults for run in runs.values()))
    jobs = _merged(run.jobs for run in runs.values())
    return Run(record=record, results=every, faults=faults, logs=logs, jobs=jobs)


def _of_pairs(runs: Mapping[str, Run]) -> dict[tuple[str, str], Sequence[RunResult]]:
    """Give the results of each pair; a node that has none was left out."""
    pairs = [names_of(name) for name in runs if "," in name]
    return {(one, other): runs[f"{one},{other}"].results for one, other in pairs}


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return dict(itertools.chain.from_iterable(part.items() for part in parts))


def _run_of(node: NodeState) -> Run:
    """Give what a node of a sweep reported; a run of one ERROR where that is nothing."""
    try:
        run = _reported(node) if node.race and node.stage is Stage.OVER else None
        why = node.why
    except RvError as error:
        run, why = None, error.message
    return run if run and run.results else _silent(node, why)


def _reported(node: NodeState) -> Run:
    """Give the run of a node that is over. Raises `RvError` where it is lost, or another node's."""
    run = load_kept(node.race)
    nodes = run.record.nodes
    if nodes and not set(names_of(node.node)) <= set(nodes):
        problem = f"run {node.race} was on {', '.join(nodes)}"
        raise RvError(ErrorKind.CONFIG, problem, hint="rv accept sweep begins another")
    return run


def _silent(node: NodeState, why: str) -> Run:
    reason = f"no result reported: {printable(why) or 'its job ended without one'}"
    test = TestResult(
        name="sweep", status=Status.ERROR, code="no_result", reason=reason, host=node.node
    )
    silent = RunResult(test_type="sweep", status=Status.ERROR, hostname=node.node, tests=(test,))
    record = RunRecord(race_id=node.race, cluster="", nodes=(node.node,))
    return Run(record=record, results=(silent,))
