"""Compare measurements over time: what changed in a history, and two runs side by side."""

import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rv.accept.measurements import CONTENDED, Measurement, Point, device_of, node_of
from rv.accept.regressions import Regression, same_software, series_of, together
from rv.accept.results import RunResult, Status, TestResult, worst
from rv.dataclass import dataclass
from rv.payloads.contract.stats import loss, mad


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangePoint:
    """Where the software changed: values are compared with those of the same software."""

    time: float
    before: str
    after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """One number of one GPU over time, oldest first.

    `median`, `spread` (MAD) and `loss` compare the last value with those before it that have the
    same software.
    """

    points: Sequence[Measurement]
    median: float
    spread: float
    loss: float
    regression: Regression | None
    changes: tuple[ChangePoint, ...]

    @property
    def last(self) -> Measurement:
        """The newest of them."""
        return self.points[-1]

    @property
    def values(self) -> tuple[float, ...]:
        """Their values."""
        return tuple(point.value for point in self.points)


def change_points(points: Sequence[Point]) -> tuple[ChangePoint, ...]:
    """Give the points where the software changed."""
    return tuple(
        ChangePoint(time=later.time, before=earlier.fingerprint, after=later.fingerprint)
        for earlier, later in itertools.pairwise(points)
        if earlier.fingerprint != later.fingerprint
    )


def trends(measured: Iterable[Measurement]) -> tuple[Trend, ...]:
    """Group measurements into histories; flagged ones first, then by what was lost.

    Flagged are only those that a run is judged by.
    """
    groups: dict[tuple[str, ...], list[Measurement]] = {}
    for each in sorted(measured, key=lambda each: each.time):
        groups.setdefault(each.identity, []).append(each)
    own = {name: group for name, group in groups.items() if group[-1].has_own_level}
    found = together([series_of(group, group[-1]) for group in own.values()])
    judged = dict(zip(own, found, strict=True))
    every = [_trend(group, judged.get(name)) for name, group in groups.items()]
    return tuple(sorted(every, key=lambda trend: (trend.regression is None, -trend.loss)))


def _trend(group: Sequence[Measurement], regression: Regression | None) -> Trend:
    last = group[-1]
    alike = [each for each in same_software(group)[:-1] if each.standing != CONTENDED]
    before = [each.value for each in alike] or [last.value]
    median = statistics.median(before)
    return Trend(
        points=group,
        median=median,
        spread=mad(before, median),
        loss=loss(last.value, median, last.direction),
        regression=regression,
        changes=change_points(group),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One number in both runs; `loss` is how much worse the second is, as a fraction."""

    before: Measurement
    after: Measurement
    loss: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A test whose verdict differs; None where one run does not have it.

    `gpu` is the GPU's UUID, "" for a test of no single one. `node` and `device` are where the
    second run had it, else the first.
    """

    payload: str
    node: str
    test: str
    device: str
    gpu: str
    before: Status | None = None
    after: Status | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What tests of two runs share: the GPU, by its UUID, else the node's device."""
        where = (self.gpu,) if self.gpu else (self.node, self.device)
        return (self.payload, self.test, *where)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What differs; the worst change first. `only_before` and `only_after` count numbers."""

    changes: tuple[Change, ...]
    turns: tuple[Turn, ...]
    only_before: int
    only_after: int


def compare(
    before: Sequence[Measurement],
    after: Sequence[Measurement],
    results: tuple[Sequence[RunResult], Sequence[RunResult]],
) -> Comparison:
    """Compare what both measured in the same way on the same GPU; `results` are both runs'."""
    first = {measured.identity: measured for measured in before}
    second = {measured.identity: measured for measured in after}
    both = [identity for identity in first if identity in second]
    changes = [_change(first[identity], second[identity]) for identity in both]
    return Comparison(
        changes=tuple(sorted(changes, key=lambda change: -change.loss)),
        turns=tuple(turn for turn in _turns(*results) if turn.before is not turn.after),
        only_before=len(first) - len(both),
        only_after=len(second) - len(both),
    )


def _change(before: Measurement, after: Measurement) -> Change:
    lost = loss(after.value, before.value, after.direction)
    return Change(before=before, after=after, loss=lost)


def _turns(before: Sequence[RunResult], after: Sequence[RunResult]) -> list[Turn]:
    """Give each test of either run once, with its worst status there: several processes or steps
    may have it, of which one failed."""
    turns: dict[tuple[str, ...], Turn] = {}
    for test, result in _tests(before):
        new = _turn(test, result)
        was = turns.get(new.key, new).before
        turns[new.key] = replace(new, before=worst([test.status, was or test.status]))
    for test, result in _tests(after):
        new = _turn(test, result)
        known = turns.get(new.key, new)
        now = worst([test.status, known.after or test.status])
        turns[new.key] = replace(new, before=known.before, after=now)
    return list(turns.values())


def _tests(results: Sequence[RunResult]) -> Iterator[tuple[TestResult, RunResult]]:
    for result in results:
        yield from ((test, result) for test in result.tests)


def _turn(test: TestResult, result: RunResult) -> Turn:
    device = device_of(test, result)
    return Turn(
        payload=result.test_type,
        node=node_of(test, result),
        test=test.name,
        device=test.device,
        gpu=device.uuid if device else "",
    )
