"""Faults that a payload makes on purpose, to test its own detectors (`--inject`)."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fault:
    """One fault and where it applies: `bitflip:step=3,rank=1`. Without a rank, on all ranks."""

    name: str
    where: dict[str, str] = field(default_factory=dict)

    def number(self, key: str, default: float) -> float:
        """Return a numeric parameter."""
        return float(self.where.get(key, default))


class Faults:
    """The faults of one run, looked up by name at the places where they apply."""

    def __init__(self, faults: list[Fault], rank: int) -> None:
        self.faults, self.rank = faults, rank

    def get(self, name: str, **where: object) -> Fault | None:
        """Return the fault of this name that applies to this rank, here.

        `get("nan", step=3)` is met by `nan`, `nan:step=3` and `nan:step=3,rank=0` on rank 0.
        """
        here = {key: str(value) for key, value in where.items()} | {"rank": str(self.rank)}
        for fault in self.faults:
            named = {key: value for key, value in fault.where.items() if key in here}
            if fault.name == name and all(here[key] == value for key, value in named.items()):
                return fault
        return None


def fault(text: str) -> Fault:
    """Read `name[:key=value,...]`; raises argparse's error for anything else."""
    name, _, rest = text.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",")] if rest else []
    if not name or any(not key or not equals for key, equals, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not fault[:key=value,...]")
    return Fault(name, {key: value for key, _, value in pairs})
