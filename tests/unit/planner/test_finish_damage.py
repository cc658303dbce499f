"""Ranked by the end where something is in the way: full limits, damaged numbers, chains without an end."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from rv.models.job import JobState
from rv.models.performance import AllReduce, Rate, Source
from rv.models.plain import plain
from rv.models.plan import Plan, Strategy
from rv.models.request import Objective, Work
from rv.models.site import Price, Site
from rv.models.snapshot import Limits, Qos, Snapshot
from rv.planner.segments import end_of_chain
from rv.workflow.past import read_past
from tests.unit.planner.clusters import NOON, nodes, partition, snapshot
from tests.unit.planner.test_finish import HOUR, RATES, REQUEST, cluster, made, own_runs
from tests.unit.planner.test_schedule import waiting

ONE = replace(REQUEST, sizes=(), gpus=1)
PRICES = {gpu: Price(per_gpu_hour=1.0, origin="") for gpu in ("h200", "a100-80", "v100")}
CENTURIES = 10_000_000.0


def without_room(where: Snapshot) -> Snapshot:
    """Let the partition of the H200 take no other job of the user's, whose one job there runs."""
    parts = [replace(one, qos="few" if one.name == "h" else "") for one in where.partitions]
    mine = waiting()._replace(
        user="ann", partition="h", qos="few", state=JobState.RUNNING, gpus=0, end=NOON + HOUR
    )
    few = Qos(name="few", limits=Limits(max_submit_per_user=1))
    return replace(where, partitions=tuple(parts), qos=(few,), jobs=(mine,))


@pytest.mark.parametrize("objective", [Objective.FINISH, Objective.COST])
def test_what_may_not_be_sent_leaves_nothing_out(objective: Objective) -> None:
    """The best would be done first, but Slurm refuses its job: the others are all that there is."""
    request = replace(REQUEST, objective=objective)
    plan_made = made(request, without_room(cluster()), Site(performance=RATES, prices=PRICES))
    assert plan_made.strategies[0].gpu == "h200"
    assert plan_made.submissions
    assert plan_made.submissions[0].strategy.gpu == "a100-80"
    assert any("no room for more jobs" in note for note in plan_made.job_notes)


def chain(**more: object) -> Strategy:
    """A chain on four H200 in segments of at most 45 minutes."""
    request = replace(REQUEST, sizes=(), gpus=4, checkpoint=True)
    best = made(request, cluster(max_time=timedelta(minutes=45))).strategies[0]
    return replace(best, **more)


def test_a_chain_whose_later_segments_have_no_start_is_not_the_first_to_be_done() -> None:
    """Behind the window of the fast GPUs a job is planned that has no limit."""
    h200 = nodes("h", 1, gres={"h200": 4})
    a100 = nodes("a", 1, gres={"a100": 4}, features=("a100_80gb",))
    planned = waiting("h1", starts_in=timedelta(minutes=40))._replace(gpu_type="h200", end=None)
    where = snapshot((partition("gpu", h200), h200), (partition("a", a100), a100), jobs=(planned,))
    request = replace(REQUEST, sizes=(), gpus=4, checkpoint=True)
    plan_made = made(request, where)
    assert plan_made.strategies[0].gpu == "a100-80"
    endless = next(one for one in plan_made.strategies if one.segments > 1)
    assert endless.estimate.start_in == timedelta(0)
    assert endless.finish is None


def test_a_chain_is_done_later_the_more_it_computes() -> None:
    """With gaps of a day between the segments, of which the first fifty are worked out."""
    day = timedelta(days=1)
    starts = tuple(number * day for number in range(50))
    long = chain(total=timedelta(days=7), segment_starts=starts)
    part = long.walltime - long.buffer - timedelta(seconds=60)
    ends = [end_of_chain(long, part * share) for share in (0.5, 1, 1.5, 2, 49.5, 50, 50.5, 60)]
    assert ends == sorted(ends)
    assert ends[1] == part, "what ends with its first segment needs no second"
    assert ends[-1] >= 59 * long.walltime + 49 * (day - long.walltime)


@pytest.mark.parametrize("hours", [1e4, CENTURIES, 999_999_999.0])
@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_no_amount_of_work_breaks_a_plan(
    hours: float, objective: Objective, checkpoint: bool
) -> None:
    request = replace(
        REQUEST, work=Work(gpu_hours=hours), objective=objective, checkpoint=checkpoint
    )
    plan_made = made(request, cluster(h200_busy_for=HOUR, max_time=None))
    if hours >= CENTURIES:
        assert not plan_made.strategies
        assert any("longer than ten years" in one.reason for one in plan_made.excluded)


def test_what_is_done_in_a_year_is_given_its_date() -> None:
    """A weekday alone would be read as that of this week."""
    request = replace(REQUEST, work=Work(gpu_hours=1e5))
    plan_made = made(request, cluster(max_time=None))
    late = next(one.left_out for one in plan_made.strategies if one.left_out)
    assert late.startswith("would finish at ~2027-")


def test_of_starts_that_nobody_plans_the_fastest_is_first() -> None:
    """A job waits without a plan: of the H200 that are taken one GPU is cheaper, eight are sooner."""
    where = cluster(h200_busy_for=HOUR)
    where = replace(where, jobs=(*where.jobs, waiting()._replace(partition="h")))
    plan_made = made(REQUEST, where, Site(performance=RATES, prices=PRICES))
    unknown = [one for one in plan_made.strategies if one.estimate.start_in is None]
    assert [one.gpus for one in unknown] == [8, 4, 2, 1]


DAMAGE = {
    "no node": {"nodes": 0},
    "a negative node": {"nodes": -1},
    "no GPU": {"gpus": 0},
    "nothing computed": {"work": 1e-300, "gpus": 10**15},
    "negative work": {"work": -3.0},
    "a negative run": {"run_s": -5.0, "predicted_run_s": 100.0},
    "a run foretold as negative": {"predicted_run_s": -1.0},
    "a run foretold as nothing": {"predicted_run_s": 1e-300},
    "an endless run": {"run_s": 1e15, "predicted_run_s": 1e-3},
    "an endless wait": {"waited_s": 1e15, "predicted_s": 0.0},
    "a negative wait": {"waited_s": -1e15, "predicted_s": -1e15},
}


@pytest.mark.parametrize("count", [1, 3, 19, 20, 21, 25])
@pytest.mark.parametrize("name", DAMAGE)
def test_no_past_breaks_a_plan(name: str, count: int) -> None:
    """Nothing is done before it has begun, and a time is never a negative one."""
    for source in (Source.IDLE, Source.PLANNED):
        past = [replace(one, source=source, **DAMAGE[name]) for one in own_runs(count, 1.0)]
        kept = read_past(json.dumps([plain(race) for race in past]))
        for objective in Objective:
            request = replace(ONE, name="mine", objective=objective)
            site = Site(performance=RATES, past=kept)
            check_times(made(request, cluster(h200_busy_for=HOUR), site))


def check_times(plan_made: Plan) -> None:
    """Every time of a plan is one, and the p90 is no less than the p50."""
    for one in plan_made.strategies:
        assert one.run
        assert timedelta(0) <= one.run.p50 <= one.run.p90
        if one.finish and one.start:
            assert one.start.p50 + one.run.p50 <= one.finish.p50 + timedelta(seconds=1)
            assert one.finish.p50 <= one.finish.p90


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-300, 1e300, float("nan"), float("inf")])
def test_no_measured_rate_breaks_a_plan(value: float) -> None:
    h200, a100 = (
        Rate(gpu=gpu, kind="step", value=rate, source="measured here")
        for gpu, rate in (("NVIDIA H200", value), ("NVIDIA A100-SXM4-80GB", 2.0))
    )
    swapped = replace(h200, gpu=a100.gpu), replace(a100, gpu=h200.gpu)
    link = AllReduce(gpu="NVIDIA H200", gpus=8, nodes=1, value=value, source="measured here")
    for rates in ((h200, a100), swapped):
        known = replace(RATES, rates=(*rates, *RATES.rates), all_reduce=(link,))
        check_times(made(REQUEST, cluster(), Site(performance=known)))


def test_short_trials_do_not_make_long_runs_endless() -> None:
    """Twenty commands of milliseconds by their --work took five seconds each, to start a Python."""
    trials = tuple(
        replace(one, name="trial", predicted_run_s=0.001, run_s=5.0) for one in own_runs(20, 1.0)
    )
    run = made(ONE, cluster(), Site(performance=RATES, past=trials)).strategies[0].run
    assert run
    assert run.p50 < 1.3 * run.modelled
