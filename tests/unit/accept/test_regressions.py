"""Histories that do not learn a fault: shapes of faults, fleets, repairs, and files of an older rv."""

import random
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest

from rv.accept.baselines import Baseline, Baselines
from rv.accept.charts import limits
from rv.accept.history import History
from rv.accept.judge import Judge
from rv.accept.measurements import FAULTY, RETIRED, SOUND, Measurement, Point, measurements
from rv.accept.regressions import Regression, Series, standing, together
from rv.accept.report.series import charts
from rv.accept.results import RunResult, Status
from rv.accept.run import earlier, others, remembered
from rv.accept.runs import Run, RunRecord
from rv.accept.trends import trends
from tests.bench import roc
from tests.unit.accept.made_results import of_rates

OF_ANOTHER = Baseline(
    payload="check", test="matmul.bf16", metric="tflops", unit="TFLOPS", gpu="another", value=1.0,
    source="here", kind="site", method_version=2,
)  # fmt: skip
NO_BASELINES = Baselines(values=(OF_ANOTHER,), models={})


def runs_of(
    levels: Sequence[Callable[[int], float]],
    count: int,
    noise: float = 0.0,
    software: Callable[[int], str] = lambda _: "a",
) -> list[list[Regression | None]]:
    """Judge so many runs of GPUs, a number each; what was judged bad is marked so."""
    source = random.Random(5)
    kept: list[list[Point]] = [[] for _ in levels]
    found = []
    for run in range(count):
        for points, level in zip(kept, levels, strict=True):
            value = level(run) * (1 + source.gauss(0, noise))
            points.append(Point(time=run, value=value, fingerprint=software(run), run=str(run)))
        series = [
            Series(points=points, kind=("x",), subject=f"g{i}", node=f"n{i}")
            for i, points in enumerate(kept)
        ]
        found.append(together(series))
        for points, each in zip(kept, found[-1], strict=True):
            points[-1] = replace(points[-1], standing=standing(each))
    return found


def told(found: list[list[Regression | None]], place: int = 0) -> list[str]:
    return [str(run[place].status) if (each := run[place]) and each else "PASS" for run in found]


def test_a_gpu_that_is_slower_for_ever_fails_for_ever() -> None:
    """A fifth less, in each of fifty runs: it never becomes the usual speed."""
    found = told(runs_of([lambda run: 700 if run < 10 else 560], 60, 0.005))

    assert found == ["PASS"] * 10 + ["FAIL"] * 50


def test_a_slow_drift_is_seen_from_birth_and_stays_so() -> None:
    """Half a percent a run: there never was a sound level, and still it is seen, before 10 %."""
    found = told(runs_of([lambda run: 700 * (1 - 0.005 * run)], 60, 0.002))

    first = next(run for run, status in enumerate(found) if status != "PASS")
    assert first < 20
    assert "PASS" not in found[first:]
    assert found[-1] == "FAIL"


@pytest.mark.parametrize(("first", "lost"), [(3, 0.09), (3, 0.2), (4, 0.11)])
def test_a_fault_of_the_first_days_is_not_learnt(first: int, lost: float) -> None:
    """Before there are five runs, too: what is low beside two or three is not of the reference."""
    found = told(runs_of([lambda run: 700 * (1 - lost * (run >= first))], 20, 0.005))

    assert found[:first] == ["PASS"] * first
    assert "PASS" not in found[first + 2 :]


@pytest.mark.parametrize("turns", [1, 3])
def test_no_run_of_the_same_software_hides_a_loss(turns: int) -> None:
    """A container a week: none is seen five times, and all of them together are the reference."""
    levels = [lambda run: 700 * (1 - 0.09 * (run >= 12))]
    found = told(runs_of(levels, 24, 0.005, lambda run: str(run // turns)))

    assert set(found[:12]) == {"PASS"}
    assert "PASS" not in found[13:]


def test_three_runs_at_the_old_level_heal_and_fewer_do_not() -> None:
    """A fault that comes and goes is not over after one good run."""
    found = told(runs_of([lambda run: 560 if 10 <= run < 14 else 700], 20, 0.002))

    assert found == ["PASS"] * 10 + ["FAIL"] * 4 + ["WARN"] * 2 + ["PASS"] * 4


def test_limits_widen_with_the_number_of_series() -> None:
    """The share of runs that alarm stays what it is."""
    one, many = limits(1), limits(96)

    assert (one.single, many.single) == pytest.approx((-2.81, -4.06), abs=0.02)
    assert one.lasting < many.lasting < 5


def test_what_all_lose_together_is_the_fleets_and_one_more_is_named() -> None:
    """Twelve nodes lose 8 %, and one of them 20 % more."""
    levels = [lambda run: 700.0 if run < 10 else 644.0] * 12
    levels[3] = lambda run: 700.0 if run < 10 else 515.0
    (found,) = runs_of(levels, 11, 0.002)[10:]

    assert {each.cause for each in found if each} == {"fleet", "gpu"}
    assert [
        (place, each.status) for place, each in enumerate(found) if each and each.cause == "gpu"
    ] == [(3, Status.FAIL)]
    alone = runs_of(levels[:2], 11, 0.002)[10]
    assert [each.cause for each in alone if each] == ["gpu", "gpu"]


def test_a_gpu_whose_rates_all_drift_is_seen_in_them_together_and_learns_none() -> None:
    """Eight numbers of each of four GPUs, 2 % of noise: one loses 4 %, two deviations."""
    source = random.Random(2)
    kept: list[list[Point]] = [[] for _ in range(32)]
    for run in range(24):
        for place, points in enumerate(kept):
            level = 672 if run >= 20 and place < 8 else 700
            value = level * (1 + source.gauss(0, 0.02))
            points.append(Point(time=run, value=value, fingerprint="a", run=str(run)))
    found = together(
        [
            Series(points=points, kind=(str(place % 8),), subject=f"g{place // 8}", node="n1")
            for place, points in enumerate(kept)
        ]
    )

    assert "gpu-rates" in {each.cause for each in found[:8] if each}
    assert {standing(each) for each in found[:8]} == {FAULTY}
    assert not any(found[8:])


def test_a_small_roc() -> None:
    """The bench's tables, smaller: `python tests/bench/roc.py` prints them."""
    step, drift, driver = (roc.SHAPES[place] for place in (1, 3, 5))
    whole = roc.row(drift, [roc.fleet_of(drift.name, 0.02, 8, 1)])
    single = roc.row(step, [roc.fleet_of(step.name, 0.02, 1, 1)])
    fleet = roc.row(driver, [roc.fleet_of(driver.name, 0.02, 1, 1)])

    assert (single.in_time, whole.in_time, fleet.in_time) == (1.0, 1.0, 1.0)
    assert whole.at < 0.05
    assert single.false + whole.false + fleet.false <= 0.1


# On this machine: what is kept, and what is read again.


def of_run(number: int, *rates: float, node: str = "n1", name: str = "Other GPU") -> RunResult:
    result = of_rates(*rates, name=name, hostname=node)
    tests = tuple(replace(test, host=node) for test in result.tests)
    devices = tuple(replace(each, uuid=f"GPU-{node}-{each.index}") for each in result.devices)
    when = result.timestamp
    assert when is not None
    return replace(
        result, tests=tests, devices=devices, timestamp=when.replace(hour=0, minute=number)
    )


def judged(
    history: History, number: int, *results: RunResult, baselines: Baselines = NO_BASELINES
) -> Run:
    """Judge one run by the history, and keep it, as `rv accept run` does."""
    name = f"r{number}"
    judge = Judge(
        baselines=baselines,
        past=earlier(history, name),
        others=others(history, name),
        run=name,
        cluster="c",
    )
    run = Run(record=RunRecord(race_id=name, cluster="c"), results=judge.judge(results))
    history.add(remembered(run))
    return run


def test_faulty_values_are_kept_and_marked(tmp_path: Path) -> None:
    """A fifth slower for ever is a FAIL for ever; of a GPU that computed wrongly nothing is sound."""
    history = History(tmp_path / "h.sqlite")
    statuses = [
        str(judged(history, n, of_run(n, 700.0 if n < 6 else 560.0)).results[0].status)
        for n in range(12)
    ]
    wrong = of_run(20, 700.0, 700.0)
    first = replace(wrong.tests[0], status=Status.FAIL, code="wrong_result")
    judged(history, 20, replace(wrong, tests=(first, *wrong.tests[1:]), status=Status.FAIL))

    assert statuses == ["WARN"] * 6 + ["FAIL"] * 6
    assert [each.standing for each in history.all(gpu="GPU-n1-0")] == [SOUND] * 6 + [FAULTY] * 7
    assert [each.standing for each in history.all(gpu="GPU-n1-1")] == [SOUND]


def test_a_repair_forgets_the_fault_and_anew_the_level_too(tmp_path: Path) -> None:
    """At the old level it is sound at once; at another only where that was said."""
    history = History(tmp_path / "h.sqlite")
    for n in range(10):
        judged(history, n, of_run(n, 700.0 if n < 6 else 560.0))

    assert history.repaired("elsewhere", ["n1"], anew=False) == 0
    assert history.repaired("c", ["n1"], anew=False) == 4
    assert {t.code for t in judged(history, 10, of_run(10, 699.0)).results[0].tests} == {
        "",
        "no_reference",
    }
    assert judged(history, 11, of_run(11, 560.0)).results[0].code == "regression"
    assert history.repaired("c", ["n1"], anew=True) == 8
    assert judged(history, 12, of_run(12, 560.0)).results[0].code == "no_reference"
    assert {each.standing for each in history.all()} == {RETIRED, SOUND}


def test_a_repair_takes_the_newest_value_out_of_the_trends_too(tmp_path: Path) -> None:
    """Before there is a new run: it was measured on what was repaired."""
    history = History(tmp_path / "h.sqlite")
    for n in range(7):
        judged(history, n, of_run(n, 700.0 if n < 6 else 560.0))
    (before,) = trends(history.all())
    assert before.regression is not None

    history.repaired("c", ["n1"], anew=False)

    (after,) = trends(history.all())
    assert after.regression is None
    (chart,) = charts([of_run(6, 560.0)], history.all())[-1:]
    assert "measured before a repair: not judged" in chart.caption


def test_an_unknown_model_is_judged_by_others_of_it_and_alone_is_a_warning(tmp_path: Path) -> None:
    """30 % slow from birth."""
    history = History(tmp_path / "h.sqlite")
    alone = judged(history, 0, of_run(0, 700.0, node="a1")).results[0]
    second = judged(history, 1, of_run(1, 490.0, node="a2")).results[0]
    third = judged(history, 2, of_run(2, 705.0, node="a3")).results[0]
    again = judged(history, 3, of_run(3, 490.0, node="a2")).results[0]

    assert (alone.status, alone.code) == (Status.WARN, "no_reference")
    assert "speed not judged" in alone.reason
    assert (second.status, second.code) == (Status.WARN, "peers_disagree")
    assert third.status is Status.PASS
    assert (again.status, again.code) == (Status.FAIL, "peer_outlier")
    assert "earlier runs" in again.reason


def test_an_old_run_is_not_held_against_later_ones(tmp_path: Path) -> None:
    """Judged again, it says what it said: faster GPUs came since."""
    history = History(tmp_path / "h.sqlite")
    first = judged(history, 0, of_run(0, 560.0))
    for n in range(1, 4):
        judged(history, n, of_run(n, 700.0, node=f"n{n + 1}"))
    again = judged(history, 0, of_run(0, 560.0))

    assert [r.code for r in again.results] == [r.code for r in first.results] == ["no_reference"]


def test_five_slow_of_eight_disagree_and_no_node_is_blamed(tmp_path: Path) -> None:
    """The median is a slow one's: there are two groups, and the numbers do not say which is right."""
    rates = (560.0, 562.0, 558.0, 561.0, 559.0, 700.0, 702.0, 699.0)
    nodes = [of_run(0, rate, node=f"n{i}") for i, rate in enumerate(rates)]
    run = judged(History(tmp_path / "h.sqlite"), 0, *nodes)

    assert [str(result.status) for result in run.results] == ["FAIL"] * 5 + ["PASS"] * 3
    reason = run.results[0].reason
    assert "disagree, 5 of 8 are 20.0% worse" in reason
    assert {test.fault_class for test in run.results[0].tests if test.code} == {"UNKNOWN"}


def test_a_driver_that_slows_all_nodes_is_told_once_and_blames_none(tmp_path: Path) -> None:
    """Twelve nodes, 8 % slower since the driver changed."""
    history = History(tmp_path / "h.sqlite")
    for n in range(7):
        rate, driver = (700.0, "580") if n < 6 else (644.0, "590")
        every = [of_run(n, rate + i, node=f"n{i}") for i in range(12)]
        env = {"torch": "2.13.0", "cuda": "13.0", "driver": driver}
        run = judged(history, n, *[replace(each, env=env) for each in every])

    said = [(t.code, t.fault_class, t.reason) for r in run.results for t in r.tests if t.code]
    assert [code for code, _, _ in said] == ["fleet_shift"]
    assert said[0][1] == "SOFTWARE"
    assert "since their software changed" in said[0][2]


@pytest.mark.parametrize(("claimed", "expected"), [(None, "PASS"), (700.0, "ERROR")])
def test_a_reference_of_the_file_is_not_rvs(claimed: float | None, expected: str) -> None:
    """A low one would let a slow GPU pass."""
    result = of_run(0, 700.0, 701.0, 702.0)
    metric = replace(result.tests[0].metrics[0], claimed=claimed)
    tests = (replace(result.tests[0], metrics=(metric,)), *result.tests[1:])
    (found,) = Judge(baselines=NO_BASELINES, past=lambda _: ()).judge(
        [replace(result, tests=tests)]
    )

    assert str(found.status) == expected


NOT_IN_V1 = ("standing", "members", "link_share")
V1 = [each.name for each in fields(Measurement) if each.name not in NOT_IN_V1]


def test_a_history_of_an_older_rv_is_read_and_what_it_took_for_sound_is_held_against_its_first(
    tmp_path: Path,
) -> None:
    """Its slow values were not marked; the first runs are the reference all the same."""
    path = tmp_path / "h.sqlite"
    with sqlite3.connect(path) as database:
        kinds = {
            "time": "REAL",
            "value": "REAL",
            "world": "INTEGER",
            "nodes": "INTEGER",
            "method_version": "INTEGER",
        }
        columns = ", ".join(f"{name} {kinds.get(name, 'TEXT')} NOT NULL" for name in V1)
        database.execute(f"CREATE TABLE measurements ({columns}, UNIQUE (run, gpu_uuid, metric))")
        for n in range(12):
            (one,) = measurements(of_run(n, 700.0 if n < 6 else 560.0), f"r{n}", "c", 0.0)
            row = [getattr(one, name) for name in V1]
            database.execute(f"INSERT INTO measurements VALUES ({', '.join('?' * len(V1))})", row)
        database.execute("PRAGMA user_version=1")
    database.close()
    history = History(path)

    assert len(history.all()) == 12
    assert judged(history, 20, of_run(20, 560.0)).results[0].code == "regression"
    assert History(path).all()[-1].standing == FAULTY


# What the newest value is held against, where the software changes.


def in_environments(
    level: Callable[[int], float], software: Callable[[int], str], count: int
) -> list[str]:
    """Judge so many runs of one GPU, each with its software; give each verdict, and its cause."""
    source, kept = random.Random(3), list[Point]()
    found = []
    for run in range(count):
        value = level(run) * (1 + source.gauss(0, 0.003))
        kept.append(Point(time=run, value=value, fingerprint=software(run), run=str(run)))
        (each,) = together([Series(points=kept, kind=("x",), subject="g", node="n")])
        kept[-1] = replace(kept[-1], standing=standing(each))
        found.append(f"{each.status} {each.cause}" if each else "PASS")
    return found


def test_two_environments_in_turn_have_a_reference_each() -> None:
    """B is a tenth slower than A; a GPU that loses 30 % is named in either from its first run."""

    def level(run: int) -> float:
        return (700 if run % 2 == 0 else 630) * (0.7 if run >= 12 else 1)

    found = in_environments(level, lambda run: "AB"[run % 2], 24)

    assert found == ["PASS"] * 12 + ["FAIL gpu"] * 12


def test_a_short_change_of_software_does_not_hide_what_was_before() -> None:
    """Thirty runs of A, three of B, then C on a GPU that is a fifth slower; and back to A."""

    def software(run: int) -> str:
        return "A" if run < 30 or run >= 36 else "B" if run < 33 else "C"

    found = in_environments(lambda run: 700 if run < 33 else 560, software, 38)

    assert found == ["PASS"] * 33 + ["WARN software"] * 3 + ["FAIL gpu"] * 2


def test_few_runs_of_long_ago_are_no_reference() -> None:
    """Three runs of A, thirty of B, and A again on a GPU that is a fifth slower: B is the reference,
    and A, which was no slower, not the cause."""

    def software(run: int) -> str:
        return "A" if run < 3 or run >= 33 else "B"

    found = in_environments(lambda run: 700 if run < 33 else 560, software, 36)

    assert found == ["PASS"] * 33 + ["FAIL gpu"] * 3


def test_the_latest_software_with_enough_sound_runs_is_the_reference() -> None:
    """Ten runs of A, ten of B at a tenth less, then C at B's level: nothing was lost."""

    def software(run: int) -> str:
        return "A" if run < 10 else "B" if run < 20 else "C"

    source = [Point(time=n, value=700.0 if n < 10 else 630.0, fingerprint=software(n))
              for n in range(21)]  # fmt: skip
    assert together([Series(points=source)]) == [None]
