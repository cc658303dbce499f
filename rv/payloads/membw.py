#!/usr/bin/env python3
"""Memory and links: how fast, and that every bit that was written is read back.

    python membw.py                 # all GPUs of this node, at the same time
    python membw.py --device cpu --quick

STREAM's kernels on each device, host links (pinned, pageable, both ways, all GPUs at once), links
between every two GPUs, the PCIe link under load, and pattern tests over 90 % of the free memory.
"""

from __future__ import annotations

import argparse
import re
import statistics
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _bandwidth import links, patterns
from _bandwidth.stream import Streamed, stream
from _harness.main import Payload, Session, run
from _harness.timing import synchronize
from _harness.topology import share_of_pairs, topology_of
from _telemetry.gates import link_status
from contract.schema import HIGHER, better_rate, metric
from contract.stats import slow_ones
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    from collections.abc import Callable

    from _bandwidth.copies import Strike
    from _harness.topology import Topology

STREAM_BYTES = {"cuda": 1 << 30, "cpu": 1 << 24}
PEER_BYTES = {"cuda": 1 << 30, "cpu": 1 << 22}
LINK_BYTES = {"cuda": 1 << 28, "cpu": 1 << 22}
QUICK_SHARE = 4
"""A quick run copies a quarter of these bytes, between fast peers all, and fills a quarter of what
is free."""
CPU_MEMORY = {False: 64 << 20, True: 4 << 20}
PARTS = ("stream", "host", "peer", "pcie", "patterns")
SHIFTS = {False: patterns.BITS, True: 8}
"""Walking positions of a word."""
UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def body(session: Session) -> None:
    """Run the parts that were asked for."""
    session.need_torch()
    devices = session.devices()
    steps = dict(zip(PARTS, (_stream, _host, _peer, _pcie, _patterns), strict=True))
    for name in session.options.parts:
        with session.attempt(f"membw.{name}"):
            steps[name](session, devices)


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _fail(code: str, reason: str) -> dict[str, str]:
    return {"status": "FAIL", "code": code, "reason": reason}


def _fed(device: str, unfed: list[str]) -> dict[str, str]:
    """Warn where the device waited for this process in spite of all attempts."""
    if not unfed:
        return {"status": "PASS"}
    reason = f"{device}: it waited for this process in {', '.join(unfed)}: their rates are too low"
    return {"status": "WARN", "code": "jitter", "reason": reason}


def _stream(session: Session, devices: list[str]) -> None:
    """Run STREAM's kernels on all devices at once."""
    torch, quick = session.torch, session.options.quick
    rounds = (5 if quick else 10) if devices == ["cpu"] else 30

    def strike(kernel: str, number: int, run: Callable[[], object], result: Any) -> None:
        where = {"kernel": kernel, "round": number}
        if not session.faults.get("not-written", **where):
            run()
        if session.faults.get("bitflip", **where):
            result[len(result) // 2] += 1

    def one(device: str) -> list[Streamed]:
        nbytes = STREAM_BYTES[_kind(device)] // (QUICK_SHARE if quick else 1)
        return stream(torch, device, nbytes, rounds, strike)

    by_device = links.together(devices, one)
    for device, rows in zip(devices, by_device, strict=True):
        if session.faults.get("slow-gpu", device=device):
            for row in rows:
                row.rates[:] = [rate / 2 for rate in row.rates]
        _add_stream(session, device, rows, len(devices))
    copies = {
        device: statistics.median(rows[0].rates)
        for device, rows in zip(devices, by_device, strict=True)
        if rows[0].is_fed
    }
    _compare(session, list(copies), list(copies.values()))


def _add_stream(session: Session, device: str, rows: list[Streamed], at_once: int) -> None:
    """Add one device's rates; fail where a kernel left wrong elements."""
    metrics = [
        metric(f"stream_{row.kernel}", row.rates, "GB/s", better_rate(is_fed=row.is_fed))
        for row in rows
    ]
    verdict = _fed(device, [row.kernel for row in rows if not row.is_fed])
    wrong = next((row for row in rows if row.wrong), None)
    if wrong:
        where = f", first {wrong.first} of the last" if wrong.first >= 0 else ""
        found = f"{wrong.wrong} wrong elements in {wrong.bad} of {wrong.rounds} rounds"
        verdict = _fail("wrong_result", f"{device}: {wrong.kernel}: {found}{where}")
    compared = {row.kernel: row.rounds for row in rows}
    details = {
        "data": "integers below 1021", "devices_at_once": at_once, "rounds_compared": compared,
    }  # fmt: skip
    _add(session, "membw.stream", verdict, device, metrics, details)


def _compare(session: Session, devices: list[str], rates: list[float]) -> None:
    """Hold the GPUs of the node against each other, those of one model."""
    if session.faults.get("slow-gpu") and devices == ["cpu"]:
        devices, rates = ["cpu", "peer 1", "peer 2"], [rates[0], rates[0] * 2, rates[0] * 2]
    groups = _by_model(devices, rates, session.report.models)
    slow = [each for group in groups for each in _slow(group)]
    for device, status, share in slow:
        reason = f"{device}: copy rate at {share:.2f} of its peers"
        about = {"code": "peer_outlier", "reason": reason, "device": device}
        session.report.add("membw.peers_alike", status, **about)
    if groups and not slow:
        session.report.add("membw.peers_alike", "PASS")


def _by_model(
    devices: list[str], rates: list[float], models: dict[str, str]
) -> list[dict[str, float]]:
    """Return the rates of each model that there are several devices of."""
    groups: dict[str, dict[str, float]] = {}
    for device, rate in zip(devices, rates, strict=True):
        groups.setdefault(models.get(device, ""), {})[device] = rate
    return [group for group in groups.values() if len(group) > 1]


def _slow(rates: dict[str, float]) -> list[tuple[str, str, float]]:
    """Return the devices that are slower than the others, as `slow_ones` does."""
    devices = list(rates)
    return [(devices[at], status, share) for at, status, share in slow_ones(list(rates.values()))]


def _host(session: Session, devices: list[str]) -> None:
    """Measure the links to the host: each device alone, then all at the same time."""
    torch = session.torch

    def one(device: str) -> list[links.Link]:
        nbytes = LINK_BYTES[_kind(device)] // (QUICK_SHARE if session.options.quick else 1)

        def strike(way: str) -> Strike:
            return _copying(session, "host-copy", device, way)

        return links.host_links(torch, device, nbytes, strike)

    alone = [one(device) for device in devices]
    at_once = links.together(devices, one) if len(devices) > 1 else []
    for name, by_device in (("membw.host", alone), ("membw.host_all_at_once", at_once)):
        for device, rows in zip(devices if by_device else [], by_device, strict=True):
            _add_links(session, name, device, rows)


def _add_links(session: Session, name: str, device: str, rows: list[links.Link]) -> None:
    """Add one device's rates; fail where a copy arrived changed."""
    metrics = [metric(row.name, row.rates, "GB/s", better_rate(is_fed=row.is_fed)) for row in rows]
    verdict = _fed(device, [row.name for row in rows if not row.is_fed])
    if wrong := max(row.wrong for row in rows):
        reason = f"{device}: {wrong} words of 8 bytes arrived changed, or not at all"
        verdict = _fail("host_copy_mismatch", reason)
    details = {"compared": {row.name: row.share for row in rows}}
    _add(session, name, verdict, device, metrics, details)


def _copying(session: Session, fault: str, device: str, way: str) -> Strike:
    """Return what makes each copy: it alone, or with a fault, or not at all (FAULT-lost)."""

    def strike(number: int, run: Callable[[], object], target: Any) -> None:
        where = {"way": way, "round": number}
        if not session.faults.get(f"{fault}-lost", **where):
            run()
        if session.faults.get(fault, **where):
            synchronize(session.torch, device)
            target[0] ^= 1

    return strike


def _peer(session: Session, devices: list[str]) -> None:
    """Measure the links between every two devices."""
    faulty = any(session.faults.get(f) for f in ("peer-copy", "peer-copy-lost", "slow-peer"))
    if len(devices) < 2 and not faulty:
        raise NotPassed("SKIP", "not_run", "one device has no peer")
    shown = devices if len(devices) > 1 else devices * 3
    nbytes = PEER_BYTES[_kind(devices[0])]
    least = nbytes // QUICK_SHARE if session.options.quick else nbytes
    strike = _copying(session, "peer-copy", devices[0], "peer")
    peer_links = links.peers(session.torch, shown, nbytes, strike, least)
    if session.faults.get("slow-peer"):
        peer_links[0] = peer_links[0]._replace(one_way=peer_links[0].one_way / 1e3)
    _say_peers(session, peer_links)
    found = topology_of(session.report.devices)
    verdict = _judged_peers(session, peer_links, devices, found)
    session.report.add("membw.peer", **verdict, **_figures(session, peer_links, found))


def _figures(session: Session, peer_links: list[links.Peer], found: Topology) -> dict[str, Any]:
    """Return the metrics and details of links, with what joins each pair."""
    share = share_of_pairs(session.report.devices, found)
    about = {} if share is None else {"link_share": share}
    metrics = [
        metric("peer_one_way", [link.one_way for link in peer_links], "GB/s", HIGHER, **about),
        metric("peer_both_ways", [link.both_ways for link in peer_links], "GB/s", HIGHER),
    ]
    ways = {pair: connection.way for pair, connection in found.items()}
    rows = [{**each._asdict(), "way": ways.get((each.source, each.target))} for each in peer_links]
    return {"metrics": metrics, "details": {"links": rows}}


def _say_peers(session: Session, peer_links: list[links.Peer]) -> None:
    for link in peer_links:
        way = "direct" if link.direct else "through the host"
        text = f"{link.source} -> {link.target} {way}: {link.one_way:.1f} GB/s"
        session.say("COMPUTE", f"peer {text}, both ways {link.both_ways:.1f}")


def _judged_peers(
    session: Session, peer_links: list[links.Peer], devices: list[str], found: Topology
) -> dict[str, str]:
    wrong = [link for link in peer_links if link.wrong]
    if wrong:
        reason = f"{wrong[0].source} to {wrong[0].target}: {wrong[0].wrong} words wrong"
        return _fail("peer_copy_mismatch", reason)
    groups = links.alike(peer_links, session.report.models, found)
    if devices[0] == "cpu":  # where all links are one memory
        is_made = session.faults.get("slow-peer")
        groups = [group._replace(is_certain=True) for group in groups] if is_made else []
    return _compared(groups)


def _compared(groups: list[links.Alike]) -> dict[str, str]:
    """Judge links by those that are alike; only where that is certain can a slow one fail."""
    slow = [group for group in groups if links.slow(group.links)]
    if not slow:
        return {"status": "PASS"}
    reason = "; ".join(links.slowness(group.links) for group in slow)
    is_failure = any(group.is_broken for group in slow)
    return {"status": "FAIL" if is_failure else "WARN", "code": "slow_link", "reason": reason}


def _pcie(session: Session, devices: list[str]) -> None:
    """Read each GPU's PCIe link while copies keep it awake."""
    fault = session.faults.get("pcie")
    if devices == ["cpu"] and not fault:
        raise NotPassed("SKIP", "unsupported", "a CPU has no PCIe link to test")
    for device in devices:
        link = links.Pcie(5, 5, 4, 16) if fault else _under_load(session, device)
        verdict = {"status": "PASS"}
        if link is None:
            reason = f"{device}: nvidia-smi does not tell its PCIe link"
            verdict = {"status": "SKIP", "code": "unsupported", "reason": reason}
        elif links.pcie_complaint(link):
            status = link_status(link.gen, link.width, link.gen_max, link.width_max)
            reason = f"{device}: PCIe link under load is {links.pcie_complaint(link)}"
            verdict = {"status": status, "code": "slow_link", "reason": reason}
        details = link._asdict() if link else {}
        _add(session, "membw.pcie", verdict, device, details=details)


def _under_load(session: Session, device: str) -> links.Pcie | None:
    """Ask while a thread copies to the device."""
    torch = session.torch
    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    host = torch.empty(LINK_BYTES["cuda"], dtype=torch.uint8, pin_memory=True)
    there = torch.empty_like(host, device=device)
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            there.copy_(host, non_blocking=True)
            torch.cuda.synchronize(device)

    loader = threading.Thread(target=load, daemon=True)
    loader.start()
    link = links.best_pcie(uuid) if uuid else None
    over.set()
    loader.join()
    return link


def _patterns(session: Session, devices: list[str]) -> None:
    """Write patterns over most of the memory of all devices at once, and read them back."""
    options, sizes = session.options, {device: _memory(session, device) for device in devices}

    def spoil(test: str, memory: patterns.Memory) -> None:
        if session.faults.get("stuck-bit", test=test):
            memory.flip(memory.count // 2, 5)

    def one(device: str) -> list[patterns.Found]:
        memory = patterns.Memory(session.torch, device, sizes[device])
        return list(patterns.run(memory, SHIFTS[options.quick], options.seed, spoil))

    for device, rows in zip(devices, links.together(devices, one), strict=True):
        for row in rows:
            verdict = {"status": "PASS"}
            if row.total:
                bits = f"first at byte {row.offset} with wrong bits {row.bits:#x}"
                reason = f"{device}: {row.test}: {row.total} mismatching words, {bits}"
                verdict = _fail("memory_mismatch", reason)
            details = {"bytes": sizes[device], **row._asdict()}
            _add(session, f"membw.pattern.{row.test}", verdict, device, details=details)
    if devices != ["cpu"]:
        session.torch.cuda.empty_cache()


def _memory(session: Session, device: str) -> int:
    """Return the bytes to test on a device; raises NotPassed for more than is free."""
    asked = session.options.memory
    if device == "cpu":
        free = _free_on_host()
        nbytes = sized(asked, free) if asked else min(free // 2, CPU_MEMORY[session.options.quick])
    else:
        session.torch.cuda.empty_cache()
        free = int(session.torch.cuda.mem_get_info(device)[0])
        nbytes = sized(asked or f"{90 // (QUICK_SHARE if session.options.quick else 1)}%", free)
    if nbytes > free:
        need = f"{nbytes / 1e9:.2f} GB to test, {free / 1e9:.2f} GB free"
        raise NotPassed("ERROR", "out_of_memory", f"{device}: {need}", device=device)
    return nbytes


def _free_on_host() -> int:
    words = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(words[1]) * 1024 if words else 1 << 30


def _add(
    session: Session,
    name: str,
    verdict: dict[str, str],
    device: str,
    metrics: list[dict[str, Any]] | None = None,
    details: dict[str, Any] | None = None,
) -> None:
    """Add a test, and print its numbers."""
    metrics = metrics or []
    session.report.add(name, **verdict, device=device, metrics=metrics, details=details)
    numbers = "  ".join(f"{one['name']} {one['value']:.1f}" for one in metrics)
    session.say("COMPUTE", f"{device} {name} {verdict['status']}  {numbers}")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this payload's flags."""
    parser.add_argument("--parts", type=_parts, default=list(PARTS), help="comma-separated")
    parser.add_argument(
        "--memory", type=_memory_word, help="to test: 90%% of what is free, 8G, 512M or MiB"
    )


def _parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no part {unknown[0]!r}: {', '.join(PARTS)}")
    return names


def _memory_word(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)?[%KMGT]|[1-9]\d*", text, re.IGNORECASE):
        raise argparse.ArgumentTypeError(f"{text!r} is not like 90%, 8G, 512M or 1000 (MiB)")
    return text


def sized(text: str, free: int) -> int:
    """Read `90%`, `8G`, `512M` or a number of MiB."""
    number, unit = text[:-1], text[-1].upper()
    if unit == "%":
        return int(free * float(number) / 100)
    return int(text) * UNITS[""] if unit.isdecimal() else int(float(number) * UNITS[unit])


if __name__ == "__main__":
    run(
        Payload(
            name="membw",
            description="Memory and links: how fast, and every bit right.",
            body=body,
            timeout=900.0,
            add_flags=add_flags,
        )
    )
