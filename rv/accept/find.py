"""Find a run or a whole sweep by what a user types."""

from collections.abc import Sequence

from rv.accept.results import RunResult, Status, TestResult
from rv.accept.store import Run, RunRecord, load
from rv.accept.sweeps import NodeState, Stage, Sweep, any_cluster
from rv.errors import RvError


def find(word: str) -> Run:
    """Find a run by its race, `last`, or the path of results; a sweep by its id.

    Raises `RvError(USAGE)` for what is none of these.
    """
    if word.startswith("sweep-"):
        return together(any_cluster(word), "")
    return load(word)


def together(sweep: Sweep, label: str) -> Run:
    """Put a sweep's results together; a node of which nothing came is an ERROR."""
    results = tuple(result for node in sweep.nodes for result in _of(node))
    record = RunRecord(
        race_id=sweep.sweep_id,
        cluster=sweep.cluster,
        label=label,
        profile=sweep.profile,
        payloads=sweep.payloads,
        submitted_at=sweep.begun_at,
        nodes=tuple(node.node for node in sweep.nodes),
        swept=True,
    )
    return Run(record=record, results=results)


def _of(node: NodeState) -> Sequence[RunResult]:
    if not node.race or node.stage is not Stage.OVER:
        return [_silent(node, node.why)]
    try:
        return load(node.race).results or [_silent(node, node.why)]
    except RvError as error:
        return [_silent(node, error.message)]


def _silent(node: NodeState, why: str) -> RunResult:
    reason = f"no result reported: {why or 'its job ended without one'}"
    test = TestResult(
        name="sweep", status=Status.ERROR, code="no_result", reason=reason, host=node.node
    )
    return RunResult(test_type="sweep", status=Status.ERROR, hostname=node.node, tests=(test,))
