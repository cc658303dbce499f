"""Histories as people look at them: a line for each number of each GPU, the worst first. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rv.accept.measurements import Measurement
from rv.accept.regression import ChangePoint, Point, Regression, change_points, regression
from rv.accept.regression import since_change as since
from rv.accept.robust import loss, mad

_BARS: Final = "▁▂▃▄▅▆▇█"
_SHOWN: Final = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """One number of one GPU over time, oldest first; `loss` is the last one's, of the median of
    those before it with the same software.
    """

    last: Measurement
    values: tuple[float, ...]
    median: float
    spread: float
    loss: float
    regression: Regression | None
    changes: tuple[ChangePoint, ...]


def trends(measured: Iterable[Measurement]) -> tuple[Trend, ...]:
    """Group measurements into histories; flagged ones first, then by what was lost."""
    groups: dict[tuple[str, ...], list[Measurement]] = {}
    for each in sorted(measured, key=lambda each: each.time):
        groups.setdefault((*each.subject, each.device, *each.key), []).append(each)
    found = [_trend(group) for group in groups.values()]
    return tuple(sorted(found, key=lambda t: (t.regression is None, -t.loss)))


def sparkline(values: Sequence[float]) -> str:
    """Draw the last values as bars, from the least to the largest of them."""
    shown = values[-_SHOWN:]
    least, most = min(shown), max(shown)
    if most == least:
        return _BARS[3] * len(shown)
    top = len(_BARS) - 1
    return "".join(_BARS[round((value - least) / (most - least) * top)] for value in shown)


def _trend(group: Sequence[Measurement]) -> Trend:
    import statistics

    points = [Point(time=m.time, value=m.value, fingerprint=m.fingerprint) for m in group]
    last = group[-1]
    before = [point.value for point in since(points)][:-1] or [last.value]
    median = statistics.median(before)
    return Trend(
        last=last,
        values=tuple(m.value for m in group),
        median=median,
        spread=mad(before, median),
        loss=loss(last.value, median, last.direction),
        regression=regression(points, last.direction),
        changes=change_points(points),
    )
