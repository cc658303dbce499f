#!/usr/bin/env python3
"""A first honest check of what a job was given: environment, devices, and products of matrices.

For each number type, on all GPUs at once: a product of +1 and -1 that must be exact, one that
must be the same each time and on each GPU of a model, one at full size proven by Freivalds' test,
and how fast they are, beside a plain loop of torch.mm and beside the other GPUs.

    python check.py --quick
    python check.py --dtypes bf16,fp8 --search
    torchrun --nproc_per_node=gpu check.py       # also over several nodes

Stand-alone: stdlib, and torch where there is one.
"""

from __future__ import annotations

import argparse
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from _harness.devices import in_smi_order
from _harness.files import compute_aliases
from _harness.flags import whole
from _harness.main import Payload, Session, run
from _harness.ranks import node_name
from _matmul import exact, speed
from _matmul.dtypes import KINDS, Factors, Kind, precision, why_not
from _matmul.timed import Products
from _telemetry.diagnosis import diagnose
from _telemetry.sharing import PART_FAIL, PART_WARN
from contract.catalogue import OF_PRODUCTS
from contract.dcgm import TIMES_S

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS, QUICK_REPEATS = 20, 5
OWN_S = 300.0  # beside DCGM's time
BARE = 0.90  # of the plain loop: below, the measuring itself takes time


def body(session: Session) -> None:
    """Test every type on every device, then the devices against each other."""
    devices = session.devices()
    if session.torch is None:
        check_python(session)
        return
    if session.options.dcgm:
        diagnose(session, session.options.dcgm)
    readings: list[speed.Reading] = []
    for kind in session.options.dtypes:
        with precision(session.torch, kind):
            readings += check_kind(session, kind, devices)
    compare(session, readings)


def check_kind(session: Session, kind: Kind, devices: list[str]) -> list[speed.Reading]:
    """Test one type on all devices: right first, then fast."""
    able = [device for device in devices if can(session, kind, device)]
    if not able:
        return []
    exact.reference(session.torch, size_of(session, able[0]), session.options.seed)
    digests = together(session, able, lambda device: check_right(session, kind, device))
    lines: dict[str, list[str]] = {device: [] for device in able}
    rates = together(session, able, lambda one: check_speed(session, kind, one, lines[one]))
    show_all(session.report.devices, lines)
    both = zip(able, digests, rates, strict=True)
    return [reading(session, kind, *each) for each in both if each[1]]


def can(session: Session, kind: Kind, device: str) -> bool:
    """Return whether a device has this type; where not, that is a test skipped."""
    reason = why_not(session.torch, kind, device)
    if reason:
        where = {"code": "unsupported", "reason": f"{kind.name}: {reason}", "device": device}
        session.report.add(f"matmul.{kind.name}", "SKIP", **where)
    return not reason


def together(session: Session, devices: list[str], work: Callable[[str], Any]) -> list[Any]:
    """Work on all devices at the same time, as a job does that uses them; or one by one."""
    if session.options.serial or len(devices) == 1:
        return [work(device) for device in devices]
    with ThreadPoolExecutor(len(devices)) as pool:
        return list(pool.map(work, devices))


def check_right(session: Session, kind: Kind, device: str) -> str:
    """Run the three tests of correctness; return the digest, empty where there is none."""
    torch, options, faults = session.torch, session.options, session.faults
    size, name, digest = size_of(session, device), f"matmul.{kind.name}", ""
    with session.attempt(f"{name}.exact", device=device):
        spoil = faults.get("wrong-product", dtype=kind.name) is not None
        exact.require_exact(torch, kind, device, size, options.seed, spoil=spoil)
        session.report.add(f"{name}.exact", "PASS", device=device, details={"size": size})
    with session.attempt(f"{name}.repeat", device=device):
        given = exact.seeded(torch, kind, device, size, options.seed)
        given = replace(given, strike=striking(session, kind, "repeat"))
        times = QUICK_REPEATS if options.quick else REPEATS
        spoil = faults.get("not-repeatable", dtype=kind.name) is not None
        digest = exact.repeat(given, times, options.seed, spoil=spoil)
        if faults.get("digest", dtype=kind.name):
            digest = digest[::-1]
        details = {"size": size, "times": times, "digest": digest}
        session.report.add(f"{name}.repeat", "PASS", device=device, details=details)
    return digest


def check_speed(session: Session, kind: Kind, device: str, lines: list[str]) -> float:
    """Prove and time products at full size; return the TFLOPS of the largest, or 0 of none.

    `lines` takes what to print of this device once all are done: in the order of nvidia-smi.
    """
    best, faults, shapes = 0.0, session.faults, list[speed.Shape]()
    slow, stretched = faults.get("slow", dtype=kind.name), faults.get("stretch", dtype=kind.name)
    with session.attempt(f"matmul.{kind.name}", device=device):
        shapes = shapes_of(session, kind, device)
    for shape in shapes:
        with session.attempt(f"matmul.{kind.name}", device=device):
            speed.require_room(session.torch, kind, device, shape)
            given = speed.random_factors(session.torch, kind, device, shape, session.options.seed)
            given = replace(given, strike=striking(session, kind, "timed"))
            products = Products(given, device)
            prove(session, kind, device, products)
            session.probe(device)
            measured = speed.measure(
                products, device, quick=session.options.quick,
                slow=slow.number("factor", 2) if slow else 1.0,
                stretch=stretched.number("factor", 2) if stretched else 1.0,
            )  # fmt: skip
            session.probe(device)
            best = add_speed(session, kind, device, measured)
            about = f"{measured.of_bare:.2f} of a plain loop"
            lines.append(line_of(kind, device, measured.metrics[0], about))
    if session.options.search:
        search(session, kind, device, lines)
    return best


def prove(session: Session, kind: Kind, device: str, products: Products) -> None:
    """Check the product that all timed ones are compared with, by Freivalds' test."""
    given, product = products.given, products.reference
    name, spoil = f"matmul.{kind.name}.residual", session.faults.get("residual", dtype=kind.name)
    with session.attempt(name, device=device):
        seed = session.options.seed
        residual = exact.require_small(given, product, device, seed, spoil=spoil is not None)
        shape = "x".join(map(str, given.shape))
        session.report.add(name, "PASS", device=device, details={**residual, "shape": shape})


def striking(session: Session, kind: Kind, stage: str) -> Callable[[Factors, Any], None] | None:
    """Return what makes products in place of the device, where a fault strikes in this stage."""
    numbers, where = itertools.count(), {"dtype": kind.name, "stage": stage}
    if not any(session.faults.get(name, **where) for name in OF_PRODUCTS):
        return None

    def strike(given: Factors, out: Any) -> None:
        number = next(numbers)
        here = {name for name in OF_PRODUCTS if session.faults.get(name, **where, product=number)}
        half = len(out) // 2
        if "half-written" in here:
            out[:half] = replace(given, left=given.left[:half], strike=None).product()
        elif "not-launched" not in here:
            given.multiply(out)
        if "wrong-element" in here:
            out[1, 2] = -out[1, 2] - 1

    return strike


def add_speed(session: Session, kind: Kind, device: str, measured: speed.Speed) -> float:
    """Report a speed, with what is wrong with it."""
    tflops, outcome = measured.metrics[0], judged(session, kind, device, measured)
    details = {"concurrent": not session.options.serial}
    session.report.add(
        f"matmul.{kind.name}", device=device, metrics=measured.metrics, details=details, **outcome
    )
    return float(tflops["value"]) if measured.is_fed else 0.0


def judged(session: Session, kind: Kind, device: str, measured: speed.Speed) -> dict[str, str]:
    """Judge a speed within the run: against the median of its products, and the plain loop.

    Where the device waited for this process in spite of all attempts, nothing is known of its own.
    """
    if not measured.is_fed:
        reason = f"{device} {kind.name}: it waited for this process: its rate is too low"
        return {"status": "WARN", "code": "jitter", "reason": reason}
    is_asked = device != "cpu" or session.faults.get("stretch")
    if is_asked and measured.of_median < PART_WARN:
        what = f"{device} {kind.name}: {measured.of_median:.2f} of what single products promise"
        is_failure = measured.of_median < PART_FAIL and not session.options.allow_busy_gpus
        reason = f"{what}: something else takes the rest of its time, or it is unstable"
        return {"status": "FAIL" if is_failure else "WARN", "code": "contended", "reason": reason}
    if measured.of_bare < BARE and device != "cpu" and not session.faults.get("slow"):
        reason = f"{device} {kind.name}: {measured.of_bare:.2f} of a plain loop of torch.mm"
        return {"status": "WARN", "code": "jitter", "reason": reason}
    return {"status": "PASS"}


def show_all(described: list[dict[str, Any]], lines: dict[str, list[str]]) -> None:
    """Print the lines of all devices: by device, and these as nvidia-smi lists them."""
    for device in in_smi_order(described, lines):
        print("".join(lines[device]), end="", flush=True)


def line_of(kind: Kind, device: str, tflops: dict[str, Any], more: str) -> str:
    """Return one line, of every rank: `[COMPUTE] cuda:0: 781,200.0 GFLOP/s …`."""
    speed_of = f"{tflops['value'] * 1e3:,.1f} GFLOP/s"
    about = f"{kind.name} {tflops['shape']}, {tflops['n']} products"
    return f"[COMPUTE] {device}: {speed_of} {about}, {more}\n"


def search(session: Session, kind: Kind, device: str, lines: list[str]) -> None:
    """Look for the fastest shape, and report it."""
    name, options = f"matmul.{kind.name}.search", session.options
    with session.attempt(name, device=device):
        best = speed.search(session.torch, kind, device, options.duration or 20.0, options.seed)
        shape = "x".join(map(str, best.pop("best")))
        value = speed.metric("tflops_best", [best["tflops"]], "TFLOPS", speed.HIGHER, shape=shape)
        session.report.add(name, "PASS", device=device, metrics=[value], details=best)
        line = f"best {kind.name} {shape}, {best['tflops']:.4g} TFLOPS"
        lines.append(f"[COMPUTE] {device}: {line}\n")


def reading(session: Session, kind: Kind, device: str, digest: str, rate: float) -> speed.Reading:
    """Return what is compared with the other devices."""
    host, model = node_name(), session.report.models.get(device, "cpu")
    where = f"{device} of rank {session.ranks.rank} on {host}"
    rank = session.ranks.rank
    return speed.Reading(where, model, kind.name, digest, rate, rank, host, device)


def compare(session: Session, readings: list[speed.Reading]) -> None:
    """Compare with the other devices of this process, and with those of all ranks."""
    every = gathered(session, readings)
    if session.ranks.rank != 0 or len({each.where for each in every}) < 2:
        return
    name, bad = "matmul.digest", speed.strange_digests(every)
    for each in bad:
        reason = f"{each.where}: other bits in {each.kind} than its peers"
        about = {"host": each.host, "rank": each.rank, "device": each.device}
        session.report.add(name, "FAIL", code="digest_mismatch", reason=reason, **about)
    slow = speed.outliers(every)
    for status, each, share in slow:
        reason = f"{each.where}: {each.kind} at {share:.0%} of its peers"
        about = {"host": each.host, "rank": each.rank, "device": each.device}
        session.report.add("matmul.peers", status, code="peer_outlier", reason=reason, **about)
    for test, failed, devices in ((name, bad, every), ("matmul.peers", slow, speed.rated(every))):
        if devices and not failed:
            session.report.add(test, "PASS", details={"devices": len(devices)})


def gathered(session: Session, readings: list[speed.Reading]) -> list[speed.Reading]:
    """Collect every rank's readings, over gloo: this is no test of NCCL."""
    if session.ranks.alone:
        return readings
    with session.group("cpu", backend="gloo") as group:
        parts: list[list[speed.Reading]] = [[] for _ in range(group.ranks.world)]
        group.dist.all_gather_object(parts, readings)
        return [each for part in parts for each in part]


def check_python(session: Session) -> None:
    """Check Python's own integers, all that can be checked without torch, and report that."""
    spoil = session.faults.get("wrong-product") is not None
    size = exact.python_product(session.options.seed, spoil=spoil)
    note = (
        f"no torch ({session.why_not}): only Python's own {size}x{size} integer product was checked"
    )
    print(f"[COMPUTE] {note}")
    session.report.add("matmul.python", "WARN", code="no_torch", reason=note, device="cpu")


def size_of(session: Session, device: str) -> int:
    """Return the side of the matrices whose bits are compared."""
    small = 512 if device == "cpu" else 2048
    return int(session.options.size or small * (1 if session.options.quick else 2))


def shapes_of(session: Session, kind: Kind, device: str) -> list[speed.Shape]:
    """Return the shapes to time: those asked for, or a large one and, unless quick, half of it."""
    options = session.options
    if options.shapes:
        return list(options.shapes)
    if options.size:
        sides = [options.size]
    elif device == "cpu":
        sides = [512] if options.quick else [256, 512]
    else:
        seed, quick = options.seed, options.quick
        sides = speed.usual_sides(session.torch, kind, device, seed, quick=quick)
    return [(side, side, side) for side in sides]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload."""
    names = ",".join(KINDS)
    parser.add_argument("--dtypes", type=kinds, default=list(KINDS.values()), help=f"of {names}")
    parser.add_argument("--size", type=side_of, help="side of the matrices (default: by device)")
    parser.add_argument("--shapes", type=shapes, default=[], metavar="MxNxK,…")
    parser.add_argument("--search", action="store_true", help="find the fastest shape of each type")
    parser.add_argument("--dcgm", type=int, choices=sorted(TIMES_S), help="dcgmi diag -r N first")
    parser.add_argument("--serial", action="store_true", help="one GPU after the other")


def settle(_parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Give DCGM's diagnosis its time."""
    if any(fault.name == "dcgm" for fault in options.inject):
        options.dcgm = options.dcgm or 1
    if options.dcgm:
        options.timeout = max(options.timeout, TIMES_S[options.dcgm] + OWN_S)


def kinds(text: str) -> list[Kind]:
    """Read `bf16,fp8`."""
    unknown = [name for name in text.split(",") if name not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(KINDS)}")
    return [KINDS[name] for name in text.split(",")]


def shapes(text: str) -> list[speed.Shape]:
    """Read `4096x4096x4096,8192x8192x8192`."""
    sides = [tuple(side_of(side) for side in shape.split("x")) for shape in text.split(",")]
    if any(len(shape) != 3 for shape in sides):
        raise argparse.ArgumentTypeError(f"{text!r} is not MxNxK,…")
    return sides


def side_of(text: str) -> int:
    """Read a side: fp8 products want multiples of 16."""
    if whole(text) % 16:
        raise argparse.ArgumentTypeError(f"{text} is no multiple of 16")
    return int(text)


CHECK = Payload(
    "check",
    "Check what this job was given: environment, devices, and products of matrices.",
    body,
    add_flags=add_flags,
    check=settle,
    aliases=compute_aliases,
    stands_for="gpu_tests",
)

if __name__ == "__main__":
    run(CHECK)
