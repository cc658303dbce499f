"""What the burn and the telemetry of each device come to in the report."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

from _telemetry.gates import findings, underloaded
from _telemetry.sharing import PART_FAIL, PART_WARN
from contract.schema import HIGHER, metric
from contract.stats import odd_ones, slow_ones

if TYPE_CHECKING:
    from _harness.report import Report
    from _telemetry.sampler import Load

    from .supervisor import Beat, Worker


class Rate(NamedTuple):
    """What one device reached, whatever engine burned it."""

    label: str
    model: str
    size: int
    dtype: str
    tflops: float


def add_worker(report: Report, worker: Worker) -> None:
    """Add one device's burn: right and working to its end, or what was wrong."""
    details = {
        "size": worker.size,
        "slots": worker.slots,
        "dtype": worker.job.dtype,
        "turns": list(worker.job.turns),
        "products": worker.products,
        "compared": worker.compared,
        "wrong_elements": worker.errors,
        "digest": worker.digest or None,
        "data": "randn",
        "ended": worker.state,
    }
    status, code, reason = _judge(worker)
    report.add(
        "stress.torch", status, code=code, reason=reason,
        device=worker.job.label, details=details, metrics=_metrics(worker),
    )  # fmt: skip


def _metrics(worker: Worker) -> list[dict[str, Any]]:
    """Return the rate, or that of each type where they take turns: the first type's is `tflops`."""
    if not worker.rates:
        return []
    if not worker.job.turns:
        return [metric("tflops", worker.rates, "TFLOPS", HIGHER, value=worker.rate)]
    return [
        metric(
            "tflops" if dtype == worker.job.turns[0] else f"tflops.{dtype}",
            [beat.operations / beat.seconds / 1e12 for beat in beats],
            "TFLOPS", HIGHER, value=_rate(beats), dtype=dtype, size=beats[-1].size,
        )
        for dtype, beats in worker.by_dtype.items()
    ]  # fmt: skip


def _rate(beats: list[Beat]) -> float:
    """Return TFLOPS over the whole time of some beats."""
    return sum(each.operations for each in beats) / sum(each.seconds for each in beats) / 1e12


def add_copies(report: Report, workers: list[Worker]) -> None:
    """Add the copies to peers beside the products; one device alone has no peer."""
    for worker in workers:
        label, pace = worker.job.label, worker.pace
        details = {
            "peer": worker.job.peer,
            **worker.copies,
            "batches": pace.batches,
            "most_batches_without": pace.most_silent,
        }
        status, code, reason = _judge_copies(worker)
        report.add("stress.p2p", status, code=code, reason=reason, device=label, details=details)


def _judge_copies(worker: Worker) -> tuple[str, str, str]:
    """Return status, code and reason: copies that came wrong, that stopped, or were none."""
    label, peer, copies = worker.job.label, worker.job.peer, worker.copies
    if not peer:
        return "SKIP", "unsupported", f"{label} has no peer to copy to"
    if copies.get("wrong"):
        wrong = f"{copies['wrong']} wrong element(s) in {copies['copies']} copies"
        return "FAIL", "peer_copy_mismatch", f"{label}: {wrong} to {peer} beside the products"
    if not copies.get("copies") or not worker.pace.batches:
        return "ERROR", "interrupted", f"{label}: no copy to {peer} was counted"
    if halt := worker.pace.halt():
        return "FAIL", "slow_link", f"{label}: {halt} at {peer}"
    return "PASS", "", ""


def add_peers(report: Report, rates: list[Rate]) -> None:
    """Hold the rates of devices of one model, size and type against each other."""
    groups: dict[tuple[str, int, str], dict[str, float]] = {}
    for rate in rates:
        groups.setdefault((rate.model, rate.size, rate.dtype), {})[rate.label] = rate.tflops
    for (model, size, dtype), by_label in groups.items():
        details = {"size": size, "dtype": dtype, "tflops": by_label}
        slow = slow_ones(list(by_label.values()))
        for at, status, share in slow:
            label = list(by_label)[at]
            reason = f"{label}: {by_label[label]:.4g} TFLOPS, {share:.0%} of its peers ({model})"
            report.add(
                "stress.peers", status, code="peer_outlier", reason=reason,
                device=label, details=details,
            )  # fmt: skip
        if not slow and len(by_label) > 1:
            report.add("stress.peers", "PASS", details=details)


def rates_of_workers(workers: list[Worker], models: dict[str, str]) -> list[Rate]:
    """Return what the workers reached, as far as they worked."""
    single = [
        Rate(each.job.label, models.get(each.job.device, ""), each.size, each.job.dtype, each.rate)
        for each in workers
        if each.rates and not each.job.turns
    ]
    rotating = [
        Rate(each.job.label, models.get(each.job.device, ""), beats[-1].size, dtype, _rate(beats))
        for each in workers
        if each.job.turns
        for dtype, beats in each.by_dtype.items()
    ]
    return single + rotating


def _judge(worker: Worker) -> tuple[str, str, str]:
    """Return status, code and reason: a wrong element is worst, then not having worked."""
    device = worker.job.label
    if worker.errors:
        wrong = f"{worker.errors} wrong element(s) in {worker.products} products on {device}"
        return "FAIL", "wrong_result", wrong
    if worker.state == "failed":
        untested = ("could_not_run", "out_of_memory", "torch_without_arch")
        status = "ERROR" if worker.code in untested else "FAIL"
        return status, worker.code, f"{device}: {worker.reason}"
    if worker.state == "done" and worker.compared < worker.products:
        part = f"{worker.compared} of {worker.products} products were compared"
        return "ERROR", "could_not_run", f"{device}: {part}: nothing vouches for the others"
    if worker.products:
        return _judge_turns(worker) or _judge_steadiness(worker)
    if worker.state == "cut":
        return "ERROR", "interrupted", f"{device}: stopped before its first product"
    return "FAIL", "worker_failed", f"{device}: not one product was counted"


def _judge_turns(worker: Worker) -> tuple[str, str, str] | None:
    """Name the types that were to be burned in turn and that no rate was counted of."""
    lost = [dtype for dtype in worker.job.turns if dtype not in worker.by_dtype]
    if not lost:
        return None
    reason = f"{worker.job.label}: no turn for {', '.join(lost)}: a longer --duration has them all"
    return "WARN", "not_run", reason


def _judge_steadiness(worker: Worker) -> tuple[str, str, str]:
    """Compare the rate of the whole time with the median of its parts; a CPU always has others."""
    job = worker.job
    is_judged = job.device.startswith("cuda") or "slow" in job.faults
    if not worker.rates or job.pulse or job.turns or not is_judged:
        return "PASS", "", ""
    part = worker.rate / statistics.median(worker.rates)
    if part >= PART_WARN:
        return "PASS", "", ""
    status = "FAIL" if part < PART_FAIL else "WARN"
    reason = f"{job.label}: {worker.rate:.4g} TFLOPS over the whole time, {part:.2f} of the median"
    return status, "contended", f"{reason}: something else takes its time, or it is unstable"


def add_digests(report: Report, workers: list[Worker], models: dict[str, str]) -> None:
    """Compare the reference products of devices of one model: they must be the same bits."""
    groups: dict[tuple[str, int], list[Worker]] = {}
    for worker in workers:
        if worker.digest:
            model = models.get(worker.job.device, worker.job.device)
            groups.setdefault((model, worker.size), []).append(worker)
    for (model, size), alike in groups.items():
        if len(alike) > 1:
            _add_digests_of(report, model, size, alike)


def _add_digests_of(report: Report, model: str, size: int, alike: list[Worker]) -> None:
    """Compare the products of the devices of one model: a test for each that is another's."""
    details = {"size": size, "digests": {each.job.label: each.digest for each in alike}}
    odd = odd_ones([each.digest for each in alike])
    for label in (alike[at].job.label for at in odd):
        reason = f"{label}: another product than its peers ({model})"
        about = {"code": "digest_mismatch", "reason": reason, "device": label}
        report.add("stress.digest", "FAIL", **about, details=details)
    if not odd:
        report.add("stress.digest", "PASS", details=details)


def add_telemetry(report: Report, device: str, load: Load, *, steady: bool) -> None:
    """Judge one device's heat, throttling, memory errors, and whether it was busy."""
    if not load.samples:
        reason = f"{device}: the driver told nothing of it in the whole run"
        report.add("telemetry", "WARN", code="telemetry_unreadable", reason=reason, device=device)
        return
    bad = findings(load)
    if steady:
        bad += underloaded(load)
    details = {**load.as_json(), "timeline": load.timeline.as_json()}
    for status, code, reason in bad:
        where = f"{device}: {reason}"
        report.add("telemetry", status, code=code, reason=where, device=device, details=details)
    if not bad:
        report.add("telemetry", "PASS", device=device, details=details)
