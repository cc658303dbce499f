"""Acceptance as text and JSON: payloads, the verdicts of a run, and what to do about them."""

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any

from rv.accept.results import RunResult, Status, TestResult, verdict, worst
from rv.accept.store import Run
from rv.avoided_nodes import AvoidedNode
from rv.models.quantities import short_duration
from rv.payloads.contract.catalogue import PayloadSpec
from rv.ui.tables import Part, Table

_TOLD = (Status.FAIL, Status.ERROR, Status.WARN, Status.SKIP)


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
    """The payloads as JSON."""
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
    """The verdict table of a run, its findings below, and the verdict on the last line."""
    head = ("PAYLOAD", "NODE", "VERDICT", "TESTS", "TIME", "WHY")
    rows = [_result_row(result) for result in run.results]
    parts: list[Part] = [Table(head=head, rows=rows)]
    findings = [*dict.fromkeys(_findings(run.results))]
    if findings:
        parts.append(Table(head=("FINDING", "WHERE", "CODE", "CLASS", "WHAT TO DO"), rows=findings))
    parts.extend(run.faults)
    counts = [(s, sum(r.status is s for r in run.results)) for s in Status]
    told = ", ".join(f"{count} {status}" for status, count in counts if count)
    parts.append(f"acceptance of {run.record.race_id}: {verdict(run.results)} ({told})")
    return parts


def _result_row(result: RunResult) -> tuple[str, ...]:
    tests = result.tests
    passed = sum(test.status in (Status.PASS, Status.WARN) for test in tests)
    alone = result.rank is None or result.world_size == 1 or result.hosts
    rank = "" if alone else f" rank {result.rank}"
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


def _findings(results: Sequence[RunResult]) -> Iterator[tuple[str, ...]]:
    for result in results:
        for test in result.tests:
            if test.status in (Status.FAIL, Status.ERROR, Status.WARN):
                where = " ".join(filter(None, (test.host or result.hostname, test.device)))
                name = f"{test.status} {result.test_type} {test.name}"
                yield name, where or "-", test.code or "-", test.fault_class, test.advice


def sweep_text(run: Run) -> list[Part]:
    """A row a node: its verdict, what each payload said, and the first reason that is none."""
    names = dict.fromkeys(result.test_type for result in run.results)
    head = ("NODE", "VERDICT", *(name.upper() for name in names), "WHY")
    rows = [_node_row(node, run, tuple(names)) for node in run.record.nodes]
    parts: list[Part] = [Table(head=head, rows=rows)]
    findings = [*dict.fromkeys(_findings(run.results))]
    if findings:
        parts.append(Table(head=("FINDING", "WHERE", "CODE", "CLASS", "WHAT TO DO"), rows=findings))
    of = _nodes(run)
    counts = [
        (s, sum(worst([r.status for r in each]) is s for each in of.values())) for s in Status
    ]
    told = ", ".join(f"{count} {status}" for status, count in counts if count)
    parts.append(f"{run.record.race_id}: {verdict(run.results)} ({told})")
    return parts


def _nodes(run: Run) -> dict[str, list[RunResult]]:
    return {
        node: [result for result in run.results if result.hostname == node]
        for node in run.record.nodes
    }


def _node_row(node: str, run: Run, names: Sequence[str]) -> tuple[str, ...]:
    results = _nodes(run)[node]
    status = worst([result.status for result in results])
    said = {result.test_type: str(result.status) for result in results}
    why = next((r.reason for r in results if r.status is status and r.reason), "-")
    return (node, status, *(said.get(name, "-") for name in names), why)


def sweep_document(run: Run, bad: Sequence[AvoidedNode]) -> dict[str, Any]:
    """A sweep as JSON: a verdict a node, and every result."""
    verdicts = {node: worst([r.status for r in results]) for node, results in _nodes(run).items()}
    nodes = [{"node": node, "verdict": status} for node, status in verdicts.items()]
    return {**run_document(run), "nodes": nodes, **avoided_document(bad)}


def avoided_document(bad: Sequence[AvoidedNode]) -> dict[str, Any]:
    """Nodes that plans leave out, as JSON; times are seconds since the epoch."""
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
    """A run as JSON: the verdict, and every test of every result."""
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
    told = test.status in _TOLD and test.code
    fault, action = (test.fault_class, test.advice) if told else ("", "")
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
