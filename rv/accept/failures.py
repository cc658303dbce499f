"""The newest failing result of a node among the runs kept here, as a reason to drain it."""

from collections.abc import Iterator, Sequence
from typing import Final

from rv import avoided_nodes
from rv.accept.bad_nodes import has_passed, is_of_hardware, to_pass
from rv.accept.kept_records import damaged, records, sweeps_by_race
from rv.accept.measurements import device_of
from rv.accept.results import RunResult, Status, TestResult, worst
from rv.accept.run import judged
from rv.accept.runs import Run
from rv.accept.store import load_kept, results_of
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError

_MOST_RUNS: Final = 50
"""Runs of a node that are looked through: judging one takes up to seconds."""
_MOST_TEXT: Final = 120
_INJECTED: Final = "that fault was made on purpose (--inject)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a node is to be drained; `notes` say what speaks against it, in sentences."""

    node: str
    run: str
    reason: str
    notes: tuple[str, ...] = ()


def newest_failure(node: str, cluster: str, now_s: float) -> Failure:
    """Find the newest run in which something failed on the node.

    A node that is avoided has its reason there, where no run that is kept here has one.
    Raises `RvError(USAGE)` where nothing is known against the node.
    """
    passed: list[tuple[str, Sequence[RunResult]]] = []  # newer runs, and what passed in each
    for run in _judged_runs(node, cluster):
        if failed := _failed_on(node, run.results):
            return _failure(node, run.record.race_id, failed, passed)
        passed.append((run.record.race_id, _passed(node, run.results)))
    for entry in avoided_nodes.load(cluster, now_s):
        if entry.node == node:
            what = "; ".join([*entry.evidence[:1], *entry.uuids])
            notes = (_INJECTED,) if entry.is_injected else ()
            reason = f"rv {entry.run}: {what}"
            return Failure(node=node, run=entry.run, reason=reason, notes=notes)
    problems = damaged()
    unread = f"; but {problems[0]}" if problems else ""
    raise RvError(
        ErrorKind.USAGE,
        f"nothing that is kept here failed on {node}{unread}",
        hint=f"rv accept sweep --nodes {node} tests it",
    )


def _judged_runs(node: str, cluster: str) -> Iterator[Run]:
    """Judge the node's newest runs, or the sweeps that they were of, each once.

    Of a sweep the others count too: peers are on other nodes.
    """
    of_node = [r for r in records() if r.cluster == cluster and node in r.nodes][:_MOST_RUNS]
    of_sweeps, seen = sweeps_by_race(), set[str]()
    for race in (record.race_id for record in of_node):
        sweep = of_sweeps.get(race)
        name = sweep.sweep_id if sweep else race
        if name not in seen:
            seen.add(name)
            yield judged(results_of(sweep) if sweep else load_kept(race))


def _passed(node: str, results: Sequence[RunResult]) -> Sequence[RunResult]:
    """Return what the node reported; nothing where anything of it is bad."""
    own = [result for result in results if result.hostname == node]
    is_good = own and worst([result.status for result in own]) in (Status.PASS, Status.WARN)
    return own if is_good else ()


Failed = Sequence[tuple[RunResult, TestResult]]


def _failed_on(node: str, results: Sequence[RunResult]) -> Failed:
    return [
        (result, test)
        for result in results
        for test in result.tests
        if test.status is Status.FAIL and (test.host or result.hostname) == node
    ]


def _failure(
    node: str, run: str, failed: Failed, passed: Sequence[tuple[str, Sequence[RunResult]]]
) -> Failure:
    """Name the first failure of the hardware, else the first, and how many there are."""
    of_hardware = [each for each in failed if is_of_hardware(each[1])]
    result, test = (of_hardware or failed)[0]
    device = device_of(test, result)
    uuid = f" {device.uuid}" if device and device.uuid else ""
    what = f"{result.test_type} {test.name} {test.code}{uuid}: {test.reason[:_MOST_TEXT]}"
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    notes = _passed_since(node, failed, passed)
    if not of_hardware:
        notes.append(f"that is of class {test.fault_class}: it need not be the node's fault")
    made = ""
    if "--inject" in result.argv:
        notes.append(_INJECTED)
        made = "made on purpose (--inject): "  # whoever reads sinfo sees no note
    return Failure(node=node, run=run, reason=f"rv {run}: {made}{what}{more}", notes=tuple(notes))


def _passed_since(
    node: str, failed: Failed, passed: Sequence[tuple[str, Sequence[RunResult]]]
) -> list[str]:
    """Say in which newer run all the tests that failed were made again, and passed."""
    asked = {to_pass(test, result) for result, test in failed}
    newer = [run for run, own in passed if all(has_passed(each, own, node) for each in asked)]
    return [f"{node} passed since, in run {newer[0]}"] if newer else []
