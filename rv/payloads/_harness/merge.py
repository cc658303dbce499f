"""One result of many ranks': all their tests, every GPU once, and who is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract.codes import CODES
from contract.schema import summary_of

from .ranks import host_of

if TYPE_CHECKING:
    from .ranks import Ranks


def merged(
    first: dict[str, Any], others: dict[int, dict[str, Any]], ranks: Ranks
) -> dict[str, Any]:
    """Merge rank 0's result with those of the others; a rank without one is a failure, by host."""
    every = [first, *(others[rank] for rank in sorted(others))]
    hosts = {document["test_info"]["rank"]: document["test_info"]["node"] for document in every}
    tests = [test for document in every for test in document["tests"]]
    missing = [rank for rank in range(ranks.world) if rank not in hosts]
    tests += [_absent(rank, host_of(rank, hosts, ranks), first) for rank in missing]
    own = first["summary"]
    strict, skip = own.get("strict", False), own["skip_exit_code"]
    return {
        **first,
        "devices": _devices(every),
        "tests": tests,
        "summary": summary_of(tests, strict=strict, skip_exit_code=skip),
        "ranks": [{"rank": rank, "host": hosts[rank]} for rank in sorted(hosts)],
    }


def _devices(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every GPU once: the ranks of a node all see the same ones."""
    devices: dict[tuple[str, str], dict[str, Any]] = {}
    for document in documents:
        host = document["test_info"]["node"]
        for device in document["devices"]:
            key = (host, str(device.get("uuid") or device.get("index")))
            devices.setdefault(key, {**device, "host": host})
    return list(devices.values())


def _absent(rank: int, host: str, first: dict[str, Any]) -> dict[str, Any]:
    fault = CODES["rank_missing"]
    return {
        "name": "ranks",
        "status": "FAIL",
        "code": "rank_missing",
        "class": fault.fault,
        "action": fault.action,
        "reason": f"no results reported by rank {rank} on {host}",
        "device": None,
        "rank": rank,
        "host": host,
        "timing_ms": 0,
        "timestamp": first["test_info"]["timestamp"],
        "details": {},
        "metrics": [],
    }
