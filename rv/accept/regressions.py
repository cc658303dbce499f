"""Which of a run's series have become slower: all judged together. Pure.

A series is one number of one GPU over the runs. Its newest value is held against its own sound ones
of the same software (`rv.accept.charts`); with how many series a run has, its limits widen, so that
a run of sound GPUs alarms rarely, however many numbers it has. All rates of one GPU also make a
series together, their mean in parts of their references: what slows the GPU is seen in it sooner
than in any of them.

Where the series of one kind move together, on three nodes or with new software, the cause is not
one GPU: their common shift (the median of their changes) is told once, and each is judged by what
is left of its own.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from rv.accept.charts import FLOOR, LEAST_RUNS, Chart, Limits, Reading, limits, spread_of
from rv.accept.measurements import (
    CONTENDED,
    FAULTY,
    LANES_LOST,
    RETIRED,
    SHIFTED,
    SOUND,
    Measurement,
    Point,
)
from rv.accept.results import Status
from rv.dataclass import dataclass

WARN_LOSS, LASTING_LOSS, FAIL_LOSS = 0.05, 0.02, 0.15
"""The least loss that one run, or several, are flagged for; and that is FAIL."""
_ALIKE: Final = 4
"""Series that a common shift needs, and whose deviation is usual."""
_FLEET_NODES: Final = 3
_LEAST_SHIFT: Final = 0.02
_SHIFT_Z: Final = 4.0
_OF_MEDIAN: Final = math.sqrt(math.pi / 2)
"""The standard deviation of the median of n normal values is this times theirs, over sqrt(n)."""
_AT_LEVEL: Final = -2.0
_TOGETHER: Final = 3
_FLOOR_TOGETHER: Final = FLOOR / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One number of one GPU, oldest first; the last point is this run's.

    `kind` is what is measured on which model, equal for all GPUs that are comparable. `subject` is
    the GPU, on `node`; "" for a number that is no single GPU's, or says little of it. A larger loss
    than `fail_loss` is FAIL.
    """

    points: Sequence[Point]
    direction: str = "higher"
    kind: tuple[str, ...] = ()
    subject: str = ""
    node: str = ""
    fail_loss: float = FAIL_LOSS


@dataclass(frozen=True, kw_only=True, slots=True)
class Regression:
    """A loss against the history: a fraction of its mean, and how unlikely, as a z-score.

    `cause` is `gpu`; `gpu-rates` where only all rates of the GPU together show it; `software` where
    it came with new software and no other GPU tells whether that is why; `fleet` where all GPUs
    moved together, with `shift` the loss of all; `is_software` says that this came with new
    software. `recovering` says that the newest value is at its
    old level again, and not yet for long.
    """

    status: Status
    loss: float
    z: float
    median: float
    runs: int
    cause: str = "gpu"
    shift: float = 0.0
    is_software: bool = False
    recovering: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Past:
    """What the newest value of `series` is held against, and it itself, each times `sign`: higher
    is better. `is_other` says that the values are of other software. `place` is the series' own.
    """

    place: int
    series: Series
    points: Sequence[Point]
    sign: float
    is_other: bool

    @property
    def values(self) -> list[tuple[float, bool]]:
        """The values, each with whether it was sound."""
        return [(self.sign * point.value, point.standing == SOUND) for point in self.points]

    @property
    def newest(self) -> float:
        """This run's value."""
        return self.sign * self.series.points[-1].value


@dataclass(frozen=True, kw_only=True, slots=True)
class _Judged:
    """A series judged. `mean` is its reference, `newest` its value less the common shift."""

    past: _Past
    mean: float
    newest: float
    regression: Regression | None


def series_of(points: Sequence[Point], newest: Measurement) -> Series:
    """Give the values of one identity, oldest first, as what is judged."""
    return Series(
        points=points,
        direction=newest.direction,
        kind=(newest.gpu, *newest.key),
        subject=newest.gpu_uuid if newest.is_of_gpus and not newest.is_of_place else "",
        node=newest.node,
        fail_loss=LANES_LOST if newest.is_of_place else FAIL_LOSS,
    )


def together(every: Sequence[Series]) -> list[Regression | None]:
    """Judge the newest value of each series; None where it is in line, or too few are before it."""
    pasts = [past for place, series in enumerate(every) if (past := _past(place, series))]
    subjects = _subjects(pasts)
    bounds = limits(len(pasts) + len(subjects))
    judged = dict[int, _Judged]()
    for known in _grouped(pasts, lambda past: (past.series.kind, past.is_other)).values():
        judged |= {each.past.place: each for each in _of_kind(known, bounds)}
    found: list[Regression | None] = [None] * len(every)
    for place, each in judged.items():
        found[place] = each.regression
    for known in subjects:
        whole = _of_subject([judged[past.place] for past in known], bounds)
        for past in known:  # then none of its values is sound
            found[past.place] = found[past.place] or whole
    return found


def _subjects(pasts: Iterable[_Past]) -> list[list[_Past]]:
    """Give the series of each GPU that has enough to be judged together."""
    groups = _grouped(pasts, lambda past: past.series.subject)
    return [known for name, known in groups.items() if name and len(known) >= _TOGETHER]


def _grouped(pasts: Iterable[_Past], key: Callable[[_Past], Any]) -> dict[Any, list[_Past]]:
    groups: dict[Any, list[_Past]] = {}
    for past in pasts:
        groups.setdefault(key(past), []).append(past)
    return groups


def same_software(points: Sequence[Point]) -> Sequence[Point]:
    """Give the points that have the newest one's software, with others between them or not."""
    return [point for point in points if point.fingerprint == points[-1].fingerprint]


def _past(place: int, series: Series) -> _Past | None:
    """Choose what the newest value is held against: the same software's values, whenever they were,
    else those of another. None where neither has enough sound ones.

    Values that are retired, contended, or of a common shift, are none; a newest one that is
    contended, or retired since it was judged, is not judged.
    """
    *before, newest = series.points
    kept = [point for point in before if point.standing in (SOUND, FAULTY)]
    own = [point for point in kept if point.fingerprint == newest.fingerprint]
    points = _held_against(kept, own, newest.fingerprint)
    is_other = points is not own
    if not points or newest.standing in (CONTENDED, RETIRED):
        return None
    sign = 1.0 if series.direction == "higher" else -1.0
    return _Past(place=place, series=series, points=points, sign=sign, is_other=is_other)


def _held_against(kept: Sequence[Point], own: Sequence[Point], fingerprint: str) -> Sequence[Point]:
    """Give the values of the same software where enough are sound, else of the latest that has so
    many; else, where they are so many together, all; else those of the same software."""
    if _sound(own) >= LEAST_RUNS:
        return own
    other = _of_other_software(kept, fingerprint)
    return other or (kept if len(own) < len(kept) and _sound(kept) >= LEAST_RUNS else own)


def _sound(points: Sequence[Point]) -> int:
    return sum(point.standing == SOUND for point in points)


def _of_other_software(kept: Sequence[Point], own: str) -> Sequence[Point]:
    """Give the values of the latest software that had enough sound ones with none of `own` between.

    Of two in turn each waits for values of its own: nothing was changed for the other.
    """
    found, sound = None, Counter[str]()
    for point in kept:
        if point.fingerprint == own:
            sound.clear()
        elif point.standing == SOUND:
            sound[point.fingerprint] += 1
            if sound[point.fingerprint] >= LEAST_RUNS:
                found = point.fingerprint
    return [point for point in kept if point.fingerprint == found]


def _of_kind(known: Sequence[_Past], bounds: Limits) -> list[_Judged]:
    """Judge the series of one kind: by their usual deviation, and less what they have in common."""
    alike = spread_of([_drawn(past.values, Chart(bounds)) for past in known])
    charts = [_drawn(past.values, Chart(bounds, alike)) for past in known]
    shift = _common_shift(known, charts)
    found = []
    for past, chart in zip(known, charts, strict=True):
        newest = past.newest / (1 + shift)
        regression = _judged(chart.read(newest), bounds, past, shift)
        found.append(_Judged(past=past, mean=chart.mean, newest=newest, regression=regression))
    return found


def _drawn(values: Iterable[tuple[float, bool]], chart: Chart) -> Chart:
    for value, is_sound in values:
        chart.add(value, is_sound=is_sound)
    return chart


def _common_shift(known: Sequence[_Past], charts: Sequence[Chart]) -> float:
    """Give the change that most series of a kind share, as a fraction of their values; 0 for none.

    It takes three nodes, as one node's own fault moves all of its GPUs; or new software.
    """
    is_fleet = len({past.series.node for past in known}) >= _FLEET_NODES
    if len(known) < _ALIKE or not (is_fleet or known[0].is_other):
        return 0.0
    both = zip(known, charts, strict=True)
    shift = statistics.median([past.newest / chart.mean - 1 for past, chart in both])
    spread = max(FLOOR, statistics.median([chart.spread() or 0.0 for chart in charts]))
    is_clear = abs(shift) > _SHIFT_Z * _OF_MEDIAN * spread / math.sqrt(len(known))
    return shift if is_clear and abs(shift) > _LEAST_SHIFT else 0.0


def _judged(
    reading: Reading | None, bounds: Limits, past: _Past, shift: float
) -> Regression | None:
    """Say what a reading means; `shift` is what all of the kind have in common."""
    if reading is None:
        return None
    loss = -past.sign * shift
    regression = _regression(reading, bounds, past.series.fail_loss)
    if regression is not None:
        if past.is_other and not shift:
            return replace(regression, cause="software", status=Status.WARN)
        return replace(regression, shift=loss, is_software=past.is_other)
    if loss <= 0:
        return None
    return Regression(
        status=Status.WARN,
        loss=loss,
        z=-_SHIFT_Z,
        median=abs(reading.mean),
        runs=reading.runs,
        cause="fleet",
        shift=loss,
        is_software=past.is_other,
    )


def _of_subject(judged: Sequence[_Judged], bounds: Limits) -> Regression | None:
    """Judge all rates of one GPU as one series: their mean in parts of their references."""
    values = _parts_of_runs(judged)
    chart = _drawn(values, Chart(bounds, floor=_FLOOR_TOGETHER))
    reading = chart.read(statistics.fmean([_part(each, each.newest) for each in judged]))
    found = _regression(reading, bounds, FAIL_LOSS) if reading else None
    return replace(found, cause="gpu-rates") if found else None


def _parts_of_runs(judged: Sequence[_Judged]) -> list[tuple[float, bool]]:
    """Give the mean part of each run that has most of a GPU's rates, and whether all were sound."""
    runs: dict[str, list[tuple[float, float, bool]]] = {}
    for each in judged:
        for point in each.past.points:
            part = _part(each, each.past.sign * point.value)
            runs.setdefault(point.run, []).append((point.time, part, point.standing == SOUND))
    whole = sorted(runs.values(), key=min)
    return [
        (statistics.fmean([part for _, part, _ in parts]), all(sound for _, _, sound in parts))
        for parts in whole
        if 2 * len(parts) > len(judged)
    ]


def _part(judged: _Judged, value: float) -> float:
    """Give a value as a part of its reference, more being better."""
    return 1 + (value - judged.mean) / abs(judged.mean or 1.0)


def _regression(reading: Reading, bounds: Limits, fail_loss: float) -> Regression | None:
    """Flag a loss that one run shows by itself, or that lasts; FAIL beyond `fail_loss`."""
    scale = abs(reading.mean or 1.0)
    single, recent = ((reading.mean - each) / scale for each in (reading.value, reading.recent))
    losses = []
    if reading.normal < bounds.single and single > WARN_LOSS:
        losses.append((single, reading.normal))
    if reading.total > bounds.lasting and recent > LASTING_LOSS:
        losses.append((recent, -reading.total))
    if not losses:
        return None
    loss = max(losses)[0]
    return Regression(
        status=Status.FAIL if loss > fail_loss else Status.WARN,
        loss=loss,
        z=min(z for _, z in losses),
        median=abs(reading.mean),
        runs=reading.runs,
        recovering=reading.normal > _AT_LEVEL,
    )


def standing(regression: Regression | None) -> str:
    """Say what a value counts for from now on, by how it was judged."""
    if regression is None or (regression.cause == "fleet" and regression.is_software):
        return SOUND
    return SHIFTED if regression.shift and not regression.is_software else FAULTY
