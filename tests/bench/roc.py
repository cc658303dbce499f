"""How well faults are told from noise: made-up histories of 96 series a run, and a table a noise.

`python tests/bench/roc.py [--fleets 15] [--noise 0.01,0.02,0.03] [--seed 1] [--jobs 2]`

A fleet of 12 nodes is measured in 25 to 35 runs: 8 GPUs of each by one number, or one GPU of each by
8. Each GPU has its own level, and each value normal noise. In the last runs one GPU loses something,
in one shape, or nothing or all of them do. Every run of these is judged as `rv accept run` does, and
what was judged bad is not part of the reference of the next.

Counted are runs in which a sound GPU was named (`false`), and fleets in which the bad one was named
in time (`in time`); `after` is the median of the runs until then, and `at` the 95th percentile of
what was lost when it was. For all GPUs together it counts fleets that were told as such, with none
of their GPUs named.
"""

import argparse
import random
import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from rv.accept.measurements import Point
from rv.accept.regressions import Regression, Series, standing, together

NODES, PER_NODE = 12, 8
WATCHED = 15
"""Runs that are judged."""
DRIFT = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A fault: what is lost in its nth run (from 1). `within` is the run in which it counts as seen
    in time; `whole` says that it is in all GPUs, `software` that the driver was changed with it."""

    name: str
    lost: Callable[[int], float]
    within: int = WATCHED
    whole: bool = False
    software: bool = False


SHAPES = (
    Shape(name="none", lost=lambda _: 0.0),
    Shape(name="step of 7 %", lost=lambda _: 0.07, within=5),
    Shape(name="step of 20 %, for ever", lost=lambda _: 0.20, within=1),
    Shape(name="drift of 0.5 % a run", lost=lambda run: DRIFT * run, within=9),
    Shape(name="15 % in each 3rd run", lost=lambda run: 0.15 * (run % 3 == 1)),
    Shape(name="driver: all 8 % slower", lost=lambda _: 0.08, within=1, whole=True, software=True),
    Shape(name="all 8 % slower", lost=lambda _: 0.08, within=1, whole=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What was said of one fleet: in how many runs a sound GPU was named, of how many; the first
    run in which the bad one was, 0 for none; in how many it was; in how many all were told."""

    false: int
    runs: int
    first: int
    named: int
    told: int


def fleet(shape: Shape, noise: float, numbers: int, seed: int) -> Seen:
    """Make one fleet's runs, and judge those from the first with the fault on."""
    source = random.Random(f"{shape.name} {noise} {numbers} {seed}")
    subjects = NODES * PER_NODE // numbers
    bad = source.randrange(subjects)
    levels = [700 * (1 + source.gauss(0, 0.02)) for _ in range(subjects * numbers)]
    kept: list[list[Point]] = [[] for _ in levels]
    seen = Seen(false=0, runs=0, first=0, named=0, told=0)
    sound_runs = source.randint(25, 35)
    for run in range(sound_runs + WATCHED):
        nth = run - sound_runs + 1
        lost = shape.lost(nth) if nth > 0 else 0.0
        every = []
        for place, level in enumerate(levels):
            subject, number = divmod(place, numbers)
            hit = shape.whole or subject == bad
            value = level * (1 + source.gauss(0, noise)) * (1 - lost * hit)
            driver = "new" if shape.software and nth > 0 else "old"
            point = Point(time=run, value=value, fingerprint=driver, run=str(run))
            kept[place].append(point)
            every.append(_series(kept[place], subject, number, subjects))
        if nth > 0:
            found = together(every)
            for points, regression in zip(kept, found, strict=True):
                points[-1] = replace(points[-1], standing=standing(regression))
            seen = _counted(seen, found, bad, numbers, nth, shape)
    return seen


def _series(points: list[Point], subject: int, number: int, subjects: int) -> Series:
    node = subject * NODES // subjects
    return Series(points=points, kind=(str(number),), subject=f"GPU-{subject}", node=f"n{node}")


def _counted(
    seen: Seen, found: list[Regression | None], bad: int, numbers: int, nth: int, shape: Shape
) -> Seen:
    named = {
        place // numbers
        for place, regression in enumerate(found)
        if regression is not None and regression.cause != "fleet"
    }
    told = sum(regression is not None and regression.cause == "fleet" for regression in found)
    is_named = not shape.whole and shape.lost(nth) > 0 and bad in named
    others = named if shape.whole or not shape.lost(WATCHED) + shape.lost(1) else named - {bad}
    return Seen(
        false=seen.false + bool(others),
        runs=seen.runs + 1,
        first=seen.first or (nth if is_named or told > len(found) / 2 else 0),
        named=seen.named + is_named,
        told=seen.told + (told > len(found) / 2),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What was seen of many fleets of one shape."""

    shape: Shape
    false: float
    in_time: float
    after: float
    at: float


def row(shape: Shape, every: Iterable[Seen]) -> Row:
    """Count fleets, and runs."""
    fleets = list(every)
    firsts = sorted(each.first or WATCHED + 1 for each in fleets)
    late = firsts[min(len(firsts) - 1, int(0.95 * len(firsts)))]
    return Row(
        shape=shape,
        false=sum(each.false for each in fleets) / sum(each.runs for each in fleets),
        in_time=sum(first <= shape.within for first in firsts) / len(firsts),
        after=statistics.median(firsts),
        at=shape.lost(late),
    )


def measured(
    shape: Shape, noise: float, numbers: int, fleets: int, seed: int, pool: ProcessPoolExecutor
) -> Row:
    """Judge so many fleets of a shape."""
    one = partial(fleet_of, shape.name, noise, numbers)
    return row(shape, pool.map(one, range(seed, seed + fleets)))


def fleet_of(name: str, noise: float, numbers: int, seed: int) -> Seen:
    """Judge the fleet of a shape, by its name: a process can be sent that."""
    return fleet(next(shape for shape in SHAPES if shape.name == name), noise, numbers, seed)


def table(
    noise: float, numbers: int, options: argparse.Namespace, pool: ProcessPoolExecutor
) -> None:
    """Print what was seen of each shape, with a line for sound GPUs beside all of them."""
    what = "96 GPUs x 1 number" if numbers == 1 else "12 GPUs x 8 numbers"
    print(f"\nnoise {noise:.0%}, {what}, {options.fleets} fleets, {WATCHED} runs each")
    print(f"  {'shape':24} {'false':>7} {'in time':>8} {'of run':>6} {'after':>6} {'at':>6}")
    rows = []
    for shape in SHAPES:
        each = measured(shape, noise, numbers, options.fleets, options.seed, pool)
        told = f"{each.in_time:>8.1%} {shape.within:>6} {each.after:>6.0f} {each.at:>6.1%}"
        is_fault = shape is not SHAPES[0]
        print(f"  {shape.name:24} {each.false:>7.2%} {told if is_fault else ''}", flush=True)
        rows.append(each)
    runs = len(SHAPES) * options.fleets * WATCHED
    print(f"  {'all':24} {statistics.fmean([each.false for each in rows]):>7.2%} of {runs:,} runs")


def main() -> None:
    """Print a table for each noise and layout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=15)
    parser.add_argument("--noise", default="0.01,0.02,0.03")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        for noise in map(float, options.noise.split(",")):
            for numbers in (1, PER_NODE):
                table(noise, numbers, options, pool)


if __name__ == "__main__":
    main()
