"""The steps of a whole acceptance run: what each needs, and how it is run in each profile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

PROFILES = {"smoke": 240.0, "accept": 900.0, "burnin": 4 * 3600.0}  # seconds, unless told


@dataclass(frozen=True)
class Step:
    """One payload's part."""

    name: str
    needs: tuple[str, ...] = ()
    ranks: bool = False  # one process a device, started by torchrun
    seconds: Mapping[str, float] = field(default_factory=dict)  # expected, by profile
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)  # flags, by profile

    def expected(self, profile: str) -> float:
        """Give the seconds it is expected to take."""
        return self.seconds.get(profile, 60.0)


def _times(smoke: float, accept: float, burnin: float) -> dict[str, float]:
    return {"smoke": smoke, "accept": accept, "burnin": burnin}


LEAST = 90.0  # seconds
QUICK: dict[str, Sequence[str]] = {"smoke": ["--quick"]}
ENV = "env"
STEPS = (
    Step("check", (ENV,), seconds=_times(10, 60, 60), words=QUICK),
    Step("membw", (ENV,), seconds=_times(10, 90, 90), words=QUICK),
    Step("allreduce", ("check",), ranks=True, seconds=_times(12, 120, 120), words=QUICK),
    Step("train", ("allreduce",), ranks=True, seconds=_times(10, 60, 60), words=QUICK),
    Step("train_fsdp", ("train",), ranks=True, seconds=_times(12, 90, 90), words=QUICK),
    Step("dataload", (ENV,), seconds=_times(12, 60, 60), words=QUICK),
    Step("ckpt_cycle", ("train",), seconds=_times(20, 120, 120), words=QUICK),
    Step("alloc_stress", ("check",), seconds=_times(15, 90, 90), words=QUICK),
    Step("storage_net", (ENV,), seconds=_times(5, 60, 60), words=QUICK),
    Step("tensor_service", ("check",), seconds=_times(12, 60, 60), words=QUICK),
    Step("stress", ("check",), seconds=_times(10, 120, 600), words=QUICK),
)
LEFT_OUT = ("alloc_stress", "storage_net", "tensor_service")  # of the smoke profile


def chosen(profile: str, only: Collection[str], steps: Sequence[Step] = STEPS) -> list[Step]:
    """Give the steps of a profile, or those that were named, in their order."""
    if only:
        return [step for step in steps if step.name in only]
    return [step for step in steps if profile != "smoke" or step.name not in LEFT_OUT]


def blocked(step: Step, statuses: Mapping[str, str]) -> str | None:
    """Name what a step needs and what did not pass, or was stopped itself; None where it may run.

    What was not chosen blocks nothing. Siblings of a failed step run: they may name another fault.
    """
    for need in step.needs:
        if statuses.get(need, "PASS") not in ("PASS", "WARN", "SKIP"):
            return need
    return None


def time_for(step: Step, profile: str, left: float) -> float | None:
    """Give the seconds a step may take; None where what is left of the budget is too short.

    A step may take three times what is expected, and a minute and a half in any case, so that a
    slow machine is no fault.
    """
    expected = step.expected(profile)
    return None if left < expected else min(left, max(LEAST, 3 * expected))
