"""Which nodes a run found bad or good again, and the text that tells the administrators. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rv.accept.measurements import device_of
from rv.accept.results import RunResult, Status, TestResult
from rv.avoided_nodes import DAY_S, MOST_DAYS, AvoidedNode
from rv.payloads.contract.codes import EXCLUDE, HARDWARE


def bad_nodes(
    results: Sequence[RunResult], run: str, now: float, days: int
) -> tuple[AvoidedNode, ...]:
    """Name the nodes whose own hardware failed: only what is worth leaving a node out for.

    An ERROR says nothing about a node, nor does a fault of the fabric or of software.
    """
    found: dict[str, AvoidedNode] = {}
    until = now + min(days, MOST_DAYS) * DAY_S
    for result in results:
        for test in result.tests:
            node = test.host or result.hostname
            if not node or not _is_reason(test):
                continue
            device = device_of(test, result)
            entry = found.get(node) or AvoidedNode(node=node, since=now, until=until, run=run)
            told = f"{result.test_type} {test.name} {test.code}: {test.reason}"
            uuids = dict.fromkeys(
                (*entry.uuids, *([device.uuid] if device and device.uuid else []))
            )
            found[node] = replace(entry, evidence=(*entry.evidence, told), uuids=tuple(uuids))
    return tuple(found.values())


def cleared(results: Sequence[RunResult]) -> frozenset[str]:
    """The nodes that everything was tested on, and nothing was found bad."""
    fine = {r.hostname for r in results if r.status in (Status.PASS, Status.WARN)}
    other = {r.hostname for r in results if r.status in (Status.FAIL, Status.ERROR)}
    blamed = {t.host for r in results for t in r.tests if t.status is Status.FAIL}
    return frozenset(fine - other - blamed)


def admin_text(bad: Sequence[AvoidedNode], cluster: str) -> str:
    """A text to send to the administrators: what was seen, on which GPU, how to see it again."""
    if not bad:
        return "no node is known to be bad"
    lines = [f"Acceptance tests found {len(bad)} bad node(s) on {cluster}.", ""]
    for entry in bad:
        when = f"{datetime.fromtimestamp(entry.since, tz=UTC):%Y-%m-%d %H:%M} UTC"
        lines.append(f"{entry.node}, seen {when} (run {entry.run}):")
        lines += [f"  {evidence}" for evidence in entry.evidence[:10]]
        if entry.uuids:
            lines.append(f"  GPU: {', '.join(entry.uuids)}")
        lines.append(f"  to see it again: rv accept sweep --nodes {entry.node} --no-avoid")
        lines.append("")
    lines.append(f"As a list for sbatch: --exclude={','.join(entry.node for entry in bad)}")
    return "\n".join(lines)


def _is_reason(test: TestResult) -> bool:
    """Whether a failure is one to leave the node out for: the hardware's, by code or action."""
    if test.status is not Status.FAIL:
        return False
    return test.fault_class == HARDWARE or test.advice == EXCLUDE
