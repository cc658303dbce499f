#!/usr/bin/env python3
"""Collectives between GPUs: every element right on every rank, how fast, and who is late.

    torchrun --nproc_per_node=4 allreduce.py
    torchrun --nproc_per_node=2 allreduce.py --device cpu --iters 50 --numel 2000000

Five collectives from 8 bytes to 4 GiB, with inputs of small integers whose results are exact; sums
in half precision, too.
Bandwidths are nccl-tests' algbw and busbw, by the slowest rank of each iteration; only those of
256 MiB and more are held against the floor of the fabric. All-reduce is timed bare in the same run,
for the ratio. The transport that NCCL took is read from its log. Ranks that come late to a barrier
after equal work are named, and with --pairwise slow nodes.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from _collectives import between_nodes, fabric_checks, half_precision
from _collectives.fabric_checks import add
from _collectives.measure import (
    Field,
    Row,
    arrivals,
    bare,
    equal_work,
    measure,
    stragglers,
)
from _collectives.operations import DTYPES, OPERATIONS, bandwidths
from _collectives.sweep import as_details, busbw_samples, gated, most_bytes, size_word, sweep
from _harness.flags import whole
from _harness.main import Payload, Session, run
from _harness.timing import time_each
from _harness.unfound import ENDS
from _telemetry.sharing import PART_FAIL, PART_WARN
from contract.catalogue import OF_COLLECTIVES
from contract.pairs import ON_CPU, Blame, Pair, blame, pairings
from contract.schema import HIGHER, LOWER, metric
from contract.stats import PEER_FAIL
from contract.verdicts import worst

if TYPE_CHECKING:
    from collections.abc import Callable

    from _collectives.outputs import Strike
    from _harness.inject import Fault
    from _harness.ranks import Group

LATE = {"cuda": (1.05, 1.11), "cpu": (3.0, 3.0)}
"""From which multiple of the peers' time a rank is late: a warning, a failure."""

LATE_OF_TWO = {"cuda": (1.11, 1.25), "cpu": (3.0, 3.0)}
"""The same with one peer: twice the room, as everywhere (`contract.stats.slow_ones`)."""

LEAST_RATIO = (0.95, 0.75)
"""Of bare all-reduce's bandwidth: below the first is a warning, below the second a failure."""

PAIR_BYTES = {"cuda": 256 << 20, "cpu": 1 << 20}


def body(session: Session) -> None:
    """Measure the collectives, then who is late, then the pairs of nodes."""
    torch = session.need_torch()
    device = session.devices()[0]
    with fabric_checks.heard(session) as log_file, session.group(device) as group:
        field = _field(session, group)
        session.say("DDP", f"{group.backend}, {field.world} ranks on {', '.join(group.hosts)}")
        session.probe(group.device)
        started = time.perf_counter()
        table = sweep(field, session.options, lambda text: session.say("DDP", text))
        about = fabric_checks.about_links(session, group, log_file)
        _report_sweep(session, table, time.perf_counter() - started, about)
        half_precision.check(session, field)
        session.probe(group.device)
        _check_speed(session, field, table["all_reduce"][-1])
        _check_steady(session, field, table["all_reduce"][-1])
        largest = [rows[-1] for rows in table.values()]
        fabric_checks.check(session, field, group, largest, log_file)
        if field.world > 1:
            _check_arrival(session, field, group, torch)
        if session.ranks.nodes > 1:
            between_nodes.check(session, field, table["all_reduce"][-1])
        if session.options.pairwise:
            _check_pairs(session, field, group)


def _field(session: Session, group: Group) -> Field:
    kind = "cpu" if group.device == "cpu" else "cuda"
    device = "cpu" if kind == "cpu" else group.device
    torch = group.torch
    return Field(
        torch=torch, dist=group.dist, rank=group.ranks.rank, world=group.ranks.world,
        device=device, strike=_striking(session), delay=_delay(session, group),
        time_each=functools.partial(time_each, torch, device),
    )  # fmt: skip


def _delay(session: Session, group: Group) -> Callable[[], None] | None:
    """Return what makes each call slow where a fault is injected: on a host, or between two."""
    if session.faults.get("slow-call"):
        return functools.partial(time.sleep, 0.1)
    named = (each for each in session.faults.faults if each.name in ("slow-host", "slow-link"))
    slow = next((each for each in named if _strikes(each, set(group.hosts))), None)
    return functools.partial(time.sleep, slow.number("seconds", 0.02)) if slow else None


def _strikes(fault: Fault, hosts: set[str]) -> bool:
    """Whether the hosts that a fault names are all among these: host=a1, or one=a1,other=a2."""
    ends = {fault.where[key] for key in ENDS if key in fault.where}
    return bool(ends) and ends <= hosts


def _striking(session: Session) -> Strike | None:
    """Return what runs each iteration where a fault is injected: as a broken network would."""
    faults = session.faults
    if not any(faults.get(name) for name in OF_COLLECTIVES):
        return None
    stale = next((fault for fault in faults.faults if fault.name == "stale"), None)
    back = int(stale.number("back", 1)) if stale else 0
    earlier: dict[tuple[int, Any], deque[Any]] = {}  # by size and type, as far as `back` reaches
    names = {getattr(session.need_torch(), kind.torch_name): name for name, kind in DTYPES.items()}

    def strike(number: int, run: Callable[[], object], out: Any) -> None:
        where = {"iteration": number, "dtype": names[out.dtype]}
        here = {name for name in OF_COLLECTIVES if faults.get(name, **where)}
        place, before = out.numel() // 2, out.clone()
        run()
        came = out.clone()
        if "bitflip" in here or "nan" in here:
            out[place] = out[place] + 1 if "bitflip" in here else float("nan")
        if "not-written" in here:
            out.copy_(before)
        outputs = earlier.setdefault((out.numel(), out.dtype), deque(maxlen=back))
        if "stale" in here and len(outputs) == back:
            out.copy_(outputs[0])
        outputs.append(came)

    return strike


def _report_sweep(
    session: Session, table: dict[str, list[Row]], seconds: float, links: dict[str, float]
) -> None:
    """Add a test for each collective, with what is known of the links, and the seed's own line."""
    world = session.ranks.world
    for name, rows in table.items():
        wrong = [row for row in rows if row.wrong]
        verdict = {"status": "PASS"}
        if wrong:
            problem = f"{name} of {size_word(wrong[0].nbytes)}: {wrong[0].wrong} wrong elements"
            reason = f"{problem}, first at {wrong[0].where}"
            verdict = {"status": "FAIL", "code": "wrong_collective", "reason": reason}
        details = {"rows": [as_details(row) for row in rows], "dtype": "float32"}
        metrics = _metrics(rows, world, links)
        add(session, f"allreduce.{name}", verdict, details=details, metrics=metrics)
    last = table["all_reduce"][-1]
    ok = not any(row.wrong for rows in table.values() for row in rows)
    spent = sum(last.seconds) if session.options.numel else seconds
    numbers = f"numel={last.elements} iters={len(last.seconds)} time={spent:.3f}"
    session.report.extra["ddp"] = {
        "world": world, "iters": len(last.seconds), "numel": last.elements, "time": spent, "ok": ok,
    }  # fmt: skip
    session.say("DDP", f"world={world} {numbers} ok={ok}")


def _metrics(rows: list[Row], world: int, links: dict[str, float]) -> list[dict[str, Any]]:
    """Return latency at the least size and bandwidth at those that count."""
    kept = [metric("latency_us", [s * 1e6 for s in rows[0].seconds], "us", LOWER)]
    for row in gated(rows) if world > 1 else []:
        name, samples = f"busbw_{size_word(row.nbytes)}", busbw_samples(row, world)
        about = {"bytes": row.nbytes, "world": world, "value": row.busbw * row.of_median}
        kept.append(metric(name, samples, "GB/s", HIGHER, **about, **links))
    return kept


def _check_speed(session: Session, field: Field, row: Row) -> None:
    """Hold the largest all-reduce against the bare call."""
    if field.world == 1:
        return
    rounds = max(5, min(50, round(1.0 / max(row.middle, 1e-6))))
    seconds = bare(field, row.elements, rounds)
    plain = bandwidths(OPERATIONS["all_reduce"], row.nbytes, field.world, seconds)[1]
    ratio = row.busbw / plain
    size = size_word(row.nbytes)
    warn, fail = LEAST_RATIO
    judged = field.device != "cpu" or session.faults.get("slow-call")
    verdict = {"status": "PASS"}
    if judged and ratio < warn:
        # Between nodes others' traffic is usual, and may come for one of the two alone.
        is_failure = ratio < fail and session.ranks.nodes == 1
        status, code = ("FAIL", "below_floor") if is_failure else ("WARN", "below_reference")
        speed = f"busbw {row.busbw:.1f} GB/s at {size}"
        reason = f"{speed} is {ratio:.2f} of the bare call's {plain:.1f}"
        verdict = {"status": status, "code": code, "reason": reason}
    session.say("DDP", f"bare all_reduce {size}: {plain:.1f} GB/s, ratio {ratio:.3f}")
    numbers = [
        metric("ratio_to_bare", [ratio], "", HIGHER),
        metric("bare", [plain], "GB/s", HIGHER),
    ]
    add(session, "allreduce.speed", verdict, metrics=numbers, details={"bytes": row.nbytes})


def _check_steady(session: Session, field: Field, row: Row) -> None:
    """Hold the largest all-reduce against its own median."""
    stretched, on_gpus = session.faults.get("stretch"), field.device != "cpu"
    if field.world == 1 or not (on_gpus or stretched):
        return
    # A CPU always has others.
    part = row.of_median if on_gpus else 1.0
    part /= stretched.number("factor", 2) if stretched else 1.0
    verdict = {"status": "PASS"}
    if part < PART_WARN:
        # Between nodes others' traffic is usual.
        may_fail = session.ranks.nodes == 1 and not session.options.allow_busy_gpus
        status = "FAIL" if part < PART_FAIL and may_fail else "WARN"
        at = f"all_reduce of {size_word(row.nbytes)}"
        reason = f"{at}: {part:.2f} of the median rate over the whole time: shared, or unstable"
        verdict = {"status": status, "code": "contended", "reason": reason}
    add(session, "allreduce.steady", verdict, details={"bytes": row.nbytes, "of_median": part})


def _check_arrival(session: Session, field: Field, group: Group, torch: Any) -> None:
    """Name the ranks that come late after equal work."""
    size, repeats = (192, 4) if field.device == "cpu" else (4096, 40)
    work = equal_work(torch, field.device, size, repeats)
    slow = session.faults.get("slow")
    factor = int(slow.number("factor", 5)) if slow else 1

    def slowed() -> None:
        for _ in range(factor):
            work()

    measured = arrivals(field, slowed, session.report.models.get(field.device, ""))
    late = stragglers(measured, LATE[_kind(field)], LATE_OF_TWO[_kind(field)])
    verdict = {"status": "PASS"}
    if late:
        names = ", ".join(
            f"rank {one.rank} on {group.hosts[one.rank]} ({ratio:.2f} times its peers)"
            for one, ratio, _ in late
        )
        status = worst([each.status for each in late])
        verdict = {"status": status, "code": "straggler", "reason": f"late to a barrier: {names}"}
    details = [{"rank": one.rank, "work_s": one.work, "wait_s": one.wait} for one in measured]
    add(session, "allreduce.arrival", verdict, details={"arrivals": details})
    last = max(measured, key=lambda one: one.work)
    session.say("DDP", f"slowest to arrive: rank {last.rank} on {group.hosts[last.rank]}")


def _check_pairs(session: Session, field: Field, group: Group) -> None:
    """Measure all-reduce between pairs of nodes, and name those slow with every partner."""
    members = _nodes(field, group)
    pairs = [
        pair
        for met in pairings(len(members), session.options.pairwise)
        for pair in _measure_round(session, field, members, met)
    ]
    for pair in pairs:
        session.say("DDP", f"pair {pair.one} {pair.other}: {pair.busbw:.3f} GB/s")
    verdict = _pairs_verdict(session, field, len(members), pairs)
    add(session, "allreduce.pairs", verdict, details={"pairs": [pair._asdict() for pair in pairs]})


def _pairs_verdict(session: Session, field: Field, nodes: int, pairs: list[Pair]) -> dict[str, str]:
    if reason := _wrong_pair(pairs):
        return {"status": "FAIL", "code": "wrong_collective", "reason": reason}
    if not pairs:
        reason = f"{nodes} node: a pair needs two"
        return {"status": "SKIP", "code": "not_run", "reason": reason}
    is_on_cpu = field.device == "cpu"
    found = blame(pairs, loss=ON_CPU if is_on_cpu else PEER_FAIL)
    is_judged = not is_on_cpu or session.faults.faults
    return _slow_verdict(found) if any(found) and is_judged else {"status": "PASS"}


def _slow_verdict(found: Blame) -> dict[str, str]:
    """Name what is slow; of the fast ones of two groups nothing says that they are right."""
    said = {
        "slow with most partners": found.nodes,
        "slow together": found.pairs,
        "slow between the parts around": found.links,
        "faster than most, and nothing says which are right": found.apart,
    }
    named = {what: ", ".join(" to ".join(each.ends) for each in of) for what, of in said.items()}
    reason = "; ".join(f"{what}: {names}" for what, names in named.items() if names)
    if found.nodes:
        return {"status": "FAIL", "code": "peer_outlier", "reason": reason}
    if found.pairs or found.links:
        return {"status": "FAIL", "code": "slow_path", "reason": reason}
    status = "FAIL" if len(found.apart[0].ends) > 2 else "WARN"
    return {"status": status, "code": "peers_disagree", "reason": reason}


def _wrong_pair(pairs: list[Pair]) -> str:
    """Return which pair of nodes added wrong, or ""."""
    named = (f"{p.wrong} wrong elements between {p.one} and {p.other}" for p in pairs if p.wrong)
    return next(named, "")


def _nodes(field: Field, group: Group) -> list[tuple[str, list[int]]]:
    """Return the nodes, as names with their ranks, in the order of torchrun's node ranks."""
    numbers = [int(one[0]) for one in field.gather([float(group.ranks.node)])]
    named = sorted(set(numbers))
    every = [[rank for rank, node in enumerate(numbers) if node == number] for number in named]
    return [(f"{group.hosts[ranks[0]]}#{n}", ranks) for n, ranks in zip(named, every, strict=True)]


def _measure_round(
    session: Session,
    field: Field,
    members: list[tuple[str, list[int]]],
    met: list[tuple[int, int]],
) -> list[Pair]:
    """Measure the pairs of a round at the same time; return all results on every rank."""
    dist, own_pair, speed, wrong = field.dist, None, 0.0, 0
    groups = [dist.new_group([*members[a][1], *members[b][1]]) for a, b in met]
    # Every rank must ask, those of a node that sits out too.
    nbytes = min(PAIR_BYTES[_kind(field)], most_bytes(field, session.options))
    for (one, other), group in zip(met, groups, strict=True):
        ranks = [*members[one][1], *members[other][1]]
        if field.rank in ranks:
            own_pair = (one, other)
            row = _pair_row(session, field, group, len(ranks), nbytes)
            speed, wrong = row.busbw, row.wrong
    place = float(met.index(own_pair)) if own_pair else -1.0
    every = field.gather([speed, float(wrong), place])
    best = {int(place): (rate, int(wrong)) for rate, wrong, place in every if place >= 0}
    for group in groups:
        if group != dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)
    return [Pair(members[a][0], members[b][0], *best[n]) for n, (a, b) in enumerate(met)]


def _kind(field: Field) -> str:
    return "cpu" if field.device == "cpu" else "cuda"


def _pair_row(session: Session, field: Field, group: Any, world: int, nbytes: int) -> Row:
    strikes = session.faults.get("slow-node", node=session.ranks.node)
    slow = functools.partial(time.sleep, 0.1) if strikes else None
    near = Field(
        torch=field.torch, dist=field.dist, rank=field.dist.get_rank(group), world=world,
        device=field.device, time_each=field.time_each, group=group, delay=slow,
        strike=field.strike,
    )  # fmt: skip
    total = nbytes // field.item_bytes
    return measure(near, OPERATIONS["all_reduce"], total, budget_s=0.5, iters=10)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this payload's flags."""
    parser.add_argument("--iters", type=_auto, help="iterations of each size; 0: by --duration")
    parser.add_argument("--numel", type=_auto, help="one size, in elements; 0: a sweep of sizes")
    parser.add_argument("--max-bytes", type=whole, help="the largest size")
    parser.add_argument(
        "--pairwise", choices=["quick", "all"], help="measure between pairs of nodes"
    )


def _auto(text: str) -> int | None:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value or None


def aliases(document: dict[str, Any]) -> dict[str, Any]:
    """Return the result under the names that the first version of this test had."""
    if document["summary"]["status"] == "SKIP":
        return {"ddp_tests_skipped.json": {"skipped": True, "reason": "no_gpu"}}
    return {"ddp_tests_result.json": document["ddp"]} if "ddp" in document else {}


PAYLOAD = Payload(
    name="allreduce",
    description="Collectives: exact on every rank, how fast, and who is late.",
    body=body,
    timeout=600.0,
    add_flags=add_flags,
    aliases=aliases,
    stands_for="ddp_tests",
)

if __name__ == "__main__":
    run(PAYLOAD)
