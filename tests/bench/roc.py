"""How well a drop of one GPU is told from noise: 1,000 synthetic histories, and the ROC.

`python tests/bench/roc.py [--histories 1000] [--noise 0.02] [--drop 0.07]`

Half of the histories are of a fleet of eight GPUs in which one loses `drop` in its last five runs,
half of a fleet in which none does. Each run of each GPU has normal noise. Every GPU's history is
judged as `rv accept history` does after each of the last five runs. Counted are fleets: found and
rightly named, and alarmed falsely. The curve moves the threshold of the modified z-score.
"""

import argparse
import random
from dataclasses import dataclass

from rv.accept import trends
from rv.accept.measurements import Point

GPUS = 8
TAIL = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Of fleets with a drop: those whose GPU was named, and those with another flagged. Of fleets
    without: those with any flagged; and of all judgements of sound GPUs the share that alarmed."""

    named: float
    misnamed: float
    alarmed: float
    per_judgement: float


def history(
    source: random.Random, runs: int, noise: float, drop: float, drift: float
) -> list[Point]:
    """One GPU: its own level, noise, and a drop in its last runs."""
    level = 700 * (1 + source.gauss(0, drift))
    values = [level * (1 + source.gauss(0, noise)) for _ in range(runs)]
    values[-TAIL:] = [value * (1 - drop) for value in values[-TAIL:]]
    return [Point(time=t, value=v, fingerprint="torch 2") for t, v in enumerate(values)]


def flagged(points: list[Point]) -> int:
    """After how many of the last runs the history was flagged."""
    ends = range(len(points) - TAIL + 1, len(points) + 1)
    return sum(trends.regression(points[:end], "higher") is not None for end in ends)


def count(histories: int, noise: float, drop: float, seed: int = 1) -> Counts:
    """Judge that many fleets, half of them with a drop."""
    source = random.Random(seed)
    named = misnamed = alarmed = alarms = judged = 0
    half = histories // 2
    for number in range(2 * half):
        bad = source.randrange(GPUS) if number < half else -1
        runs = source.randint(2 * TAIL + 1, 30)
        hits = [
            flagged(history(source, runs, noise, drop if gpu == bad else 0.0, 0.02))
            for gpu in range(GPUS)
        ]
        sound = [hit for gpu, hit in enumerate(hits) if gpu != bad]
        alarms, judged = alarms + sum(sound), judged + TAIL * len(sound)
        if number < half:
            named += hits[bad] > 0
            misnamed += any(sound)
        else:
            alarmed += any(sound)
    return Counts(
        named=named / half,
        misnamed=misnamed / half,
        alarmed=alarmed / half,
        per_judgement=alarms / judged,
    )


def main() -> None:
    """Print the curve, and the point at which rv works."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--noise", type=float, default=0.02)
    parser.add_argument("--drop", type=float, default=0.07)
    options = parser.parse_args()
    shipped = trends.WARN_Z
    print(
        f"{options.histories} fleets of {GPUS} GPUs, noise {options.noise:.0%}, drop {options.drop:.0%}"
    )
    print("  z below   named  misnamed  fleets alarmed falsely  alarms a judgement")
    for threshold in (-2.0, -2.5, -3.0, -3.5, -4.0, -5.0, -6.0):
        trends.WARN_Z = threshold
        found = count(options.histories, options.noise, options.drop)
        mark = "  <- rv" if threshold == shipped else ""
        print(
            f"  {threshold:>7}  {found.named:>6.1%}  {found.misnamed:>8.1%}"
            f"  {found.alarmed:>22.1%}  {found.per_judgement:>18.3%}{mark}"
        )


if __name__ == "__main__":
    main()
