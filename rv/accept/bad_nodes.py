"""The nodes that a run found bad or good again, and a text for their administrators. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rv.accept.measurements import device_of
from rv.accept.results import RunResult, Status, TestResult
from rv.avoided_nodes import DAY_S, MOST_DAYS, AvoidedNode
from rv.payloads.contract.codes import EXCLUDE, HARDWARE


def bad_nodes(
    results: Sequence[RunResult], run: str, now_s: float, days: int
) -> tuple[AvoidedNode, ...]:
    """Return the nodes whose own hardware failed, to be avoided for so many days from `now_s`.

    An ERROR says nothing about a node, nor does a fault of the fabric or of software.
    """
    bad: dict[str, AvoidedNode] = {}
    until = now_s + min(days, MOST_DAYS) * DAY_S
    for result in results:
        for test in result.tests:
            node = test.host or result.hostname
            if not node or not is_of_hardware(test):
                continue
            device = device_of(test, result)
            entry = bad.get(node) or AvoidedNode(node=node, since=now_s, until=until, run=run)
            evidence = f"{result.test_type} {test.name} {test.code}: {test.reason}"
            uuids = entry.uuids
            if device and device.uuid and device.uuid not in uuids:
                uuids = (*uuids, device.uuid)
            bad[node] = replace(entry, evidence=(*entry.evidence, evidence), uuids=uuids)
    return tuple(bad.values())


def cleared(results: Sequence[RunResult]) -> frozenset[str]:
    """Return the nodes where every payload ended, none failed, and no GPU is slower than before.

    One that was slow is good again when it has been at its old level for three runs.
    """
    fine = {r.hostname for r in results if r.status in (Status.PASS, Status.WARN)}
    other = {r.hostname for r in results if r.status in (Status.FAIL, Status.ERROR)}
    blamed = {
        test.host or result.hostname
        for result in results
        for test in result.tests
        if test.status is Status.FAIL or test.code == "regression"
    }
    return frozenset(fine - other - blamed)


def still_accused(before: Sequence[AvoidedNode], results: Sequence[RunResult]) -> frozenset[str]:
    """Return the avoided nodes on which a payload that failed there did not run again.

    Storage that is fast says nothing of a GPU that computes wrong.
    """
    fine = (Status.PASS, Status.WARN)
    ran = {(result.hostname, result.test_type) for result in results if result.status in fine}
    accusers = ((each.node, said.partition(" ")[0]) for each in before for said in each.evidence)
    return frozenset(node for node, payload in accusers if (node, payload) not in ran)


def admin_text(bad: Sequence[AvoidedNode], cluster: str) -> str:
    """Write a text for the administrators: what failed, on which GPU, and how to reproduce it."""
    if not bad:
        return "no node is known to be bad"
    lines = [f"Acceptance tests found {len(bad)} bad node(s) on {cluster}.", ""]
    for entry in bad:
        when = f"{datetime.fromtimestamp(entry.since, tz=UTC):%Y-%m-%d %H:%M} UTC"
        lines.append(f"{entry.node}, seen {when} (run {entry.run}):")
        lines += [f"  {evidence}" for evidence in entry.evidence[:10]]
        if entry.uuids:
            lines.append(f"  GPU: {', '.join(entry.uuids)}")
        by_pairs = any(evidence.startswith("pairs ") for evidence in entry.evidence)
        how = "--pairs" if by_pairs else f"--nodes {entry.node}"
        lines.append(f"  to see it again: rv accept sweep {how} --no-avoid")
        lines.append("")
    lines.append(f"As a list for sbatch: --exclude={','.join(entry.node for entry in bad)}")
    return "\n".join(lines)


def is_of_hardware(test: TestResult) -> bool:
    """Whether a failure is one to leave the node out for: the hardware's, by code or action."""
    if test.status is not Status.FAIL:
        return False
    return test.fault_class == HARDWARE or test.advice == EXCLUDE
