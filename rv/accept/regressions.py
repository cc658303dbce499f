"""Which of a run's series have become slower: all judged together. Pure.

A series is one number of one GPU over the runs. Its newest value is held against its own sound ones
of the same software (`rv.accept.charts`); with how many series a run has, its limits widen, so that
a run of sound GPUs alarms rarely, however many numbers it has. All rates of one GPU also make a
series together, their mean in parts of their references: what slows the GPU is seen in it sooner
than in any of them.

Where the series of one kind move together, on three nodes or with new software, the cause is not
one GPU: their common shift (the median of their changes) is told once, and each is judged by what
is left of its own. New software excuses what came with its first run. Where it ran before and was
clearly better, it is not the cause, and what is slower now is judged as if it were not new.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from rv.accept.charts import FLOOR, Chart, Limits, Reading, limits, spread_of
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
from rv.accept.reference_software import reference_software
from rv.accept.results import Status
from rv.dataclass import dataclass

WARN_LOSS, LASTING_LOSS, FAIL_LOSS = 0.05, 0.02, 0.15
"""The least loss that one run, or several, are flagged for; and that is FAIL."""
_ALIKE: Final = 4
"""Series that a common shift needs, and whose deviation is usual."""
_FLEET_NODES: Final = 3
_LEAST_SHIFT: Final = 0.02
_SHIFT_Z: Final = 4.0
_FALL_Z: Final = 3.0
_RECENT: Final = 3
"""Runs in which a fall counts: as many as a node needs at its old level to be good again."""
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
    """The reference of the newest value of `series`: `points`, earlier ones.

    `is_other` says that they are of other software, or of other too. `place` is the series' own.
    Values and means are times `sign`: higher is better.
    """

    place: int
    series: Series
    points: Sequence[Point]
    is_other: bool

    @property
    def sign(self) -> float:
        """-1 where lower is better."""
        return 1.0 if self.series.direction == "higher" else -1.0

    @property
    def own(self) -> Sequence[Point]:
        """The earlier values that count and are of the newest one's software."""
        return _of_software(self.series, {self.series.points[-1].fingerprint})

    @property
    def values(self) -> list[tuple[float, bool]]:
        """The reference's values, each with whether it was sound."""
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
    judged = _all_judged(pasts, bounds)
    found: list[Regression | None] = [None] * len(every)
    for place, each in judged.items():
        found[place] = each.regression
    for known in subjects:
        whole = _of_subject([judged[past.place] for past in known], bounds)
        for past in known:  # then none of its values is sound
            found[past.place] = found[past.place] or whole
    return found


def _all_judged(pasts: Iterable[_Past], bounds: Limits) -> dict[int, _Judged]:
    """Judge the series, those of a kind together; give each by its place."""
    less = [past for known in _of_one_kind(pasts) for past in _less_excused(known, bounds)]
    judged = [each for known in _of_one_kind(less) for each in _of_kind(known, bounds)]
    return {each.past.place: each for each in judged}


def _subjects(pasts: Iterable[_Past]) -> list[list[_Past]]:
    """Give the series of each GPU that has enough to be judged together."""
    groups = _grouped(pasts, lambda past: past.series.subject)
    return [known for name, known in groups.items() if name and len(known) >= _TOGETHER]


def _of_one_kind(pasts: Iterable[_Past]) -> Iterable[list[_Past]]:
    """Part the series by their kind, and by whether their reference is of other software."""
    return _grouped(pasts, lambda past: (past.series.kind, past.is_other)).values()


def _grouped(pasts: Iterable[_Past], key: Callable[[_Past], Any]) -> dict[Any, list[_Past]]:
    groups: dict[Any, list[_Past]] = {}
    for past in pasts:
        groups.setdefault(key(past), []).append(past)
    return groups


def same_software(points: Sequence[Point]) -> Sequence[Point]:
    """Give the points that have the newest one's software, with others between them or not."""
    return [point for point in points if point.fingerprint == points[-1].fingerprint]


def _past(place: int, series: Series) -> _Past | None:
    """Choose the reference of the newest value; None where it has none, or is not judged itself:
    it is contended, or retired since it was judged."""
    newest = series.points[-1]
    software = reference_software(_counted(series), newest.fingerprint)
    points = _of_software(series, software)
    if not points or newest.standing in (CONTENDED, RETIRED):
        return None
    is_other = software != {newest.fingerprint}
    return _Past(place=place, series=series, points=points, is_other=is_other)


def _counted(series: Series) -> Sequence[Point]:
    """Give the earlier values that count: none that is retired, contended, or of a common shift."""
    return [point for point in series.points[:-1] if point.standing in (SOUND, FAULTY)]


def _of_software(series: Series, software: Collection[str]) -> Sequence[Point]:
    return [point for point in _counted(series) if point.fingerprint in software]


def _less_excused(known: Sequence[_Past], bounds: Limits) -> Sequence[_Past]:
    """Give the series of one kind; to those that fell after the first run of their new software a
    reference that has its values too."""
    if not any(past.is_other and past.own for past in known):
        return known
    fallen = _fallen(known, _charts(known, bounds))
    return [_as_before(past) if past.place in fallen else past for past in known]


def _fallen(known: Sequence[_Past], charts: Sequence[Chart]) -> set[int]:
    """Give the places of the series that fell while their software stayed the same.

    Series with the same runs of it are compared together. Where not all move together now, each is
    also compared by itself.
    """
    parts = {past.place: _own(past, chart.mean) for past, chart in zip(known, charts, strict=True)}
    alike = list(_grouped(known, _own_runs).values())
    if not _common_shift(known, charts):
        alike += [[past] for past in known]
    fallen, spread = set[int](), _spread(charts)
    for places in [[past.place for past in pasts] for pasts in alike]:
        if _has_fallen([parts[place] for place in places], spread):
            fallen.update(places)
    return fallen


def _own(past: _Past, mean: float) -> list[float]:
    """Give all values of the newest software, with the newest, as parts of the reference."""
    return [_part(mean, past.sign * p.value) for p in (*past.own, past.series.points[-1])]


def _own_runs(past: _Past) -> tuple[str, ...]:
    return (past.series.points[-1].fingerprint, *[point.run for point in past.own])


def _has_fallen(parts: Sequence[Sequence[float]], spread: float) -> bool:
    """Whether what most series had in a recent run is clearly less than in one before, and that is
    most of what they lack of the reference: the rest is the software's.

    Not in any run: a single low one is over when it is over.
    """
    levels = [statistics.median(run) for run in zip(*parts, strict=True)]
    least = max(_LEAST_SHIFT, _FALL_Z * _OF_MEDIAN * spread * math.sqrt(2 / len(parts)))
    best = itertools.accumulate(levels, max)
    recent = list(zip(best, levels, strict=True))[-_RECENT:]
    return any(most - level > max(least, (1 - level) / 2) for most, level in recent)


def _as_before(past: _Past) -> _Past:
    """Judge as if the software were the same: by its values too, since there is a reference."""
    software = {point.fingerprint for point in (*past.points, past.series.points[-1])}
    every = _of_software(past.series, software)
    points = [point for point in every if point.time >= past.points[0].time]
    return replace(past, points=points, is_other=False)


def _of_kind(known: Sequence[_Past], bounds: Limits) -> list[_Judged]:
    """Judge the series of one kind: by their usual deviation, and less what they have in common."""
    charts = _charts(known, bounds)
    shift = _common_shift(known, charts)
    found = []
    for past, chart in zip(known, charts, strict=True):
        newest = past.newest / (1 + shift)
        regression = _judged(chart.read(newest), bounds, past, shift)
        found.append(_Judged(past=past, mean=chart.mean, newest=newest, regression=regression))
    return found


def _charts(known: Sequence[_Past], bounds: Limits) -> list[Chart]:
    """Draw the references of series of one kind, by the deviation that is usual among them."""
    alike = spread_of([_drawn(past.values, Chart(bounds)) for past in known])
    return [_drawn(past.values, Chart(bounds, alike)) for past in known]


def _drawn(values: Iterable[tuple[float, bool]], chart: Chart) -> Chart:
    for value, is_sound in values:
        chart.add(value, is_sound=is_sound)
    return chart


def _common_shift(known: Sequence[_Past], charts: Sequence[Chart]) -> float:
    """Give the change that most series of a kind share, as a fraction of their values; 0 for none.

    It takes three nodes, as one node's own fault moves all of its GPUs; or new software.
    """
    is_fleet = len({past.series.node for past in known}) >= _FLEET_NODES
    both = [(past, chart.mean) for past, chart in zip(known, charts, strict=True) if chart.mean]
    if len(both) < _ALIKE or not (is_fleet or known[0].is_other):
        return 0.0
    shift = statistics.median([past.newest / mean - 1 for past, mean in both])
    least = max(_LEAST_SHIFT, _SHIFT_Z * _OF_MEDIAN * _spread(charts) / math.sqrt(len(known)))
    # Of all that there was, nothing is left that each could be judged by.
    return shift if abs(shift) > least and shift > -1 else 0.0


def _spread(charts: Sequence[Chart]) -> float:
    """Give the usual relative deviation of series of one kind."""
    return max(FLOOR, statistics.median([chart.spread() or 0.0 for chart in charts]))


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
    reading = chart.read(statistics.fmean([_part(each.mean, each.newest) for each in judged]))
    found = _regression(reading, bounds, FAIL_LOSS) if reading else None
    return replace(found, cause="gpu-rates") if found else None


def _parts_of_runs(judged: Sequence[_Judged]) -> list[tuple[float, bool]]:
    """Give the mean part of each run that has most of a GPU's rates, and whether all were sound."""
    runs: dict[str, list[tuple[float, float, bool]]] = {}
    for each in judged:
        for point in each.past.points:
            part = _part(each.mean, each.past.sign * point.value)
            runs.setdefault(point.run, []).append((point.time, part, point.standing == SOUND))
    whole = sorted(runs.values(), key=min)
    return [
        (statistics.fmean([part for _, part, _ in parts]), all(sound for _, _, sound in parts))
        for parts in whole
        if 2 * len(parts) > len(judged)
    ]


def _part(mean: float, value: float) -> float:
    """Give a value as a part of its reference's mean, more being better."""
    return 1 + (value - mean) / abs(mean or 1.0)


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
