"""What a run of workers shows: success, isolation, balance, scaling, and what it left behind."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from contract.nvidia import used_memory_mib
from contract.schema import HIGHER, metric

from .slots import Slot, reachable
from .workers import GONE_WITHIN, end_left_over

if TYPE_CHECKING:
    from _harness.main import Session

    from .workers import Order

SUCCESS = 0.8
BALANCE = 1.25
"""Operations of the busiest GPU over those of the least busy one."""
LEAK_MIB = 64


def workers(session: Session, results: list[dict[str, Any]]) -> None:
    """Judge how many workers succeeded, and keep their rates."""
    good = [one for one in results if one["status"] == "success"]
    for one in results:
        how = one["error"] if one not in good else f"{one['ops_per_second']:.1f} ops/s"
        session.say("COMPUTE", f"worker {one['worker']} on {one['slot']}: {one['status']} {how}")
    session.say("COMPUTE", f"Successful Workers: {len(good)}/{len(results)}")
    session.say("COMPUTE", f"Success Rate: {len(good) / len(results):.1%}")
    metrics, overlap_s = [], 0.0
    if good:
        rates = [one["ops_per_second"] for one in good]
        metrics = [metric("ops_per_second", rates, "ops/s", HIGHER)]
        overlap_s = min(one["ended"] for one in good) - max(one["begun"] for one in good)
    rate = len(good) / len(results)
    details = {"workers": results, "success_rate": rate, "overlap_s": overlap_s}
    session.report.add("alloc.workers", **_success(results), details=details, metrics=metrics)


def _success(results: list[dict[str, Any]]) -> dict[str, str]:
    """Return the verdict of the success rate, with the first worker that failed."""
    bad = [one for one in results if one["status"] != "success"]
    if not bad:
        return {"status": "PASS"}
    good, first = len(results) - len(bad), bad[0]
    code, advice = "worker_failed", ""
    if first.get("out_of_memory"):
        code, advice = "out_of_memory", "; use a smaller --memory or fewer --workers"
    where = f"{good} of {len(results)} workers succeeded; worker {first['worker']}"
    reason = f"{where} on {first['slot']}: {first['error']}{advice}"
    status = "WARN" if good / len(results) >= SUCCESS else "FAIL"
    return {"status": status, "code": code, "reason": reason}


def isolation(session: Session, found: list[dict[str, Any]]) -> None:
    """Fail where a worker saw another device than its own."""
    strange = [one for one in found if one.get("isolation")]
    verdict = {"status": "PASS"}
    if strange:
        reason = f"worker {strange[0]['worker']} on {strange[0]['slot']}: {strange[0]['error']}"
        verdict = {"status": "FAIL", "code": "gpu_not_ours", "reason": reason}
    session.report.add("alloc.isolation", **verdict)


def balance(
    session: Session, slots: list[Slot], orders: list[Order], found: list[dict[str, Any]]
) -> None:
    """Compare the numbers of workers and the work done on each slot."""
    workers: dict[str, list[dict[str, Any]]] = {slot.name: [] for slot in slots}
    for order, result in zip(orders, found, strict=True):
        workers[order.slot_name].append(result)
    done = {name: _sum(results, "operations") for name, results in workers.items()}
    counts = {name: len(results) for name, results in workers.items()}
    for name, count in counts.items():
        average = done[name] / max(1, count) / session.options.duration
        text = f"{name}: {count} workers, {average:.1f} ops/s each"
        session.say("COMPUTE", f"GPU Utilization Breakdown {text}")
    work = [_work(results, slots[0].kind) for results in workers.values() if results]
    ratio = max(work) / max(1.0, min(work))
    has_failed = any(result["status"] != "success" for result in found)
    limit = None if has_failed else _limit(session, slots[0].kind)
    details = {"workers": counts, "operations": done, "ratio": ratio}
    session.report.add("alloc.balance", **_balanced(counts, ratio, limit), details=details)


def _limit(session: Session, kind: str) -> float | None:
    """Return the most that the busiest slot may do of the least busy one's work, None for any."""
    return session.options.balance or (None if kind == "cpu" else BALANCE)


def _work(results: list[dict[str, Any]], kind: str) -> float:
    """Return a slot's work: operations, on a CPU those of a processor second.

    Other programs on the machine take seconds of a processor, and would look like an imbalance.
    """
    if kind != "cpu":
        return _sum(results, "operations")
    return _sum(results, "operations") / max(_sum(results, "processor_s"), 1e-9)


def _sum(results: list[dict[str, Any]], name: str) -> float:
    return sum(result.get(name, 0) for result in results)


def _balanced(counts: dict[str, int], ratio: float, limit: float | None) -> dict[str, str]:
    """Return the verdict of the numbers of workers a slot, and of their work."""
    reason = ""
    if max(counts.values()) - min(counts.values()) > 1:
        reason = f"workers a slot: {', '.join(f'{name} {n}' for name, n in counts.items())}"
    elif limit and ratio > limit:
        reason = f"the busiest slot did {ratio:.2f} times the work of the least busy, over {limit}"
    if not reason:
        return {"status": "PASS"}
    return {"status": "FAIL", "code": "unbalanced", "reason": reason}


def scaling(
    session: Session, slots: list[Slot], found: list[dict[str, Any]], alone: float | None
) -> None:
    """Say how many times the rate of one worker all of them have."""
    if not alone:
        return
    together = sum(one.get("ops_per_second", 0.0) for one in found)
    text = f"{len(found)} workers on {len(slots)} slots: {together / alone:.2f} times one worker"
    session.say("COMPUTE", f"scaling {text}")
    numbers = [metric("scaling", [together / alone], "", HIGHER)]
    details = {"alone": alone, "together": together}
    session.report.add("alloc.scaling", "PASS", details=details, metrics=numbers)


def leaks(session: Session, mark: str, before: dict[str, int]) -> None:
    """Look for processes that stayed, and for memory that did not come back."""
    left = end_left_over(mark)
    verdict = {"status": "PASS"}
    if left:
        reason = f"{len(left)} processes stayed after the workers: {left[:5]}; they were ended"
        verdict = {"status": "FAIL", "code": "process_leak", "reason": reason}
    session.report.add("alloc.processes", **verdict)
    held = session.faults.get("held-memory")
    if held:
        before = {"injected": 0}
    if not before:
        reason = "nvidia-smi does not tell the memory in use"
        session.report.add("alloc.memory", "SKIP", code="unsupported", reason=reason)
        return
    after = {"injected": 2 * LEAK_MIB} if held else _settled(before)
    kept = [f"{name} {after[name] - before[name]} MiB" for name in before
            if after.get(name, 0) - before[name] > LEAK_MIB]  # fmt: skip
    verdict = {"status": "PASS"}
    if kept:
        reason = f"memory did not come back: {', '.join(kept)}"
        verdict = {"status": "FAIL", "code": "memory_leak", "reason": reason}
    details = {"before_mib": before, "after_mib": after}
    session.report.add("alloc.memory", **verdict, details=details)


def _settled(before: dict[str, int]) -> dict[str, int]:
    """Read memory in use until it is back, for as long as processes are given to end."""
    deadline = time.monotonic() + GONE_WITHIN
    while True:
        after = used_memory_mib()
        back = all(after.get(name, 0) - used <= LEAK_MIB for name, used in before.items())
        if back or time.monotonic() > deadline:
            return after
        time.sleep(0.5)


def neighbours(session: Session, slots: list[Slot]) -> None:
    """In a job, warn where GPUs that were not given can be opened all the same."""
    if slots[0].kind == "cpu" and not session.faults.get("neighbour"):
        return
    if "SLURM_JOB_ID" not in os.environ and not session.faults.get("neighbour"):
        return
    if session.report.devices and any(device["mig"] for device in session.report.devices):
        return
    more = 1 if session.faults.get("neighbour") else reachable(len(slots))
    verdict = {"status": "PASS"}
    if more:
        reason = f"{more} GPUs of this node that the job was not given can be opened"
        verdict = {"status": "WARN", "code": "neighbour_reachable", "reason": reason}
    session.report.add("alloc.neighbours", **verdict)
