"""What the burn and the telemetry of each device come to in the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _telemetry import findings, underloaded
from contract.schema import HIGHER, metric
from contract.stats import odd_ones

from .plan import label

if TYPE_CHECKING:
    from _harness.report import Report
    from _telemetry import Load

    from .supervisor import Worker


def add_worker(report: Report, worker: Worker) -> None:
    """Add one device's burn: right and working to its end, or what was wrong."""
    job = worker.job
    details = {
        "size": worker.size,
        "slots": worker.slots,
        "dtype": job.dtype,
        "products": worker.products,
        "wrong_elements": worker.errors,
        "digest": worker.digest or None,
        "data": "randn",
        "ended": worker.state,
    }
    status, code, reason = judge(worker)
    metrics = [metric("tflops", worker.rates, "TFLOPS", HIGHER)] if worker.rates else []
    where: dict[str, Any] = {"device": label(job), "details": details, "metrics": metrics}
    report.add("stress.torch", status, code=code, reason=reason, **where)


def judge(worker: Worker) -> tuple[str, str, str]:
    """Give status, code and reason: a wrong element is worst, then not having worked."""
    name = label(worker.job)
    if worker.errors:
        wrong = f"{worker.errors} wrong element(s) in {worker.products} products on {name}"
        return "FAIL", "wrong_result", wrong
    if worker.state == "failed":
        blame = "ERROR" if worker.code in ("could_not_run", "out_of_memory") else "FAIL"
        return blame, worker.code, f"{name}: {worker.reason}"
    if not worker.products:
        if worker.state == "cut":
            return "ERROR", "interrupted", f"{name}: stopped before its first product"
        return "FAIL", "worker_failed", f"{name}: not one product was counted"
    return "PASS", "", ""


def add_digests(report: Report, workers: list[Worker], names: dict[str, str]) -> None:
    """Compare the reference products of devices of one model: they must be the same bits."""
    groups: dict[tuple[str, int], dict[str, str]] = {}
    for worker in workers:
        if worker.digest:
            model = names.get(worker.job.device, worker.job.device)
            groups.setdefault((model, worker.size), {})[label(worker.job)] = worker.digest
    for (model, size), digests in groups.items():
        if len(digests) < 2:
            continue
        odd = [list(digests)[at] for at in odd_ones(list(digests.values()))]
        details = {"size": size, "digests": digests}
        if odd:
            reason = f"another product than their peers ({model}): {', '.join(odd)}"
            report.add(
                "stress.digest", "FAIL", code="digest_mismatch", reason=reason, details=details
            )
        else:
            report.add("stress.digest", "PASS", details=details)


def add_telemetry(report: Report, name: str, load: Load, *, steady: bool) -> None:
    """Judge one device's heat, throttling, memory errors, and whether it was busy."""
    found = findings(load)
    idle = underloaded(load) if steady else None
    for finding in [*found, *([idle] if idle else [])]:
        reason = f"{name}: {finding.reason}"
        where: dict[str, Any] = {"device": name, "details": load.as_json()}
        report.add("telemetry", finding.status, code=finding.code, reason=reason, **where)
    if not found and not idle:
        report.add("telemetry", "PASS", device=name, details=load.as_json())
