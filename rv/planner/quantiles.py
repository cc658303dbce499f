"""How sure an estimate is: its quantiles, corrected by what earlier estimates came to.

The correction is split conformal prediction (Vovk, Gammerman, Shafer: Algorithmic Learning in a
Random World, 2005; Lei et al., JASA 2018). Of n past races the ratios

    r = (actual + F) / (predicted + F),    F = 30 s,

are sorted; of a new estimate the share p ends by (predicted + F) * r[k] - F, where r[k] is the k-th
smallest and k = ceil(p * (n + 1)). Where old and new ratios are alike, that holds in p to
p + 1/(n + 1) of the cases, whatever their distribution: with 20 records in 90 to 94.8 %. F keeps a
second more of a wait of none from being an infinite ratio. Fewer records than that are not used:
a prior, stated with the estimate, stands in for them.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import cache
from math import ceil, hypot
from typing import Final

from rv.models.performance import LONGEST_S, PastRace, Source
from rv.models.plan import Estimate, Spread

FLOOR_S: Final = 30.0
LEAST: Final = 20
"""Records that a correction takes: fewer would make the stated 90 % more than 95."""

_P50, _P90 = 0.5, 0.9
_LIKE_SIZE: Final = 2
"""Requests for at most so many times the GPUs, and at least that part of them, are alike."""

_PRIORS: Final = {
    Source.IDLE: (1.1, 2.0),
    Source.BACKFILL_WINDOW: (1.1, 3.0),
    Source.PLANNED: (1.0, 2.0),
}
"""The ratios r at 50 and 90 % without records: 3 s and 30 s for what is idle, 3 s and a minute for
a backfill window; twice the wait that Slurm plans, which others may lengthen. Where nothing is
planned there is no prior."""


def conformal(values: Sequence[float], share: float) -> float:
    """Return the value that a new one exceeds in at most 1 - `share` of the cases.

    `values` are sorted, and so many that the rank exists: n >= share / (1 - share).
    """
    return values[ceil(share * (len(values) + 1)) - 1]


class StartSpreads:
    """Says when strategies are likely to start, by the past races of one cluster."""

    def __init__(self, past: Iterable[PastRace]) -> None:
        self._past = tuple(past)
        self._ratios = cache(self._of_kind)

    def of(self, estimate: Estimate, gpus: int) -> Spread | None:
        """Return when a job of so many GPUs is likely to start; None where nothing tells.

        Records of the same source and a like number of GPUs count, else all of that source, else
        the prior. Of a start that Slurm does not plan the waits of such races tell.
        """
        found = self._ratios(estimate.source, gpus)
        if found is None:
            return None
        middle, late, source = found
        predicted_s = estimate.start_in.total_seconds() if estimate.start_in else 0.0
        return Spread(p50=_start(predicted_s, middle), p90=_start(predicted_s, late), source=source)

    def _of_kind(self, source: Source, gpus: int) -> tuple[float, float, str] | None:
        same = [race for race in self._past if race.source is source]
        alike = [race for race in same if _is_alike(race.gpus, gpus)]
        for races, what in ((alike, f"{source} starts of a like size"), (same, f"{source} starts")):
            if len(races) >= LEAST:
                ratios = sorted(ratio(race.predicted_s or 0.0, race.waited_s) for race in races)
                middle, late = conformal(ratios, _P50), conformal(ratios, _P90)
                return middle, late, f"{len(races)} {what} here"
        prior = _PRIORS.get(source)
        return (*prior, f"rv's prior for {source} starts") if prior else None


def _is_alike(one: int, other: int) -> bool:
    return max(one, other) <= _LIKE_SIZE * max(1, min(one, other))


def ratio(predicted_s: float, actual_s: float) -> float:
    """Return how many times as long as predicted something took."""
    return (max(0.0, actual_s) + FLOOR_S) / (max(0.0, predicted_s) + FLOOR_S)


def corrected(predicted_s: float, by: float) -> float:
    """Return the seconds that what is predicted takes by a ratio; ten years at most."""
    return min(LONGEST_S, max(0.0, (predicted_s + FLOOR_S) * by - FLOOR_S))


def _start(predicted_s: float, by: float) -> timedelta:
    return timedelta(seconds=round(corrected(predicted_s, by)))


def one_after_the_other(*spreads: Spread) -> Spread:
    """Add times that follow each other and do not depend on one another.

    The middles add up; what 90 % may take beyond them adds up as the sides of a right angle do. For
    normal distributions that is exact. To add the p90 themselves would hold in far more than 90 %.
    """
    p50 = sum((spread.p50 for spread in spreads), timedelta(0))
    beyond = hypot(*((spread.p90 - spread.p50).total_seconds() for spread in spreads))
    sources = dict.fromkeys(spread.source for spread in spreads if spread.source)
    return Spread(p50=p50, p90=p50 + timedelta(seconds=round(beyond)), source="; ".join(sources))
