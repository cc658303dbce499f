"""What a run of workers shows: success, isolation, balance, scaling, and what it left behind."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from typing import TYPE_CHECKING, Any

from _loading import cpus
from contract.nvidia import used_memory_mib
from contract.schema import HIGHER, metric

from .expected import Gates, gates
from .slots import Slot, reachable
from .workers import GONE_WITHIN_S, end_left_over

if TYPE_CHECKING:
    from _harness.main import Session

    from .workers import Order

SUCCESS = 0.8
BALANCE = 1.25  # operations of the busiest GPU over those of the least busy one
LEAK_MIB = 64
PAUSE_S, PAUSE, IDLE = 3.0, 0.2, 0.8
"""A worker on a GPU that pauses for so long, and this share of its time, stands still; on a CPU
one that neither ran nor waited to run for this share."""
FLOORS = ((1, 1.0), (2, 1.8), (4, 3.5), (8, 6.0))
"""What so many GPUs do at least, in multiples of what one does."""


def _add(session: Session, name: str, code: str, reason: str, **more: Any) -> None:
    """Add a test that fails for this reason, if there is one."""
    verdict = {"status": "PASS"}
    if reason:
        verdict = {"status": "FAIL", "code": code, "reason": reason}
    session.report.add(f"alloc.{name}", **verdict, **more)


def workers(session: Session, results: list[dict[str, Any]]) -> None:
    """Judge how many workers succeeded, and keep their rates."""
    good = [result for result in results if result["status"] == "success"]
    for result in results:
        how = result["error"] if result not in good else f"{result['ops_per_second']:.1f} ops/s"
        where = f"worker {result['worker']} on {result['slot']}"
        session.say("COMPUTE", f"{where}: {result['status']} {how}")
    rate = len(good) / len(results)
    session.say("COMPUTE", f"Successful Workers: {len(good)}/{len(results)}")
    session.say("COMPUTE", f"Success Rate: {rate:.1%}")
    metrics, overlap_s = [], 0.0
    if good:
        rates = [result["ops_per_second"] for result in good]
        metrics = [metric("ops_per_second", rates, "ops/s", HIGHER)]
        overlap_s = min(result["ended"] for result in good) - max(r["begun"] for r in good)
    details = {"workers": results, "success_rate": rate, "overlap_s": overlap_s}
    session.report.add("alloc.workers", **_success(results), details=details, metrics=metrics)


def _success(results: list[dict[str, Any]]) -> dict[str, str]:
    """Return the verdict of the success rate, with the first worker that failed."""
    bad = [result for result in results if result["status"] != "success"]
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


def right(session: Session, results: list[dict[str, Any]]) -> None:
    """Fail where a worker computed anything wrong: a rate of success is no excuse for that."""
    bad = [result for result in results if result.get("wrong")]
    reason = ""
    if bad:
        first, many = bad[0], sum(result["wrong"] for result in bad)
        where = f"first worker {first['worker']} on {first['slot']}"
        reason = f"{many} wrong products of {len(bad)} workers, {where}"
    counted = sum(result.get("operations", 0) for result in results)
    _add(session, "products", "wrong_result", reason, details={"compared": counted})


def progress(session: Session, slots: list[Slot], results: list[dict[str, Any]]) -> None:
    """Fail where a worker stood still, or did far less than those beside it on its GPU."""
    good = [result for result in results if result["status"] == "success"]
    still = [result for result in good if _stands_still(slots[0].kind, result)]
    reason = ""
    if still:
        first = still[0]
        done = f"{first['operations']} operations in {first['duration']:.1f} s"
        reason = f"worker {first['worker']} on {first['slot']} stood still: {done}"
    elif slots[0].kind != "cpu" and (slow := _behind(good)):
        reason = f"worker {slow['worker']} on {slow['slot']} did less than half of its neighbours"
    _add(session, "progress", "worker_failed", reason)


def _stands_still(kind: str, result: dict[str, Any]) -> bool:
    if kind == "cpu":
        return result["idle"] is not None and result["idle"] > IDLE
    return bool(result["longest_s"] > max(PAUSE_S, PAUSE * result["duration"]))


def _behind(good: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return a worker that did less than half of the median on its slot."""
    for result in good:
        beside = [one["operations"] for one in good if one["slot"] == result["slot"]]
        if result["operations"] < statistics.median(beside) / 2:
            return result
    return None


def isolation(session: Session, results: list[dict[str, Any]]) -> None:
    """Fail where a worker saw another device than its own."""
    reason = ""
    for result in reversed(results):
        if result.get("isolation"):
            reason = f"worker {result['worker']} on {result['slot']}: {result['error']}"
    _add(session, "isolation", "gpu_not_ours", reason)


def balance(
    session: Session, slots: list[Slot], orders: list[Order], results: list[dict[str, Any]]
) -> None:
    """Compare the numbers of workers and the work done on each slot."""
    workers: dict[str, list[dict[str, Any]]] = {slot.name: [] for slot in slots}
    for order, result in zip(orders, results, strict=True):
        workers[order.slot.name].append(result)
    done = {name: _sum(of_slot, "operations") for name, of_slot in workers.items()}
    counts = {name: len(of_slot) for name, of_slot in workers.items()}
    for name, count in counts.items():
        average = done[name] / max(1, count) / session.options.duration
        text = f"{name}: {count} workers, {average:.1f} ops/s each"
        session.say("COMPUTE", f"GPU Utilization Breakdown {text}")
    ratio = _ratio(session, workers, slots[0].kind)
    has_failed = any(result["status"] != "success" for result in results)
    limit = None if has_failed else _limit(session, slots[0].kind)
    details = {"workers": counts, "operations": done, "ratio": ratio}
    _add(session, "balance", "unbalanced", _imbalance(counts, ratio, limit), details=details)


def _ratio(session: Session, workers: dict[str, list[dict[str, Any]]], kind: str) -> float:
    """Return the most work of a slot over the least that another one of its model did."""
    by_model: dict[str, list[float]] = {}
    for name, of_slot in workers.items():
        if of_slot:
            by_model.setdefault(session.report.models.get(name, ""), []).append(
                _work(of_slot, kind)
            )
    return max(max(work) / max(1.0, min(work)) for work in by_model.values())


def _imbalance(counts: dict[str, int], ratio: float, limit: float | None) -> str:
    """Return what is not balanced: the workers of the slots, or their work; "" where both are."""
    if max(counts.values()) - min(counts.values()) > 1:
        return f"workers a slot: {', '.join(f'{name} {n}' for name, n in counts.items())}"
    if limit and ratio > limit:
        return f"the busiest slot did {ratio:.2f} times the work of the least busy, over {limit}"
    return ""


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


def scaling(session: Session, slots: list[Slot], results: list[dict[str, Any]]) -> None:
    """Compare the rate of all slots with what the first one's workers did while the others waited.

    As many workers share a GPU then as later: what its time slices cost is no loss of scaling.
    """
    why_not = _why_no_scaling(session, slots, results)
    if why_not:
        session.report.add("alloc.scaling", "SKIP", code="unsupported", reason=why_not)
        return
    alone, together = _sum(results, "alone_ops_per_second"), _sum(results, "ops_per_second")
    if session.faults.get("no-scaling"):
        together = alone
    used = len({result["slot"] for result in results})
    times, floor = together / alone, floor_of(used)
    text = f"{used} slots: {times:.2f} times what one does"
    session.say("COMPUTE", f"scaling {text}")
    judged = slots[0].kind != "cpu" or session.faults.get("no-scaling")
    verdict = {"status": "PASS"}
    if judged and times < floor:
        reason = f"{text}, below {floor:.2f}"
        verdict = _excused(
            {"status": "FAIL", "code": "below_floor", "reason": reason}, slots, results
        )
    numbers = [metric("scaling", [times], "", HIGHER)]
    details = {"alone": alone, "together": together, "floor": floor}
    session.report.add("alloc.scaling", **verdict, details=details, metrics=numbers)


def _excused(
    verdict: dict[str, str], slots: list[Slot], results: list[dict[str, Any]]
) -> dict[str, str]:
    """Return a warning for a loss of speed where workers wait for CPUs, which says nothing of GPUs.

    Each keeps one busy while it waits for its GPU.
    """
    count = cpus.effective()[0]
    if verdict["status"] != "FAIL" or slots[0].kind == "cpu" or count >= len(results):
        return verdict
    reason = f"{verdict['reason']}; CPUs for {len(results)} workers: {count}"
    return {"status": "WARN", "code": "jitter", "reason": reason}


def _why_no_scaling(session: Session, slots: list[Slot], results: list[dict[str, Any]]) -> str:
    """Return why one slot cannot be compared with all, "" where it can."""
    models = sorted(set(session.report.models.values()))
    if len(models) > 1:
        return f"one GPU's rate says nothing of other models: {', '.join(models)}"
    if len({result["slot"] for result in results}) < 2:
        return "no other slot"
    silent = [
        result["worker"]
        for result in results
        if result["slot"] == slots[0].name and "alone_ops_per_second" not in result
    ]
    return f"worker {silent[0]} of {slots[0].name} told no rate" if silent else ""


def floor_of(count: int) -> float:
    """Return what so many GPUs do at least, over one: between the known numbers as on a line."""
    if count > FLOORS[-1][0]:
        return FLOORS[-1][1] * count / FLOORS[-1][0]
    for (few, low), (many, high) in itertools.pairwise(FLOORS):
        if count <= many:
            return low + (high - low) * (count - few) / (many - few)
    return 0.0


def _gates(session: Session, slots: list[Slot]) -> dict[str, Gates]:
    """Return each slot's gates: what is asked for, else what is usual of its model.

    A slice of a GPU is not held against a whole one, nor a CPU against any.
    """
    asked, devices = session.options.ops_floor, session.report.devices
    if asked or slots[0].kind == "cpu" or any(device["mig"] for device in devices):
        return {slot.name: Gates(0.0, asked or 0.0) for slot in slots}
    models = session.report.models
    return {slot.name: gates(models[slot.name], session.options.memory) for slot in slots}


def operations(session: Session, slots: list[Slot], results: list[dict[str, Any]]) -> None:
    """Hold each GPU's operations a second against what is asked for, or usual of its model."""
    rates = {
        slot.name: _sum([one for one in results if one["slot"] == slot.name], "ops_per_second")
        for slot in slots
    }
    floors = _gates(session, slots)
    details = {"by_slot": rates, "gates": {name: each._asdict() for name, each in floors.items()}}
    verdict = _excused(_slowness(rates, floors), slots, results)
    session.report.add("alloc.operations", **verdict, details=details)


def _slowness(rates: dict[str, float], floors: dict[str, Gates]) -> dict[str, str]:
    """Return the verdict of rates, naming the slots that are below one of their gates."""
    slow = [name for name, rate in rates.items() if rate < max(floors[name])]
    if not slow:
        return {"status": "PASS"}
    said = [f"{name} {rates[name]:.1f}, below {max(floors[name]):.4g}" for name in slow]
    is_failure = any(rates[name] < floors[name].fail for name in slow)
    status, code = ("FAIL", "below_floor") if is_failure else ("WARN", "below_reference")
    return {"status": status, "code": code, "reason": f"operations a second: {'; '.join(said)}"}


def leaks(session: Session, mark: str, before: dict[str, int]) -> None:
    """Look for processes that stayed, and for memory that did not come back."""
    left, reason = end_left_over(mark), ""
    if left:
        reason = f"{len(left)} processes stayed after the workers: {left[:5]}; they were ended"
    _add(session, "processes", "process_leak", reason)
    is_injected = session.faults.get("held-memory")
    if is_injected:
        before = {"injected": 0}
    if not before:
        reason = "nvidia-smi does not tell the memory in use"
        session.report.add("alloc.memory", "SKIP", code="unsupported", reason=reason)
        return
    after = {"injected": 2 * LEAK_MIB} if is_injected else _settled(before)
    grown = {name: after.get(name, 0) - used for name, used in before.items()}
    kept = [f"{name} {mib} MiB" for name, mib in grown.items() if mib > LEAK_MIB]
    reason = f"memory did not come back: {', '.join(kept)}" if kept else ""
    details = {"before_mib": before, "after_mib": after}
    _add(session, "memory", "memory_leak", reason, details=details)


def _settled(before: dict[str, int]) -> dict[str, int]:
    """Read memory in use until it is back, for as long as processes are given to end."""
    deadline_s = time.monotonic() + GONE_WITHIN_S
    while True:
        after = used_memory_mib()
        back = all(after.get(name, 0) - used <= LEAK_MIB for name, used in before.items())
        if back or time.monotonic() > deadline_s:
            return after
        time.sleep(0.5)


def neighbours(session: Session, slots: list[Slot]) -> None:
    """In a job, warn where GPUs that were not given can be opened all the same."""
    is_injected = session.faults.get("neighbour")
    has_mig = any(device["mig"] for device in session.report.devices)
    if not is_injected and (slots[0].kind == "cpu" or "SLURM_JOB_ID" not in os.environ or has_mig):
        return
    more = 1 if is_injected else reachable(len(slots))
    verdict = {"status": "PASS"}
    if more:
        reason = f"{more} GPUs of this node that the job was not given can be opened"
        verdict = {"status": "WARN", "code": "neighbour_reachable", "reason": reason}
    session.report.add("alloc.neighbours", **verdict)
