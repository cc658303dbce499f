"""The log of steps, a line for each: what it says of steps lost, skipped or repeated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

NAME = "steps.log"


class Step(NamedTuple):
    """One step as it was done: by which segment, and the digest after it."""

    segment: int
    step: int
    digest: str


class Coverage(NamedTuple):
    """What a log shows: steps done again after a crash, and what is wrong ("" for nothing)."""

    last: int
    lost: int
    wrong: str


def append(folder: Path, step: Step) -> None:
    """Add a line in one write, which no other writer's can split."""
    handle = os.open(folder / NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, f"{step.segment} {step.step} {step.digest}\n".encode())
    finally:
        os.close(handle)


def read(folder: Path) -> list[Step]:
    """Read the log; a last line without its end is one that was being written."""
    path = folder / NAME
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0].splitlines()
    words = [line.split() for line in whole]
    return [Step(int(segment), int(step), digest) for segment, step, digest in words]


def last_segment(folder: Path) -> int:
    """Give the number of the last segment that did a step, 0 for none."""
    return max((step.segment for step in read(folder)), default=0)


def coverage(log: list[Step]) -> Coverage:
    """Judge a log: within a segment steps follow each other, a new one goes on from a checkpoint.

    Steps after that checkpoint were lost and are done again, to the same digests.
    """
    current = lost = segment = 0
    seen: dict[int, str] = {}
    for line in log:
        if line.segment != segment:
            lost += max(0, current - line.step + 1)
            current, segment = min(current, line.step - 1), line.segment
        if line.step != current + 1:
            how = "repeated" if line.step <= current else f"comes after step {current}"
            return Coverage(current, lost, f"step {line.step} of segment {segment} {how}")
        if seen.setdefault(line.step, line.digest) != line.digest:
            return Coverage(current, lost, f"step {line.step} done again gave other weights")
        current = line.step
    return Coverage(current, lost, "")
