"""How the calibration bench counts kept and broken estimates, and draws its jobs."""

from datetime import timedelta
from random import Random

from rv.models.performance import Source
from rv.models.plan import STARTS_NOW, UNKNOWN_START, Estimate
from rv.models.request import Request
from tests.bench.traffic import arrivals, questions
from tests.bench.trials import Trial, errors, kept, pick
from tests.unit.planner.clusters import campus, planned

SHAPE = {"v100": ("v1", "v2", "v3"), "h200": ("h1", "h2")}


def trial(source: Source, waited: float | None, **more: float | None) -> Trial:
    defaults = {"strategy": "v100/1x1/gpu", "predicted": 0.0, "window": None, "watched": 1000.0}
    return Trial(source=source, waited=waited, **{**defaults, **more})


def test_idle_has_thirty_seconds() -> None:
    trials = [trial(Source.IDLE, waited) for waited in (0.5, 30.0, 30.1, None)]
    trials.append(trial(Source.IDLE, None, watched=12.0))
    found = kept(trials, Source.IDLE)
    assert (found.kept, found.decided) == (2, 4)


def test_a_hole_has_its_window() -> None:
    trials = [
        trial(Source.BACKFILL_WINDOW, 50.0, window=60.0),
        trial(Source.BACKFILL_WINDOW, 61.0, window=60.0),
        trial(Source.BACKFILL_WINDOW, None, window=60.0),
        trial(Source.BACKFILL_WINDOW, None, window=60.0, watched=59.0),
        trial(Source.BACKFILL_WINDOW, 400.0),
    ]
    found = kept(trials, Source.BACKFILL_WINDOW)
    assert (found.kept, found.decided) == (2, 4)
    assert kept(trials, Source.IDLE).share == 0.0


def test_errors_are_signed_and_of_planned_starts_only() -> None:
    trials = [
        trial(Source.PLANNED, 50.0, predicted=40.0),
        trial(Source.PLANNED, 20.0, predicted=40.0),
        trial(Source.PLANNED, None, predicted=40.0),
        trial(Source.IDLE, 5.0),
    ]
    assert errors(trials) == [-20.0, 10.0]


def test_a_draw_gives_every_source_the_same_chance() -> None:
    from dataclasses import replace

    (first, second, third, *_) = planned(Request(gpus=2), campus()).strategies
    hole = Estimate(
        source=Source.BACKFILL_WINDOW, start_in=timedelta(0), window=timedelta(minutes=5)
    )
    strategies = [
        replace(first, estimate=STARTS_NOW),
        replace(second, estimate=STARTS_NOW),
        replace(third, estimate=hole),
        replace(third, estimate=UNKNOWN_START),
    ]
    drawn = [pick(strategies, draw / 100) for draw in range(100)]
    assert [drawn.count(each) for each in strategies] == [25, 25, 50, 0]
    assert pick(strategies[3:], 0.5) is None


def test_traffic_keeps_as_much_busy_as_it_should() -> None:
    """Four GPUs a node; limits are never shorter than the jobs; a seed repeats itself."""
    seconds = 20000
    jobs = list(arrivals(Random(7), SHAPE, 4, seconds, busy=0.8))
    used = sum(job.gpus * job.nodes * job.seconds for job in jobs) / (20 * seconds)
    assert 0.75 < used < 0.85
    assert all(job.seconds <= 60 * job.minutes for job in jobs)
    assert {job.nodes for job in jobs} == {1, 2, 3}
    assert jobs == list(arrivals(Random(7), SHAPE, 4, seconds, busy=0.8))


def test_questions_come_in_their_time() -> None:
    asked = list(questions(Random(7), 100, 4100, 8))
    assert 400 < len(asked) < 600
    assert all(100 < question.after < 4100 and 0 <= question.pick < 1 for question in asked)
