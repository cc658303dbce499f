"""The nodes that a run found bad or good again, and a text for their administrators. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rv.accept.measurements import FAULTY, bare_uuid, device_of, node_of
from rv.accept.results import RunResult, Status, TestResult
from rv.avoided_nodes import DAY_S, MOST_DAYS, ON_PURPOSE, AvoidedNode
from rv.payloads.contract.codes import EXCLUDE, HARDWARE
from rv.payloads.contract.schema import SURROUNDINGS


def bad_nodes(
    results: Sequence[RunResult],
    run: str,
    now_s: float,
    days: int,
    repairs: Mapping[str, float] | None = None,
) -> tuple[AvoidedNode, ...]:
    """Return the nodes whose own hardware failed, to be avoided for so many days from `now_s`.

    An ERROR says nothing about a node, nor does a fault of the fabric or of software, nor one of a
    job that began before the node was repaired.
    """
    repaired = repairs or {}
    bad: dict[str, AvoidedNode] = {}
    until = now_s + min(days, MOST_DAYS) * DAY_S
    for result in results:
        since = result.began or now_s
        for test in filter(is_of_hardware, result.tests):
            node = node_of(test, result)
            if not node or (node in repaired and since <= repaired[node]):
                continue
            new = AvoidedNode(
                node=node, since=since, until=until, run=run, was_quick=True, is_injected=True
            )
            entry = bad.get(node, new)
            entry = replace(
                entry,
                since=max(since, entry.since),
                was_quick=entry.was_quick and result.quick,
                is_injected=entry.is_injected and "--inject" in result.argv,
            )
            bad[node] = _accused(entry, test, result)
    return tuple(bad.values())


def _accused(entry: AvoidedNode, test: TestResult, result: RunResult) -> AvoidedNode:
    """Add a failed test, and the GPUs that it may be the fault of, to what is known of its node."""
    evidence = f"{result.test_type} {test.name} {test.code}: {test.reason}"
    suspects = _suspects(test, result)
    if len(suspects) > 1:
        evidence = f"{evidence} (which of {len(suspects)} GPUs it was is not known)"
    if "--inject" in result.argv:
        evidence += ON_PURPOSE
    uuids = tuple(dict.fromkeys((*entry.uuids, *suspects)))
    return replace(entry, evidence=(*entry.evidence, evidence), uuids=uuids)


def _suspects(test: TestResult, result: RunResult) -> list[str]:
    """Name the GPU that a test was on; where nobody knows, all that the run had of its node."""
    device = device_of(test, result)
    if device and device.uuid:
        return [device.uuid]
    node = node_of(test, result)
    return [each.uuid for each in result.devices if each.host in ("", node) and each.uuid]


def cleared(results: Sequence[RunResult]) -> frozenset[str]:
    """Return the nodes where every payload ended, none failed, and no GPU is slower than before.

    One that was slow is good again when it has been at its old level for three runs.
    """
    fine = {r.hostname for r in results if r.status in (Status.PASS, Status.WARN)}
    other = {r.hostname for r in results if r.status in (Status.FAIL, Status.ERROR)}
    blamed = {
        test.host or result.hostname for result in results for test in result.tests if _is_bad(test)
    }
    return frozenset(fine - other - blamed)


def _is_bad(test: TestResult) -> bool:
    """Whether a test failed, or a value of it is slower than before or than others."""
    slower = any(metric.standing == FAULTY for metric in test.metrics)
    return slower or test.status is Status.FAIL or test.code == "regression"


def still_accused(before: Sequence[AvoidedNode], results: Sequence[RunResult]) -> frozenset[str]:
    """Return the avoided nodes where not all that failed was tried again, by a newer job.

    Storage that is fast says nothing of a GPU that computes wrong, nor does another GPU, nor a
    quick run of what a long one found.
    """
    return frozenset(entry.node for entry in before if not _is_answered(entry, results))


def _is_answered(entry: AvoidedNode, results: Sequence[RunResult]) -> bool:
    """Whether each payload that accuses a node was fine since, on all GPUs that are accused."""
    tried = _tried_since(entry, results)
    accusers = {said.partition(" ")[0] for said in entry.evidence}
    if not accusers <= tried.keys():
        return False
    accused = {bare_uuid(uuid) for uuid in entry.uuids}
    # One that lists no GPU, as of pairs, accuses none.
    listed = [tried[payload] for payload in accusers if tried[payload]]
    return not accused or (bool(listed) and all(accused <= each for each in listed))


def _tried_since(entry: AvoidedNode, results: Sequence[RunResult]) -> Mapping[str, set[str]]:
    """Give the payloads that newer jobs passed on the node, each with its GPUs there."""
    tried: dict[str, set[str]] = {}
    for result in results:
        is_fine = result.status in (Status.PASS, Status.WARN) and not _was_skipped(result)
        is_thorough = entry.was_quick or not result.quick
        is_newer = result.began > entry.since
        if is_fine and is_thorough and result.hostname == entry.node and is_newer:
            here = {bare_uuid(d.uuid) for d in result.devices if d.host in ("", entry.node)}
            tried.setdefault(result.test_type, set()).update(here)
    return tried


def _was_skipped(result: RunResult) -> bool:
    """Whether the payload itself was skipped, and only what is around it looked at."""
    own = [test.status for test in result.tests if test.name not in SURROUNDINGS]
    return bool(own) and set(own) == {Status.SKIP}


def admin_text(avoided: Sequence[AvoidedNode], cluster: str) -> str:
    """Write a text for the administrators: what failed, on which GPU, and how to reproduce it.

    Nodes where faults were made on purpose (`--inject`) are not called bad, and told apart.
    """
    bad = [entry for entry in avoided if not entry.is_injected]
    injected = [entry for entry in avoided if entry.is_injected]
    if not bad:
        return "\n".join(["no node is known to be bad", *_of_injected(injected)])
    lines = [f"Acceptance tests found {len(bad)} bad node(s) on {cluster}.", ""]
    for entry in bad:
        lines += [*_of_bad(entry), ""]
    lines.append(f"As a list for sbatch: --exclude={','.join(entry.node for entry in bad)}")
    return "\n".join([*lines, *_of_injected(injected)])


def _of_bad(entry: AvoidedNode) -> Iterator[str]:
    when = f"{datetime.fromtimestamp(entry.since, tz=UTC):%Y-%m-%d %H:%M} UTC"
    yield f"{entry.node}, seen {when} (run {entry.run}):"
    yield from (f"  {evidence}" for evidence in entry.evidence[:10])
    if entry.uuids:
        yield f"  GPU: {', '.join(entry.uuids)}"
    by_pairs = any(evidence.startswith("pairs ") for evidence in entry.evidence)
    how = "--pairs" if by_pairs else f"--nodes {entry.node}"
    yield f"  to see it again: rv accept sweep {how} --no-avoid"


def _of_injected(injected: Sequence[AvoidedNode]) -> Iterator[str]:
    for entry in injected:
        until = f"{datetime.fromtimestamp(entry.until, tz=UTC):%Y-%m-%d}"
        what = f"a fault made on purpose (--inject, run {entry.run})"
        end = f"rv accept avoid --forget {entry.node} ends it"
        yield f"{entry.node} is avoided until {until} for {what}: nothing is to be repaired, {end}"


def is_of_hardware(test: TestResult) -> bool:
    """Whether a failure is one to leave the node out for: the hardware's, by code or action."""
    if test.status is not Status.FAIL:
        return False
    return test.fault_class == HARDWARE or test.advice == EXCLUDE
