"""What paired differences of waiting times are held to show."""

import math

import pytest

from tests.bench.paired import Start, Verdict, compare, differences, upper_bound

CYCLE = 3.0


def starts(**waits: list[float]) -> list[Start]:
    """One scenario's waits, by contender; the seeds are 1, 2, …"""
    return [
        Start(scenario="s", seed=seed, contender=name, seconds=seconds)
        for name, values in waits.items()
        for seed, seconds in enumerate(values, 1)
    ]


def verdict(ours: list[float], rival: list[float]) -> Verdict:
    found = differences(starts(ours=ours, rival=rival), "s", "ours", "rival")
    return compare(found, CYCLE).verdict


def test_differences_pair_by_seed_and_scenario() -> None:
    mixed = [
        Start(scenario="s", seed=2, contender="ours", seconds=5.0),
        Start(scenario="s", seed=1, contender="rival", seconds=1.0),
        Start(scenario="s", seed=1, contender="ours", seconds=3.0),
        Start(scenario="s", seed=2, contender="rival", seconds=9.0),
        Start(scenario="s", seed=3, contender="ours", seconds=7.0),
        Start(scenario="s", seed=1, contender="third", seconds=50.0),
        Start(scenario="t", seed=1, contender="rival", seconds=50.0),
    ]
    assert differences(mixed, "s", "ours", "rival") == [2.0, -4.0]


def test_the_bound_is_students() -> None:
    # Mean 2, standard deviation 1, four values: 2 + 2.353 / 2 (95 %, three degrees of freedom).
    values = [2 - math.sqrt(1.5), 2.0, 2.0, 2 + math.sqrt(1.5)]
    assert upper_bound(values) == pytest.approx(2 + 2.353 / 2)
    assert upper_bound([1.0] * 40) == pytest.approx(1.0)
    assert upper_bound([0.0]) == math.inf


def test_a_contender_that_is_worse_is_flagged() -> None:
    """A planted delay of two cycles shows through noise that both share."""
    rival = [2.0, 31.0, 4.0, 60.0, 3.0]
    ours = [
        wait + 6.0 + jitter for wait, jitter in zip(rival, (0.2, -0.3, 0.1, 0, 0.3), strict=True)
    ]
    assert verdict(ours, rival) is Verdict.WORSE
    assert not Verdict.WORSE.holds


def test_one_bad_start_among_few_is_not_no_worse() -> None:
    """A mean within the tolerance that chance may explain is no proof."""
    assert verdict([1.0, 1.0, 1.0, 10.0], [1.0, 1.0, 1.0, 1.0]) is Verdict.NOT_SHOWN
    assert verdict([1.0], [1.0]) is Verdict.NOT_SHOWN
    assert not Verdict.NOT_SHOWN.holds


def test_a_second_of_overhead_is_no_worse_and_half_a_minute_less_is_better() -> None:
    rival = [1.0, 30.0, 45.0, 2.0]
    assert verdict([wait + 1.1 for wait in rival], rival) is Verdict.NO_WORSE
    assert verdict([1.0, 2.0, 2.0, 1.5], [31.0, 40.0, 29.0, 60.0]) is Verdict.BETTER
