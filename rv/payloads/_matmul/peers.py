"""Devices of one model compared with each other: the same bits, and nearly the same speed."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any, NamedTuple

from contract.stats import odd_ones, peer_verdict
from contract.verdicts import PASS

CPU_BOUNDS = {"warn": 0.5, "fail": 0.75}  # losses: CPUs are shared


class Reading(NamedTuple):
    """What one device gave in one type; `where` names it for people: `cuda:1 on node7`."""

    where: str
    model: str
    kind: str
    digest: str
    tflops: float
    rank: int
    host: str


def strange_digests(readings: list[Reading]) -> list[Reading]:
    """Return the devices whose product has other bits than most devices of their model give."""
    return [
        group[at]
        for group in _alike(readings)
        for at in odd_ones([reading.digest for reading in group])
    ]


def outliers(readings: list[Reading]) -> list[tuple[str, Reading, float]]:
    """Return (status, device, share of the median) of devices slower than their peers."""
    found = []
    for group in _alike(readings):
        speeds = [reading.tflops for reading in group]
        for reading in group:
            bounds = CPU_BOUNDS if reading.where.startswith("cpu") else {}
            status = peer_verdict(reading.tflops, speeds, **bounds)
            if status != PASS:
                found.append((status, reading, reading.tflops / statistics.median(speeds)))
    return found


def _alike(readings: list[Reading]) -> list[list[Reading]]:
    groups: dict[tuple[Any, ...], list[Reading]] = defaultdict(list)
    for reading in readings:
        groups[reading.model, reading.kind].append(reading)
    return list(groups.values())
