"""Devices of one model compared with each other: the same bits, and nearly the same speed."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any, NamedTuple

from _harness.metrics import modified_z

LOWER = {"cuda": (0.95, 0.90), "cpu": (0.5, 0.25)}  # of the median: warn, fail; CPUs are shared


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
    """Name the devices whose product has other bits than most devices of their model give."""
    strange = []
    for group in _alike(readings):
        digests = [reading.digest for reading in group]
        usual = max(set(digests), key=lambda digest: (digests.count(digest), digest))
        half = digests.count(usual) * 2 <= len(digests)  # no majority: each of them is suspect
        strange += [each for each in group if half or each.digest != usual]
    return strange


def outliers(readings: list[Reading]) -> list[tuple[str, Reading, float]]:
    """Give (status, device, share of the median) for devices slower than their peers.

    With three or more of a model: WARN below 95 % of the median, FAIL below 90 %, or, with six
    or more, more than 5 % below it and a modified z-score under -3.5.
    """
    found = []
    for group in _alike(readings):
        speeds = [reading.tflops for reading in group]
        if len(group) < 3:
            continue
        for reading in group:
            share = reading.tflops / statistics.median(speeds)
            warn, fail = LOWER["cpu" if reading.where.startswith("cpu") else "cuda"]
            far = len(group) >= 6 and modified_z(reading.tflops, speeds) < -3.5 and share < warn
            if share < warn:
                found.append(("FAIL" if share < fail or far else "WARN", reading, share))
    return found


def _alike(readings: list[Reading]) -> list[list[Reading]]:
    groups: dict[tuple[Any, ...], list[Reading]] = defaultdict(list)
    for reading in readings:
        groups[reading.model, reading.kind].append(reading)
    return list(groups.values())
