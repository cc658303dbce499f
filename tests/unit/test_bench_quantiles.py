"""The table of stated quantiles counts what held, and only what could have been known before."""

from random import Random

from rv.models.performance import Source
from tests.bench.quantiles import as_past, held, table
from tests.unit.planner.test_quantiles import DISTRIBUTIONS, past
from tests.unit.test_bench_trials import trial


def test_after_twenty_starts_the_p90_is_learned_and_holds() -> None:
    races = past(Random(3), DISTRIBUTIONS["far above the plan"], 400)
    prior, learned = held(races)
    assert (prior.learned, prior.starts) == (False, 20)
    assert prior.by_p90 < 10
    assert learned.starts == 380
    assert 0.85 <= learned.by_p90 / learned.starts <= 0.95
    assert "past starts" in table([prior, learned])


def test_a_trial_that_never_started_is_no_record() -> None:
    trials = [trial(Source.IDLE, 3.0), trial(Source.IDLE, None)]
    assert [race.waited_s for race in as_past(trials)] == [3.0]
