"""Acceptance as text and JSON: payloads, the verdicts of a run, and what to do about them."""

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from rv.accept.pairs import KIND
from rv.accept.results import RunResult, Status, TestResult, verdict, worst
from rv.accept.runs import Run
from rv.avoided_nodes import AvoidedNode
from rv.models.quantities import short_duration
from rv.payloads.contract.catalogue import PayloadSpec
from rv.ui.tables import Part, Table


def payloads_text(payloads: Sequence[PayloadSpec], bundled: Collection[str]) -> list[Part]:
    """List payloads; one that this rv does not carry says so."""
    head = ("PAYLOAD", "PROFILES", "STARTED BY", "TESTS")
    rows = [
        (
            p.name,
            ",".join(p.profiles),
            p.starts,
            p.tests + ("" if p.name in bundled else " (not in this rv)"),
        )
        for p in payloads
    ]
    return [Table(head=head, rows=rows)]


def payloads_document(payloads: Sequence[PayloadSpec], bundled: Collection[str]) -> dict[str, Any]:
    """Return the payloads as JSON."""
    return {
        "payloads": [
            {
                "name": p.name,
                "tests": p.tests,
                "starts": p.starts,
                "profiles": list(p.profiles),
                "bundled": p.name in bundled,
            }
            for p in payloads
        ]
    }


def run_text(run: Run) -> list[Part]:
    """Show the verdicts of a run, its findings, and the verdict of all on the last line.

    One whose race ended without a start has the same reason for every payload: it is said once.
    """
    head = ("PAYLOAD", "NODE", "VERDICT", "TESTS", "TIME", "WHY")
    table = Table(head=head, rows=[_result_row(result) for result in run.results])
    counts = _counts([result.status for result in run.results])
    last = f"acceptance of {run.record.race_id}: {verdict(run.results)} ({counts})"
    if all(result.code == "not_started" for result in run.results):
        advice = [test.advice for result in run.results for test in result.tests]
        return [f"nothing was tested: {run.record.ended}", *advice[:1], last]
    return [table, *_findings_table(run.results), *run.faults, last]


def _result_row(result: RunResult) -> tuple[str, ...]:
    tests = result.tests
    passed = sum(test.status in (Status.PASS, Status.WARN) for test in tests)
    is_whole = result.rank is None or result.world_size == 1 or result.hosts
    rank = "" if is_whole else f" rank {result.rank}"
    seconds = result.duration_s
    time = "-" if seconds is None else short_duration(timedelta(seconds=max(1, round(seconds))))
    return (
        result.test_type,
        f"{result.hostname or '-'}{rank}",
        result.status,
        f"{passed}/{len(tests)}",
        time,
        result.reason or "-",
    )


def _findings_table(results: Sequence[RunResult]) -> list[Part]:
    """Show each test that is not as it should be, and what to do; no table for none.

    What several payloads found alike, such as the wear of a GPU, stands there once.
    """
    payloads: dict[_Finding, list[str]] = {}
    for payload, finding in _findings(results):
        named = payloads.setdefault(finding, [])
        if payload not in named:
            named.append(payload)
    head = ("FINDING", "WHERE", "CODE", "CLASS", "WHAT TO DO")
    rows = [(_title(finding, named), *finding[2:]) for finding, named in payloads.items()]
    return [Table(head=head, rows=rows)] if rows else []


class _Finding(NamedTuple):
    """A test that is not as it should be, as the table shows it."""

    status: Status
    test: str
    where: str
    code: str
    fault_class: str
    advice: str


def _findings(results: Sequence[RunResult]) -> Iterator[tuple[str, _Finding]]:
    """Return each finding after the payload that has it."""
    for result in results:
        for test in result.tests:
            if test.status in (Status.FAIL, Status.ERROR, Status.WARN):
                where = " ".join(filter(None, (test.host or result.hostname, test.device))) or "-"
                code, advice = test.code or "-", test.advice
                found = _Finding(test.status, test.name, where, code, test.fault_class, advice)
                yield result.test_type, found


def _title(finding: _Finding, payloads: Sequence[str]) -> str:
    if len(payloads) == 1:
        return f"{finding.status} {payloads[0]} {finding.test}"
    return f"{finding.status} {finding.test}, in {len(payloads)} payloads"


def _counts(statuses: Sequence[Status]) -> str:
    return ", ".join(f"{statuses.count(s)} {s}" for s in Status if s in statuses)


def sweep_text(run: Run) -> list[Part]:
    """Show a row a node: its verdict, that of each payload, and the reason."""
    names = list(dict.fromkeys(result.test_type for result in run.results))
    head = ("NODE", "VERDICT", *(name.upper() for name in names), "WHY")
    nodes = _by_node(run)
    table = Table(head=head, rows=[_node_row(node, nodes[node], names) for node in nodes])
    counts = _counts([verdict(results) for results in nodes.values()])
    last = f"{run.record.race_id}: {verdict(run.results)} ({counts})"
    return [table, *_pairs_table(run), *_findings_table(run.results), *run.faults, last]


def _pairs_of(run: Run) -> list[dict[str, Any]]:
    """List the pairs of a sweep over pairs, the slowest first; none of another."""
    tests = [test for result in run.results if result.test_type == KIND for test in result.tests]
    return [pair for test in tests if test.name == KIND for pair in test.details["pairs"]]


def _pairs_table(run: Run) -> list[Part]:
    """Show what each pair of nodes reached, the leaves that it joins, and what is slow."""
    rows = [
        (f"{p['one']} {p['other']}", " ".join(p["leaves"]) or "-", f"{p['busbw']:.4g}")
        for p in _pairs_of(run)
    ]
    if not rows:
        return []
    tests = [test for result in run.results if result.test_type == KIND for test in result.tests]
    slow = [f"slow: {test.reason}" for test in tests if test.status is Status.FAIL]
    return [Table(head=("PAIR", "LEAVES", "GB/S"), rows=rows), *slow]


def _by_node(run: Run) -> dict[str, list[RunResult]]:
    nodes: dict[str, list[RunResult]] = {node: [] for node in run.record.nodes}
    for result in run.results:
        if result.hostname in nodes:
            nodes[result.hostname].append(result)
    return nodes


def _node_row(node: str, results: Sequence[RunResult], names: Sequence[str]) -> tuple[str, ...]:
    status = verdict(results)
    of_payload: dict[str, Status] = {}
    for result in results:
        name = result.test_type
        of_payload[name] = worst([result.status, of_payload.get(name, result.status)])
    why = next((r.reason for r in results if r.status is status and r.reason), "-")
    return (node, status, *(of_payload.get(name, "-") for name in names), why)


def sweep_document(run: Run, bad: Sequence[AvoidedNode]) -> dict[str, Any]:
    """Return a sweep as JSON: a verdict a node, and every result."""
    by_node = _by_node(run)
    nodes = [{"node": node, "verdict": verdict(results)} for node, results in by_node.items()]
    return {**run_document(run), "nodes": nodes, "pairs": _pairs_of(run), **avoided_document(bad)}


def avoided_document(bad: Sequence[AvoidedNode]) -> dict[str, Any]:
    """Return the nodes that plans leave out as JSON; times are seconds since the epoch."""
    return {
        "avoided": [
            {
                "node": entry.node,
                "reason": entry.reason,
                "since": entry.since,
                "until": entry.until,
                "run": entry.run,
                "gpus": list(entry.uuids),
                "evidence": list(entry.evidence),
            }
            for entry in bad
        ]
    }


def run_document(run: Run) -> dict[str, Any]:
    """Return a run as JSON: the verdict, and every test of every result."""
    return {
        "run": run.record.race_id,
        "cluster": run.record.label,
        "profile": run.record.profile,
        "verdict": verdict(run.results),
        "results": [_result_document(result) for result in run.results],
        "faults": list(run.faults),
    }


def _result_document(result: RunResult) -> dict[str, Any]:
    return {
        "payload": result.test_type,
        "node": result.hostname,
        "rank": result.rank,
        "status": result.status,
        "code": result.code,
        "reason": result.reason,
        "duration_s": result.duration_s,
        "tests": [_test_document(test) for test in result.tests],
    }


def _test_document(test: TestResult) -> dict[str, Any]:
    is_explained = test.status is not Status.PASS and test.code
    fault, action = (test.fault_class, test.advice) if is_explained else ("", "")
    return {
        "name": test.name,
        "status": test.status,
        "code": test.code,
        "class": fault,
        "action": action,
        "node": test.host,
        "reason": test.reason,
        "device": test.device,
        "metrics": [
            {"name": m.name, "value": m.value, "unit": m.unit, "verdict": m.verdict}
            for m in test.metrics
        ],
    }
