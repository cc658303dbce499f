"""What a job costs, who says so, `--max-cost`, and `rv cost`."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.job import JobState
from rv.models.request import Request
from rv.models.site import Price, Site
from rv.models.snapshot import QueuedJob, write_snapshot
from rv.planner import plan, require_feasible
from rv.planner.cost import billing, cost_unit
from rv.planner.report import cheapest
from rv.slurm.scontrol import parse_show_config
from rv.ui.plan_views import costs_text
from rv.ui.tables import plain_text
from tests.unit.planner.clusters import (
    CATALOGUE,
    FAMILIES,
    NOON,
    campus,
    nodes,
    partition,
    priced,
    reasons,
    snapshot,
)

WEIGHTS = (("cpu", 1.0), ("mem", 0.25 / 1024), ("gres/gpu", 8.0), ("license/x", 2.0))
NOTHING = Site()
AMOUNTS = {"cpu": 4, "mem": 64 * 1024, "gres/gpu": 2, "license/x": 3, "node": 1}


def table(**prices):
    """Return a site with these prices; a model's name has dashes for underscores."""
    found = {
        name.replace("_", "-"): Price(per_gpu_hour=price, origin=f"site.yaml:{line}")
        for line, (name, price) in enumerate(prices.items(), 1)
    }
    return Site(prices=found, unit="SU")


def hour(cluster, site=NOTHING, **asked):
    """Plan one hour on this site."""
    request = Request(walltime=timedelta(hours=1), walltime_given=True, **asked)
    return plan(request, cluster, CATALOGUE, FAMILIES, site)


def prices(made):
    """Map models to the cost of their first strategy, and who says so."""
    return {s.gpu: (s.cost, s.priced_by) for s in reversed(made.strategies)}


def hole_before_a_big_job(request):
    """One free node, and a job that is planned there in four hours."""
    free = nodes("f", 1, gres={"t4": 4})
    big = QueuedJob(
        job_id="7", user="bob", partition="gpu", state=JobState.PENDING, planned_nodes=("f1",),
        start=NOON + timedelta(hours=4), end=NOON + timedelta(hours=40), cpus=8, gpus=4,
    )  # fmt: skip
    made = snapshot((partition("gpu", free, billing_weights=priced(2.0)), free), jobs=(big,))
    return plan(request, made, CATALOGUE, FAMILIES)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), 4 + 16 + 16 + 6),
        (("MAX_TRES",), 16 + 6),
        (("MAX_TRES_GRES",), 16 + 16 + 6),
        (("FAIR_TREE", "CALCULATE_RUNNING"), 4 + 16 + 16 + 6),
    ],
)
def test_weights_add_up_as_the_priority_flags_say(flags, expected):
    """All of them, or the largest of what is on nodes plus the rest (slurm.conf(5))."""
    part = partition("gpu", (), billing_weights=WEIGHTS)
    assert billing(part, "", AMOUNTS, frozenset(flags)) == pytest.approx(expected)


def test_a_typed_weight_counts_for_its_type_only():
    """Beside the weight of all GPUs, where a site has both."""
    weights = (("gres/gpu", 1.0), ("gres/gpu:a100", 10.0), ("gres/gpu:v100", 5.0))
    part = partition("gpu", (), billing_weights=weights)
    assert billing(part, "a100", {"gres/gpu": 2}) == 22
    assert billing(part, "", {"gres/gpu": 2}) == 2
    assert billing(part, "a100", {"gres/gpu": 2}, frozenset({"MAX_TRES"})) == 20


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("PriorityFlags = FAIR_TREE,MAX_TRES", {"FAIR_TREE", "MAX_TRES"}),
        ("PriorityFlags = ", set()),
    ],
)
def test_priority_flags_are_read_from_the_configuration(line, expected):
    """As `scontrol show config` prints them."""
    assert parse_show_config(f"ClusterName = x\n{line}\n").priority_flags == expected


def test_the_plan_of_a_cluster_with_max_tres():
    """The GPUs' weight is more than the CPUs', which then cost nothing."""
    members = nodes("n", 1, gres={"a40": 8})
    part = partition("gpu", members, billing_weights=(("cpu", 1.0), ("gres/gpu", 50.0)))
    usual = snapshot((part, members))
    most = replace(usual, config=replace(usual.config, priority_flags=frozenset({"MAX_TRES"})))
    assert prices(hour(usual))["a40"] == (54.0, "TRESBillingWeights")
    assert prices(hour(most))["a40"] == (50.0, "TRESBillingWeights")


def test_the_table_wins_where_it_has_the_model():
    """And the weights are left with the others."""
    found = prices(hour(campus(), table(a40=100, v100=0), gpus=2))
    assert found["a40"] == (200.0, "site.yaml:1")
    assert found["v100"] == (0.0, "site.yaml:2")
    assert found["a6000"] == (285.46, "TRESBillingWeights")


def test_an_exclusive_partition_costs_its_whole_nodes_by_the_table_too():
    """One of eight GPUs asked, eight paid."""
    members = nodes("n", 1, gres={"a40": 8})
    cluster = snapshot((partition("gpu", members, exclusive=True), members))
    made = hour(cluster, table(a40=10))
    assert prices(made)["a40"] == (80.0, "site.yaml:1")
    assert made.strategies[0].cost_per_gpu_hour == 80.0


def test_what_is_above_max_cost_is_left_out_with_both_figures():
    """What costs just that much is not."""
    made = hour(campus(), table(a40=100), gpus=2, max_cost=200)
    assert {strategy.gpu for strategy in made.strategies} == {"v100", "a40"}
    assert reasons(made)["h200/gpu-h200"] == "costs 1633.34 SU, above --max-cost 200"


def test_what_nobody_prices_is_left_out_under_max_cost():
    """It could cost anything; without --max-cost it is there, unpriced."""
    members = nodes("n", 1, gres={"a40": 8})
    cluster = snapshot((partition("gpu", members), members))
    assert prices(hour(cluster)) == {"a40": (None, "")}
    made = hour(cluster, max_cost=5)
    assert reasons(made)["a40/gpu"].startswith("it has no price: none of a40 in a conf")
    with pytest.raises(RvError) as caught:
        require_feasible(made, Request())
    assert caught.value.kind is ErrorKind.INFEASIBLE
    assert "--max-cost" in caught.value.message


def test_free_is_within_any_cost():
    """A MIG slice that costs 0, under --max-cost 0."""
    made = hour(campus(), mig=True, max_cost=0)
    assert [strategy.cost for strategy in made.strategies] == [0.0]


def test_each_model_has_its_cheapest_strategy():
    """Cheapest first; what nobody prices comes last, and of one price what starts first counts."""
    dear, cheap, free = (
        nodes("d", 1, gres={"a40": 4}),
        nodes("c", 1, gres={"a40": 4}, used=4, states=("ALLOCATED",)),
        nodes("f", 1, gres={"t4": 4}),
    )
    cluster = snapshot(
        (partition("dear", dear, billing_weights=priced(9)), dear),
        (partition("cheap", cheap, billing_weights=priced(3)), cheap),
        (partition("unpriced", free), free),
    )
    found = cheapest(hour(cluster), Request())
    assert [(s.gpu, s.partition, s.cost) for s in found] == [
        ("a40", "cheap", 3.0),
        ("t4", "unpriced", None),
    ]


def test_the_comparison_fits_into_80_columns():
    """On a site with ordinary names, with the models that cannot serve it below."""
    made = hour(campus(), table(a40=186.69), gpus=8)
    text = plain_text(costs_text(made, cheapest(made, Request())))
    rows, origins, lost = text.split("\n\n")
    assert max(map(len, rows.splitlines())) <= 80
    assert rows.splitlines()[0].split() == [
        "GPU", "LAYOUT", "PARTITION", "TIME", "SU", "GPU-HOUR", "START",
    ]  # fmt: skip
    assert [row.split()[0] for row in rows.splitlines()[1:]] == [
        "v100", "a6000", "a40", "a100-40", "a100-80",
    ]  # fmt: skip
    assert origins == "Prices are from TRESBillingWeights and site.yaml."
    assert "h200/gpu-h200: QOS h200 allows 4 GPUs per user, 8 asked" in lost


def test_rv_cost_on_a_saved_cluster(tmp_path):
    """One object, a row a model; a request that nothing serves is an error with its reason."""
    saved = tmp_path / "campus.json"
    saved.write_text(write_snapshot(campus()), encoding="utf-8")
    root = Path(__file__).parents[3]

    def cost(*options):
        argv = [sys.executable, "-m", "rv", "cost", "--snapshot", str(saved), *options]
        env = {"PYTHONPATH": str(root), "HOME": str(tmp_path), "RV_SITE_CONFIG": "/nowhere"}
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)

    told = json.loads(cost("--gpu", "4", "--time", "2h", "--json").stdout)
    assert told["costs"][0]["gpu"] == "v100"
    a40 = next(row for row in told["costs"] if row["gpu"] == "a40")
    assert (a40["cost"], a40["cost_per_gpu_hour"]) == (1493.52, 186.69)
    assert (a40["priced_by"], told["cost_unit"]) == ("TRESBillingWeights", "billing hours")
    assert a40["estimate"] == {"start_in_s": 0.0, "source": "idle", "window_s": None}
    assert "PARTITION" in cost("--gpu", "4").stdout
    none = cost("--max-cost", "1")
    assert (none.returncode, none.stdout) == (125, "")
    assert none.stderr.splitlines()[1].startswith("error[infeasible]: nothing here can serve")
    assert cost("--max-cost", "nan").returncode == 2


def test_a_chain_costs_its_whole_time_and_is_compared_only_where_the_command_can_resume():
    """Twelve hours are twelve hours' price, in one job or in several."""
    made = hole_before_a_big_job(Request(walltime=timedelta(hours=12), walltime_given=True, gpus=4))
    chains = [strategy for strategy in made.strategies if strategy.segments > 1]
    assert chains
    assert {s.cost_per_gpu_hour for s in made.strategies} == {2.0}
    (found,) = cheapest(made, Request())
    assert found.segments == 1
    (found,) = cheapest(made, Request(checkpoint=True))
    assert found is made.strategies[0]


def test_under_max_cost_the_part_of_the_time_that_can_be_paid_is_left():
    """The whole time is too dear, a shorter one in the hole is not."""
    asked = Request(
        walltime=timedelta(hours=12), walltime_given=True, gpus=4, max_cost=40,
        min_walltime=timedelta(hours=1),
    )  # fmt: skip
    made = hole_before_a_big_job(asked)
    assert [strategy.shortened for strategy in made.strategies] == [True]
    assert "costs 96.00, above --max-cost 40" in reasons(made).values()
    (found,) = cheapest(made, asked)
    assert found.shortened


@pytest.mark.parametrize(
    ("sources", "unit", "expected"),
    [
        (("TRESBillingWeights", ""), "", "billing hours"),
        (("TRESBillingWeights",), "EUR", "EUR"),
        (("TRESBillingWeights", "/etc/rv.yaml:3"), "", ""),
        (("",), "", ""),
    ],
)
def test_the_unit_of_costs_is_the_sites_or_slurms(sources, unit, expected):
    """Slurm's own where it alone sets prices; none where two units could be mixed."""
    strategies = [SimpleNamespace(priced_by=source) for source in sources]
    assert cost_unit(strategies, Site(unit=unit)) == expected
