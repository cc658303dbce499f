"""Paired differences of waiting times, and what they show. Pure."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# Student's t at 95 %, one-sided, for 1 to 30 degrees of freedom; more take the last, which is wider.
_T95: Final = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812,
    1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725,
    1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
)  # fmt: skip


WORSE: Final = 1.02
"""A mean finish at most so many times a rival's is no worse."""
BETTER: Final = 0.80
"""A mean finish at most so many times the best rival's is better by a fifth."""


class Verdict(StrEnum):
    """What the differences show of the first against the second, with one cycle's tolerance.

    NOT_SHOWN: worse by no more than a cycle on average, but chance could hide more than that.
    """

    BETTER = "better"
    NO_WORSE = "no worse"
    NOT_SHOWN = "not shown"
    WORSE = "WORSE"

    @property
    def holds(self) -> bool:
        """Whether it keeps the promise of being no worse."""
        return self in (Verdict.BETTER, Verdict.NO_WORSE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How long one contender waited in one replay, in seconds; `seconds` is the horizon where it
    was `censored`: it had not started by then."""

    scenario: str
    seed: int
    contender: str
    seconds: float
    censored: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The mean of the paired differences with its upper 95 % bound, both in seconds."""

    pairs: int
    mean: float
    upper: float
    verdict: Verdict


def differences(starts: Iterable[Start], scenario: str, ours: str, rival: str) -> list[float]:
    """Ours minus the rival's, for each seed that has both. Negative: ours started sooner."""
    waits: dict[str, dict[int, float]] = {ours: {}, rival: {}}
    for start in starts:
        if start.scenario == scenario and start.contender in waits:
            waits[start.contender][start.seed] = start.seconds
    return [
        waits[ours][seed] - waits[rival][seed]
        for seed in sorted(waits[ours])
        if seed in waits[rival]
    ]


def upper_bound(values: Sequence[float]) -> float:
    """The mean's one-sided upper 95 % bound by Student's t; infinite for fewer than two values."""
    if len(values) < 2:
        return math.inf
    t = _T95[min(len(values) - 1, len(_T95)) - 1]
    return statistics.fmean(values) + t * statistics.stdev(values) / math.sqrt(len(values))


def compare(values: Sequence[float], cycle: float) -> Comparison:
    """Judge paired differences; `cycle` is the tolerance in seconds."""
    mean, upper = statistics.fmean(values), upper_bound(values)
    return Comparison(
        pairs=len(values), mean=mean, upper=upper, verdict=_verdict(mean, upper, cycle)
    )


def _verdict(mean: float, upper: float, cycle: float) -> Verdict:
    if upper < 0:
        return Verdict.BETTER
    if upper <= cycle:
        return Verdict.NO_WORSE
    return Verdict.NOT_SHOWN if mean <= cycle else Verdict.WORSE
