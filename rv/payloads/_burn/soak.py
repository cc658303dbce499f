"""A soak of hours whose count outlives a preemption: what was burned so far, in a file.

The file is in the report folder and goes on being written while the burn runs. The next run with
the same GPUs and the same length goes on from it; a soak that is whole removes it, so that nothing
that was done once counts twice.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from _harness import files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from _harness.report import Report

    from .supervisor import Worker

NAME = "stress_soak.json"
KEPT_EVERY_S = 2.0
MOST = 10**18  # of anything that is counted


@dataclass(frozen=True)
class Count:
    """What one device did, and how many elements of it were wrong."""

    products: int = 0
    compared: int = 0
    wrong: int = 0

    def __add__(self, other: Count) -> Count:
        """Add what came after."""
        sums = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return Count(*(mine + more for mine, more in sums))


@dataclass(frozen=True)
class Soak:
    """A soak so far: of how many seconds, in how many runs, on which devices by their UUIDs."""

    asked_s: float
    devices: Mapping[str, Count]
    seconds: float = 0.0
    runs: int = 0

    @property
    def left_s(self) -> float:
        """The seconds that are still to be burned."""
        return max(0.0, self.asked_s - self.seconds)

    def after(self, devices: Mapping[str, Count], seconds: float) -> Soak:
        """Return the soak with one more run."""
        sums = {uuid: count + devices.get(uuid, Count()) for uuid, count in self.devices.items()}
        return Soak(self.asked_s, sums, self.seconds + seconds, self.runs + 1)


def parse_soak(text: str, asked_s: float, uuids: list[str]) -> Soak:
    """Read a soak's file; one of other GPUs or of another length, or none at all, is a new soak."""
    new = Soak(asked_s, {uuid: Count() for uuid in uuids})
    try:
        document = json.loads(text)
        counts = {uuid: Count(**known) for uuid, known in document["devices"].items()}
        seconds, runs = float(document["seconds"]), document["runs"]
        is_same = document["asked_s"] == asked_s and set(counts) == set(uuids)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return new
    read = Soak(asked_s, counts, seconds, runs)
    return read if is_same and _is_sound(read) else new


def _is_sound(soak: Soak) -> bool:
    """Whether every count is a number that can be one."""
    counts = [number for count in soak.devices.values() for number in asdict(count).values()]
    are_counts = all(type(number) is int and 0 <= number < MOST for number in [soak.runs, *counts])
    return are_counts and _has_burned(soak) and 0 <= soak.seconds < soak.asked_s


def _has_burned(soak: Soak) -> bool:
    """Whether every device has done something: seconds without products are no soak."""
    return all(count.products for count in soak.devices.values())


@dataclass
class Keeper:
    """Keeps a soak's count while it runs; `uuids` are the devices' by their labels."""

    folder: Path
    asked_s: float
    uuids: dict[str, str]
    began_s: float = field(default_factory=time.monotonic)
    kept_s: float = 0.0

    def __post_init__(self) -> None:
        """Read what was burned before. Raises OSError for a file that is none."""
        self._path = self.folder / NAME
        text = files.read_regular(self._path) if self._path.exists() else ""
        self.before = parse_soak(text, self.asked_s, list(self.uuids.values()))
        self.is_new_over_another = bool(text) and not self.before.runs

    def begin(self) -> None:
        """Count the seconds from now on: starting is no part of them."""
        self.began_s = time.monotonic()

    def keep(self, workers: list[Worker], *, now: bool = False) -> Soak:
        """Return the soak so far, and write it down, if it is time to."""
        counts = {
            self.uuids[each.job.label]: Count(each.products, each.compared, each.errors)
            for each in workers
        }
        soak = self.before.after(counts, time.monotonic() - self.began_s)
        is_due = time.monotonic() - self.kept_s > KEPT_EVERY_S and _has_burned(soak)
        if now or is_due:
            self.kept_s = time.monotonic()
            files.write(self._path, _document(soak))
        return soak

    def add(self, report: Report, workers: list[Worker]) -> None:
        """Judge the whole soak once it is over; until then the next run goes on."""
        soak = self.keep(workers, now=True)
        labels = {uuid: label for label, uuid in self.uuids.items()}
        wrong = {labels[uuid]: count.wrong for uuid, count in soak.devices.items() if count.wrong}
        report.add("stress.soak", **_verdict(soak, wrong), details=_document(soak))
        if self.is_new_over_another:
            other = f"what {NAME} held is broken, or of other GPUs or another length"
            reason = f"{other}: this soak began anew, and does not vouch for what was burned before"
            report.add("stress.soak.before", "WARN", code="result_stale", reason=reason)
        if soak.left_s <= 1.0:
            self._path.unlink(missing_ok=True)


def _verdict(soak: Soak, wrong: dict[str, int]) -> dict[str, str]:
    if wrong:
        where = ", ".join(f"{number} on {label}" for label, number in wrong.items())
        reason = f"wrong elements in {soak.runs} run(s) of the soak: {where}"
        return {"status": "FAIL", "code": "wrong_result", "reason": reason}
    if soak.left_s > 1.0:
        done = f"{soak.seconds:.0f} of {soak.asked_s:.0f} s of the soak are done"
        reason = f"{done}: the same command with the same --report-dir goes on"
        return {"status": "ERROR", "code": "interrupted", "reason": reason}
    return {"status": "PASS"}


def _document(soak: Soak) -> dict[str, Any]:
    return {
        "asked_s": soak.asked_s,
        "seconds": round(soak.seconds, 1),
        "runs": soak.runs,
        "devices": {uuid: asdict(count) for uuid, count in soak.devices.items()},
    }
