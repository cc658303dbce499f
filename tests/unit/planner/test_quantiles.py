"""Stated quantiles hold: of starts, runs and finishes, whatever their distribution."""

from collections.abc import Callable
from datetime import timedelta
from random import Random

import pytest

from rv.models.performance import PastRace, Source
from rv.models.plan import STARTS_NOW, UNKNOWN_START, Estimate, Spread
from rv.planner.quantiles import LEAST, StartSpreads, conformal, one_after_the_other

Wait = Callable[[Random, float], float]
DISTRIBUTIONS: dict[str, Wait] = {
    "as planned, with noise": lambda dice, planned: max(0.0, dice.gauss(planned, planned / 5)),
    "mostly early": lambda dice, planned: planned * dice.betavariate(2, 2),
    "a long tail": lambda dice, planned: planned * dice.lognormvariate(0.0, 1.2),
    "at once or very late": lambda dice, planned: (
        planned * dice.choice((dice.random() / 10, dice.random() / 10, dice.uniform(3, 6)))
    ),
    "far above the plan": lambda dice, planned: 7 * planned + dice.expovariate(1 / 600),
}
TIMES = 600


def past(dice: Random, wait: Wait, count: int, source: Source = Source.PLANNED) -> list[PastRace]:
    """Races of one cluster whose waits are of one distribution."""
    races = []
    for number in range(count):
        predicted = dice.uniform(60, 7200)
        waited = wait(dice, predicted)
        races.append(
            PastRace(
                race_id=str(number),
                submitted_at=float(number),
                source=source,
                waited_s=waited,
                gpus=dice.choice((1, 2, 4, 8)),
                predicted_s=predicted,
            )
        )
    return races


def planned(seconds: float) -> Estimate:
    return Estimate(source=Source.PLANNED, start_in=timedelta(seconds=seconds))


def coverage(wait: Wait, count: int) -> tuple[float, float]:
    """In which share of new cases the stated p50 and p90 were enough."""
    dice = Random(f"{count}")
    middle = late = 0
    for _ in range(TIMES):
        spreads = StartSpreads(past(dice, wait, count))
        predicted = dice.uniform(60, 7200)
        spread = spreads.of(planned(predicted), 4)
        assert spread is not None
        waited = wait(dice, predicted)
        middle += waited <= spread.p50.total_seconds() + 0.5
        late += waited <= spread.p90.total_seconds() + 0.5
    return middle / TIMES, late / TIMES


@pytest.mark.parametrize("count", [LEAST, 60, 200])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_stated_p90_of_starts_holds_in_85_to_95_percent(name: str, count: int) -> None:
    middle, late = coverage(DISTRIBUTIONS[name], count)
    assert 0.85 <= late <= 0.95
    assert 0.43 <= middle <= 0.57


def test_without_records_the_prior_misses_where_waits_are_not_as_it_thinks() -> None:
    """The test above can fail: an uncorrected estimate does."""
    _, late = coverage(DISTRIBUTIONS["far above the plan"], LEAST - 1)
    assert late < 0.5


def finished(dice: Random, tail: float) -> float:
    """A wait and a run, one after the other."""
    return 600 * dice.lognormvariate(0.0, tail) + dice.gauss(3000, 600)


@pytest.mark.parametrize("tail", [0.3, 0.6, 1.0])
def test_the_p90_of_a_wait_and_a_run_holds_in_85_to_95_percent(tail: float) -> None:
    dice = Random(1)
    waits = sorted(600 * dice.lognormvariate(0.0, tail) for _ in range(4000))
    runs = sorted(dice.gauss(3000, 600) for _ in range(4000))
    parts = [
        Spread(
            p50=timedelta(seconds=conformal(values, 0.5)),
            p90=timedelta(seconds=conformal(values, 0.9)),
        )
        for values in (waits, runs)
    ]
    limit = one_after_the_other(*parts).p90.total_seconds()
    held = sum(finished(dice, tail) <= limit for _ in range(4000)) / 4000
    assert 0.85 <= held <= 0.95


def test_the_rank_is_that_of_split_conformal_prediction() -> None:
    """Of 19 values the 18th: a new value is above it in one of ten places of 20."""
    assert conformal(list(range(1, 20)), 0.9) == 18
    assert conformal(list(range(1, 20)), 0.5) == 10


def test_fewer_records_than_twenty_leave_the_prior_and_say_so() -> None:
    few = past(Random(2), DISTRIBUTIONS["far above the plan"], LEAST - 1)
    spread = StartSpreads(few).of(planned(600), 4)
    assert spread
    assert spread.source == "rv's prior for planned starts"
    assert spread.p50 == timedelta(seconds=600)


def test_an_unknown_start_has_quantiles_only_from_records() -> None:
    assert StartSpreads(()).of(UNKNOWN_START, 1) is None
    waited = [
        PastRace(
            race_id=str(number), submitted_at=0.0, source=Source.UNKNOWN, waited_s=100.0, gpus=1
        )
        for number in range(LEAST)
    ]
    spread = StartSpreads(waited).of(UNKNOWN_START, 1)
    assert spread
    assert spread.p50 == timedelta(seconds=100)


def test_records_of_a_like_size_count_before_all_of_the_source() -> None:
    def races(gpus: int, waited: float) -> list[PastRace]:
        return [
            PastRace(
                race_id=f"{gpus}-{number}",
                submitted_at=0.0,
                source=Source.IDLE,
                waited_s=waited,
                gpus=gpus,
                predicted_s=0.0,
            )
            for number in range(LEAST)
        ]

    spreads = StartSpreads([*races(1, 5.0), *races(64, 500.0)])
    small, large = (spreads.of(STARTS_NOW, gpus) for gpus in (2, 32))
    assert small
    assert large
    assert (small.p50, large.p50) == (timedelta(seconds=5), timedelta(seconds=500))
    assert small.source == "20 idle starts of a like size here"
