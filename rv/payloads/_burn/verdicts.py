"""What the burn and the telemetry of each device come to in the report."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from _telemetry.gates import findings, underloaded
from _telemetry.sharing import PART_FAIL, PART_WARN
from contract.schema import HIGHER, metric
from contract.stats import odd_ones, slow_ones

if TYPE_CHECKING:
    from _harness.report import Report
    from _telemetry.sampler import Load

    from .supervisor import Worker


def add_worker(report: Report, worker: Worker) -> None:
    """Add one device's burn: right and working to its end, or what was wrong."""
    details = {
        "size": worker.size,
        "slots": worker.slots,
        "dtype": worker.job.dtype,
        "products": worker.products,
        "compared": worker.compared,
        "wrong_elements": worker.errors,
        "digest": worker.digest or None,
        "data": "randn",
        "ended": worker.state,
    }
    status, code, reason = _judge(worker)
    metrics = []
    if worker.rates:
        metrics = [metric("tflops", worker.rates, "TFLOPS", HIGHER, value=worker.rate)]
    report.add(
        "stress.torch", status, code=code, reason=reason,
        device=worker.job.label, details=details, metrics=metrics,
    )  # fmt: skip


def add_peers(report: Report, workers: list[Worker], models: dict[str, str]) -> None:
    """Hold the rates of devices of one model against each other."""
    groups: dict[tuple[str, int, str], list[Worker]] = {}
    for worker in workers:
        if worker.rates:
            key = (models.get(worker.job.device, ""), worker.size, worker.job.dtype)
            groups.setdefault(key, []).append(worker)
    for (model, size, dtype), group in groups.items():
        rates = {worker.job.label: worker.rate for worker in group}
        details = {"size": size, "dtype": dtype, "tflops": rates}
        slow = slow_ones(list(rates.values()))
        for at, status, share in slow:
            label = group[at].job.label
            reason = f"{label}: {rates[label]:.4g} TFLOPS, {share:.0%} of its peers ({model})"
            report.add(
                "stress.peers", status, code="peer_outlier", reason=reason,
                device=label, details=details,
            )  # fmt: skip
        if not slow and len(group) > 1:
            report.add("stress.peers", "PASS", details=details)


def _judge(worker: Worker) -> tuple[str, str, str]:
    """Return status, code and reason: a wrong element is worst, then not having worked."""
    device = worker.job.label
    if worker.errors:
        wrong = f"{worker.errors} wrong element(s) in {worker.products} products on {device}"
        return "FAIL", "wrong_result", wrong
    if worker.state == "failed":
        status = "ERROR" if worker.code in ("could_not_run", "out_of_memory") else "FAIL"
        return status, worker.code, f"{device}: {worker.reason}"
    if worker.products:
        return _judge_steadiness(worker)
    if worker.state == "cut":
        return "ERROR", "interrupted", f"{device}: stopped before its first product"
    return "FAIL", "worker_failed", f"{device}: not one product was counted"


def _judge_steadiness(worker: Worker) -> tuple[str, str, str]:
    """Compare the rate of the whole time with the median of its parts; a CPU always has others."""
    job = worker.job
    if not worker.rates or job.pulse or not (job.device.startswith("cuda") or "slow" in job.faults):
        return "PASS", "", ""
    part = worker.rate / statistics.median(worker.rates)
    if part >= PART_WARN:
        return "PASS", "", ""
    status = "FAIL" if part < PART_FAIL else "WARN"
    reason = f"{job.label}: {worker.rate:.4g} TFLOPS over the whole time, {part:.2f} of the median"
    return status, "contended", f"{reason}: something else takes its time, or it is unstable"


def add_digests(report: Report, workers: list[Worker], models: dict[str, str]) -> None:
    """Compare the reference products of devices of one model: they must be the same bits."""
    groups: dict[tuple[str, int], dict[str, str]] = {}
    for worker in workers:
        if worker.digest:
            model = models.get(worker.job.device, worker.job.device)
            groups.setdefault((model, worker.size), {})[worker.job.label] = worker.digest
    for (model, size), digests in groups.items():
        if len(digests) < 2:
            continue
        verdict = {"status": "PASS"}
        odd = [list(digests)[at] for at in odd_ones(list(digests.values()))]
        if odd:
            reason = f"another product than their peers ({model}): {', '.join(odd)}"
            verdict = {"status": "FAIL", "code": "digest_mismatch", "reason": reason}
        report.add("stress.digest", **verdict, details={"size": size, "digests": digests})


def add_telemetry(report: Report, device: str, load: Load, *, steady: bool) -> None:
    """Judge one device's heat, throttling, memory errors, and whether it was busy."""
    bad = findings(load)
    if steady:
        bad += underloaded(load)
    details = {**load.as_json(), "timeline": load.timeline.as_json()}
    for status, code, reason in bad:
        where = f"{device}: {reason}"
        report.add("telemetry", status, code=code, reason=where, device=device, details=details)
    if not bad:
        report.add("telemetry", "PASS", device=device, details=details)
