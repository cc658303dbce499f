#!/usr/bin/env python3
"""Infer images with a network of the shape of ResNet-50 in mixed precision, every output checked.

    python inference.py                        # each GPU in turn
    torchrun --nproc_per_node=gpu inference.py # all at once, a process each

Some outputs are held against a CPU in single precision; every output that is timed against a
proven run. Images a second are those of the whole span, by the clock, and judged by what such a GPU
reached elsewhere and by the other GPUs.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

from _harness.flags import whole
from _harness.main import Payload, Session, run
from _harness.ranks import node_name
from _harness.timing import rounds_for
from _telemetry.sharing import PART_FAIL, PART_WARN
from contract.catalogue import OF_OUTPUTS
from contract.schema import HIGHER, metric
from contract.stats import slow_ones

if TYPE_CHECKING:
    import argparse

    from _inference.batches import Batches

SECONDS, QUICK_SECONDS, WARM_UP_S = 20.0, 3.0, 1.0
BATCH = 256
LEAST, MOST, MOST_ON_CPU = 8, 10_000, 40  # batches that are timed
TEST = "inference.throughput"


class Reading(NamedTuple):
    """The images a second of one device; one that failed has none."""

    where: str
    host: str
    rank: int
    device: str
    model: str
    rate: float


def body(session: Session) -> None:
    """Infer on each device of this process, at the same time as the other ranks; compare them."""
    session.need_torch()
    devices = session.devices()
    if session.ranks.alone:
        compare(session, [reading for device in devices for reading in readings(session, device)])
        return
    with session.group("cpu", backend="gloo") as group:
        group.dist.barrier()
        own = [reading for device in devices for reading in readings(session, device)]
        parts: list[list[Reading]] = [[] for _ in range(group.ranks.world)]
        group.dist.all_gather_object(parts, own)
    if session.ranks.rank == 0:
        compare(session, [reading for part in parts for reading in part])


def readings(session: Session, device: str) -> list[Reading]:
    """Prove and time batches on one device; what fails has no reading."""
    from _inference.batches import Batches
    from _inference.resnet import FULL, TINY

    options, found = session.options, list[Reading]()
    is_cpu = device == "cpu"
    session.torch.backends.cudnn.benchmark = True  # the fastest algorithm, chosen once a shape
    size = options.batch_size or (4 if is_cpu else BATCH)
    with session.attempt(TEST, device=device):
        shape = TINY if is_cpu and not options.full else FULL
        faults = striking(session), misplacing(session)
        work = Batches(shape, size, device, options.seed, faults)
        prove(session, work)
        session.probe(device)
        found.append(reading(session, work))
        session.probe(device)
    return found


def prove(session: Session, work: Batches) -> None:
    """Hold the outputs that all others are compared with against single precision on a CPU."""
    name, device = "inference.reference", work.device
    with session.attempt(name, device=device):
        distance = work.require_proven(spoil=session.faults.get("reference") is not None)
        details = {"distance": distance, "places": work.require_places(), "dtype": work.kind}
        session.report.add(name, "PASS", device=device, details=details)


def reading(session: Session, work: Batches) -> Reading:
    """Time batches and report the rate, with what is wrong with it."""
    options = session.options
    seconds = options.duration or (QUICK_SECONDS if options.quick else SECONDS)
    each, span = stretched(session, *spans(work, seconds))
    details = work.require_right()
    rate, single = work.size * len(each) / span, [work.size / one for one in each]
    part = rate / statistics.median(single)
    about = {"value": rate, "size": work.size, "dtype": work.kind, "whole_s": span}
    metrics = [metric("images", single, "images/s", HIGHER, **about)]
    verdict = judged(session, work.device, part, details)
    session.report.add(TEST, device=work.device, metrics=metrics, details=details, **verdict)
    print(
        f"[INFERENCE] {work.device}: {rate:,.0f} images/s, {work.kind}, batches of {work.size}\n",
        end="",
        flush=True,
    )
    models = session.report.models
    host, rank = node_name(), session.ranks.rank
    where = f"{work.device} of rank {rank} on {host}"
    return Reading(where, host, rank, work.device, models.get(work.device, "cpu"), rate)


def spans(work: Batches, seconds: float) -> tuple[list[float], float]:
    """Warm up, then time batches for so many seconds; on a CPU forty batches at most."""
    from _inference.batches import timed

    is_cpu = work.device == "cpu"
    each, _ = timed(work, 3)
    each, _ = timed(work, 3 if is_cpu else rounds_for(WARM_UP_S, each[-1], 3))
    most = MOST_ON_CPU if is_cpu else MOST
    return timed(work, rounds_for(seconds, each[-1], LEAST, most))


def stretched(session: Session, each: list[float], span: float) -> tuple[list[float], float]:
    """Return times as injected faults make them: all longer, or only the whole span."""
    slow, stretch = session.faults.get("slow"), session.faults.get("stretch")
    factor = slow.number("factor", 2) if slow else 1.0
    more = stretch.number("factor", 2) if stretch else 1.0
    return [factor * one for one in each], factor * more * span


def judged(session: Session, device: str, part: float, details: dict[str, int]) -> dict[str, str]:
    """Judge a rate within the run: against the median of single batches, and their bits."""
    is_asked = device != "cpu" or session.faults.get("stretch")
    if is_asked and part < PART_WARN:
        is_failure = part < PART_FAIL and not session.options.allow_busy_gpus
        reason = f"{device}: {part:.2f} of what single batches promise: shared, or unstable"
        return {"status": "FAIL" if is_failure else "WARN", "code": "contended", "reason": reason}
    if details["other_bits"]:
        many = f"{details['other_bits']} of {details['compared']} outputs"
        reason = f"{device}: {many} are rounded otherwise than the first time"
        return {"status": "WARN", "code": "not_repeatable", "reason": reason}
    return {"status": "PASS"}


def striking(session: Session) -> Any:
    """Return what makes outputs in place of the device, where a fault is injected."""
    if not any(session.faults.get(name) for name in OF_OUTPUTS):
        return None
    faults = session.faults

    def strike(number: int, out: Any, proven: list[Any]) -> Any:
        if faults.get("wrong-output", batch=number):
            out[-1] = out[-1] * -3 + 1
        if stale := faults.get("stale-output", batch=number):
            out = proven[(number - int(stale.number("back", 1))) % len(proven)].clone()
        if faults.get("not-launched", batch=number):
            out.fill_(float("nan"))
        if faults.get("other-rounding", batch=number):
            out[0, 0] *= 1.01
        return out

    return strike


def misplacing(session: Session) -> Any:
    """Return what makes one image wrong at its place of each batch, where that is injected."""
    if not session.faults.get("wrong-place"):
        return None

    def misplace(out: Any) -> Any:
        out[-1] = -out[-1]
        return out

    return misplace


def compare(session: Session, every: list[Reading]) -> None:
    """Hold the devices of one model against each other."""
    is_asked = any(fault.name == "slow" for fault in session.faults.faults)
    if len(every) < 2 or (every[0].model == "cpu" and not is_asked):
        return
    slow = [found for model in {each.model for each in every} for found in behind(every, model)]
    for status, one, share in slow:
        reason = f"{one.where}: {share:.0%} of what its peers infer"
        about = {"host": one.host, "rank": one.rank, "device": one.device}
        session.report.add("inference.peers", status, code="peer_outlier", reason=reason, **about)
    if not slow:
        session.report.add("inference.peers", "PASS", details={"devices": len(every)})


def behind(every: list[Reading], model: str) -> list[tuple[str, Reading, float]]:
    """Return the slow ones of a model: verdict, reading, and its part of what peers reach."""
    alike = [each for each in every if each.model == model]
    found = slow_ones([each.rate for each in alike])
    return [(status, alike[at], share) for at, status, share in found]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload."""
    parser.add_argument("--batch-size", type=whole, help="images of a batch (256; 4 on a CPU)")
    parser.add_argument("--full", action="store_true", help="on a CPU too the whole network")


PAYLOAD = Payload(
    "inference",
    "Infer images with a network of the shape of ResNet-50 in mixed precision.",
    body,
    add_flags=add_flags,
)

if __name__ == "__main__":
    run(PAYLOAD)
