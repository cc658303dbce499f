"""Ranked by when the work is done: rates, losses, walltimes, what is raced, and what is not."""

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from rv.errors import RvError
from rv.models.performance import AllReduce, PastRace, Performance, Rate, Source
from rv.models.plan import Plan
from rv.models.request import Command, Launcher, Objective, Request, Work
from rv.models.site import Price, Site
from rv.models.snapshot import Snapshot
from rv.planner import plan
from rv.planner.layouts import Layout
from rv.planner.quantiles import LEAST
from rv.planner.throughput import RunTimes
from tests.unit.planner.clusters import CATALOGUE, FAMILIES, NOON, ids, nodes, partition, snapshot
from tests.unit.planner.test_schedule import running, waiting

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TORCHRUN = Command(line="torchrun train.py", launcher=Launcher.TORCHRUN)
RATES = Performance(
    rates=tuple(
        Rate(gpu=gpu, kind="published", value=value, source="published bf16 rate")
        for gpu, value in (("a100-80", 250.0), ("h200", 750.0), ("v100", 125.0))
    ),
    nvlinked=("a100-80", "h200"),
)
REQUEST = Request(
    gpus=8,
    sizes=(1, 2, 4, 8),
    work=Work(gpu_hours=12.0, reference="a100-80"),
    objective=Objective.FINISH,
    command=TORCHRUN,
)


def cluster(*, h200_busy_for: timedelta | None = None, **more: object) -> Snapshot:
    """One node of eight H200, two of four A100, four of four V100; the H200 may be taken."""
    h200 = nodes("h", 1, gres={"h200": 8}, used=8 if h200_busy_for else 0)
    a100 = nodes("a", 2, gres={"a100": 4}, features=("a100_80gb",))
    v100 = nodes("v", 4, gres={"v100": 4})
    jobs = (running("h1", h200_busy_for, 8)._replace(gpu_type="h200"),) if h200_busy_for else ()
    pairs = [
        (partition(name, of, **more), of)
        for name, of in zip("hav", (h200, a100, v100), strict=True)
    ]
    return snapshot(*pairs, jobs=jobs)


def made(request: Request, where: Snapshot, site: Site | None = None) -> Plan:
    return plan(request, where, CATALOGUE, FAMILIES, site or Site(performance=RATES))


def test_the_soonest_done_is_first_and_its_time_is_worked_out() -> None:
    """8 GPUs three times as fast: 12 / 24 hours, and 3 / 200 * 2 * 7 / 8 more over NVLink."""
    best = made(REQUEST, cluster()).strategies[0]
    assert best.id == "h200/1x8/h"
    assert best.run
    assert best.run.p50 == pytest.approx(HOUR / 2 * (1 + 3 / 200 * 2 * 7 / 8), abs=SECOND)
    assert best.walltime == timedelta(minutes=49)  # 30.8 m * 1.3 * 1.2, in whole minutes
    assert best.finish
    assert best.finish.p50 == best.run.p50 + timedelta(seconds=3)


def test_a_start_now_wins_where_waiting_for_the_faster_takes_longer() -> None:
    soon, late = (
        made(REQUEST, cluster(h200_busy_for=timedelta(hours=hours))) for hours in (0.5, 5)
    )
    assert soon.strategies[0].id == "h200/1x8/h"
    assert late.strategies[0].id == "a100-80/2x4/a"


def test_what_takes_longer_than_the_best_needs_in_all_is_not_raced_and_says_why() -> None:
    """The H200 is free in half an hour: what runs longer than an hour must not win."""
    plan_made = made(REQUEST, cluster(h200_busy_for=HOUR / 2))
    assert [job.strategy.id for job in plan_made.submissions] == ["h200/1x8/h"]
    left_out = {one.id: one.left_out for one in plan_made.strategies if one.left_out}
    assert left_out["a100-80/2x4/a"] == "would finish at ~13:53, 53m after h200 1x8"
    assert left_out["v100/1x1/v"] == "would finish at ~Sun 12:00, 22h59m after h200 1x8"


def test_what_could_still_beat_the_best_is_raced() -> None:
    plan_made = made(REQUEST, cluster(h200_busy_for=timedelta(hours=1.8)))
    raced = [one.id for job in plan_made.submissions for one in job.strategies]
    assert raced[0] == "a100-80/2x4/a"
    assert "h200/1x8/h" in raced
    assert "v100/1x1/v" not in raced


def test_without_work_and_range_nothing_is_timed_and_the_ranking_is_as_ever() -> None:
    request = Request(gpus=4, command=TORCHRUN)
    plain, known = (made(request, cluster(), site) for site in (Site(), Site(performance=RATES)))
    assert ids(plain) == ids(known)
    assert not any(one.run or one.finish or one.left_out for one in known.strategies)
    assert all(one.start for one in known.strategies if one.estimate.start_in is not None)


def test_the_cheapest_is_first_where_costs_are_ranked() -> None:
    prices = {gpu: Price(per_gpu_hour=cost, origin="") for gpu, cost in (("h200", 9), ("v100", 1))}
    request = replace(REQUEST, objective=Objective.COST)
    plan_made = made(request, cluster(), Site(performance=RATES, prices=prices))
    assert plan_made.strategies[0].id == "v100/1x1/v"  # 24 GPU-hours for 1; the h200 4 for 9
    assert plan_made.strategies[-1].gpu == "a100-80"  # no price
    raced = {one.gpu for job in plan_made.submissions for one in job.strategies}
    assert raced == {"v100"}
    reasons = {one.id: one.left_out for one in plan_made.strategies}
    assert reasons["h200/1x1/h"] == "would cost 36.00, v100 1x1 would cost 24.00"
    assert reasons["a100-80/1x1/a"] == "has no price, v100 1x1 would cost 24.00"


def test_the_time_on_the_reference_stands_for_the_work() -> None:
    request = replace(REQUEST, work=None, sizes=(2, 4), gpus=4, walltime=6 * HOUR)
    plan_made = made(replace(request, walltime_given=True), cluster())
    two = next(one for one in plan_made.strategies if one.id == "a100-80/1x2/a")
    assert two.run
    assert two.run.p50 == pytest.approx(6 * HOUR, abs=SECOND)
    assert any("--time on 2 of them" in note for note in plan_made.notes)


def test_measured_rates_come_before_published_ones_and_only_in_pairs() -> None:
    """A rate of the H200 here is of no use where the A100 has none of that kind."""
    here = (
        Rate(gpu="NVIDIA H200", kind="step", value=4.0, source="measured here"),
        Rate(gpu="Tesla V100-SXM2-32GB", kind="step", value=1.0, source="measured here"),
    )
    alone = replace(RATES, rates=(*here, *RATES.rates))
    request = replace(REQUEST, sizes=(), gpus=1)
    runs = {
        one.gpu: one.run for one in made(request, cluster(), Site(performance=alone)).strategies
    }
    assert runs["h200"]
    assert runs["h200"].rated_by == "published bf16 rate"
    a100 = Rate(gpu="NVIDIA A100-SXM4-80GB", kind="step", value=2.0, source="measured here")
    paired = replace(RATES, rates=(*here, a100, *RATES.rates))
    runs = {
        one.gpu: one.run for one in made(request, cluster(), Site(performance=paired)).strategies
    }
    assert runs["h200"]
    assert (runs["h200"].rated_by, runs["h200"].p50) == ("measured here", 6 * HOUR)


def test_a_measured_all_reduce_takes_the_place_of_the_links_usual_bandwidth() -> None:
    link = AllReduce(gpu="NVIDIA H200", gpus=8, nodes=1, value=3.0, source="measured here")
    slow = replace(RATES, all_reduce=(link,))
    best = next(
        one
        for one in made(REQUEST, cluster(), Site(performance=slow)).strategies
        if one.id == "h200/1x8/h"
    )
    assert best.run
    assert best.run.scaled_by == "measured here"
    assert best.run.p50 == pytest.approx(HOUR / 2 * (1 + 2 * 7 / 8), abs=SECOND)


def own_runs(count: int, times: float) -> tuple[PastRace, ...]:
    """Runs of 12 GPU-hours on one A100 that took so many times as long as the rates say."""
    return tuple(
        PastRace(
            race_id=str(number),
            submitted_at=0.0,
            source=Source.IDLE,
            waited_s=1.0,
            gpus=1,
            name="mine",
            gpu="a100-80",
            run_s=times * 12 * 3600,
            work=12.0,
            reference="a100-80",
        )
        for number in range(count)
    )


@pytest.mark.parametrize(("times", "corrected"), [(1.5, 1.5), (9.0, 4.0), (0.01, 0.25)])
def test_past_runs_of_the_name_correct_the_time_within_bounds(
    times: float, corrected: float
) -> None:
    request = replace(REQUEST, name="mine", sizes=(), gpus=1)
    site = Site(performance=RATES, past=own_runs(3, times))
    plan_made = made(request, cluster(), site)
    run = next(one.run for one in plan_made.strategies if one.gpu == "a100-80")
    assert run
    assert run.p50 == pytest.approx(12 * HOUR * corrected, abs=SECOND)
    assert run.corrected_by == f"x{corrected:.2f} by 3 past runs of this name"
    others = made(replace(request, name="other"), cluster(), site)
    assert not any(one.run and one.run.corrected_by for one in others.strategies)


def test_one_short_run_of_the_name_does_not_shorten_what_is_asked_for() -> None:
    """It may have been a trial, and a job that is cut off has done nothing."""
    request = replace(REQUEST, name="mine", sizes=(), gpus=1)
    first = made(request, cluster()).strategies
    again = made(request, cluster(), Site(performance=RATES, past=own_runs(1, 0.5))).strategies
    assert [one.walltime for one in again] == [one.walltime for one in first]
    assert again[0].run
    assert first[0].run
    assert again[0].run.p50 == first[0].run.p50 / 2


def test_the_margin_gives_way_to_a_limit_and_the_p90_does_not() -> None:
    """Of 12 hours on one A100 the p90 is 15:36, and 18:44 are asked for."""
    request = replace(REQUEST, sizes=(), gpus=1)
    for limit, asked in ((19, 18.75), (17, 17.0), (15, None)):
        plan_made = made(request, cluster(max_time=limit * HOUR))
        found = {one.gpu: one.walltime for one in plan_made.strategies}
        assert found.get("a100-80") == (
            asked and pytest.approx(asked * HOUR, abs=timedelta(seconds=60))
        )


def test_a_chain_shows_when_each_of_its_segments_runs() -> None:
    request = replace(REQUEST, sizes=(), gpus=4, checkpoint=True, objective=Objective.FINISH)
    plan_made = made(request, cluster(max_time=timedelta(minutes=45)))
    best = plan_made.strategies[0]
    assert (best.gpu, best.segments) == ("h200", 3)
    assert best.segment_starts == tuple(timedelta(minutes=45 * number) for number in range(3))
    assert best.finish
    assert best.run
    assert best.finish.p50 > best.run.p50  # each segment spends a part on saving


def test_an_unknown_reference_is_a_usage_error_that_names_those_known() -> None:
    with pytest.raises(RvError) as caught:
        made(replace(REQUEST, work=Work(gpu_hours=1.0, reference="b9")), cluster())
    assert "a100-80, h200, v100" in caught.value.hint


def test_a_model_without_a_rate_is_not_considered() -> None:
    lone = nodes("k", 1, gres={"k80": 8})
    plan_made = made(REQUEST, snapshot((partition("k", lone), lone)))
    assert not plan_made.strategies
    assert "no rate of k80 is known" in plan_made.excluded[0].reason


def test_segments_that_are_not_raced_leave_nothing_out() -> None:
    """A window of 40 minutes on the fast GPUs: only a command that can resume could use it."""
    h200 = nodes("h", 1, gres={"h200": 4})
    a100 = nodes("a", 1, gres={"a100": 4}, features=("a100_80gb",))
    planned = waiting("h1", starts_in=timedelta(minutes=40))
    jobs = (planned._replace(gpu_type="h200", end=NOON + 1.2 * HOUR), waiting())
    request = replace(REQUEST, sizes=(), gpus=4)
    where = snapshot((partition("gpu", h200), h200), (partition("a", a100), a100), jobs=jobs)
    plan_made = made(request, where)
    assert plan_made.strategies[0].id == "h200/1x4/gpu/checkpoint"
    raced = [job.strategy.id for job in plan_made.submissions]
    assert raced == ["a100-80/1x4/a", "h200/1x4/gpu"]
    able = made(replace(request, checkpoint=True), where)
    assert able.submissions[0].strategy.id == "h200/1x4/gpu/checkpoint"


@pytest.mark.parametrize("spread", [0.1, 0.4, 0.8])
def test_the_stated_p90_of_runs_holds_in_85_to_95_percent(spread: float) -> None:
    """Runs take a third longer than the rates say, more or less so; 40 of them are known."""
    dice = Random(7)
    held = 0
    for _ in range(400):
        past = [ran(dice.lognormvariate(0.3, spread)) for _ in range(40)]
        times = RunTimes(replace(REQUEST, name="new"), RATES, past, CATALOGUE)
        run = times.of("h200", Layout(1, 8))
        held += run.modelled * dice.lognormvariate(0.3, spread) <= run.p90
    assert 0.85 <= held / 400 <= 0.95


def ran(times: float) -> PastRace:
    """A race of any name that took so many times as long as was foretold."""
    return replace(own_runs(1, 1.0)[0], predicted_run_s=1000.0, run_s=1000.0 * times)


def test_a_start_that_slurm_does_not_plan_leaves_nothing_out() -> None:
    """Past waits make it likely, and first; but a limit of the user's own may be what it waits for."""
    waits = tuple(
        replace(race, race_id=str(number), source=Source.UNKNOWN, waited_s=60.0, run_s=None)
        for number, race in enumerate(own_runs(LEAST, 1.0))
    )
    where = cluster(h200_busy_for=HOUR / 2)
    where = replace(where, jobs=(*where.jobs, waiting()._replace(partition="h")))
    plan_made = made(REQUEST, where, Site(performance=RATES, past=waits))
    assert plan_made.strategies[0].id == "h200/1x8/h"
    assert plan_made.strategies[0].estimate.start_in is None
    raced = {one.gpu for job in plan_made.submissions for one in job.strategies}
    assert raced == {"h200", "a100-80"}
