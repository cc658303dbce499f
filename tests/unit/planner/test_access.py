"""Which account and QOS a job is charged to: preemption, size, room, cost."""

from dataclasses import replace
from datetime import timedelta

from rv.models.job import JobState
from rv.models.performance import Source
from rv.models.request import Request
from rv.models.snapshot import (
    ClusterConfig,
    Limits,
    Qos,
    QueuedJob,
)
from tests.unit.planner.clusters import (
    A40,
    associated,
    by_qos,
    nodes,
    partition,
    planned,
    priced,
    reasons,
    snapshot,
)


def test_a_preemptible_qos_is_left_out_unless_asked_for():
    """Where it is the user's default another is taken; where there is none, the plan says so."""
    both = by_qos(associations=associated("normal", "scavenger", default="scavenger"))
    (strategy,) = planned(Request(), both).strategies
    assert (strategy.qos, strategy.preemptible) == ("normal", False)
    only = by_qos(associations=associated("scavenger", default="scavenger"))
    said = reasons(planned(Request(), only))["a40/gpu"]
    assert said == (
        "jobs under QOS scavenger are preempted (REQUEUE); "
        "--preemptible or --qos scavenger asks for it"
    )
    for asked in ({"preemptible": True}, {"qos": "scavenger"}, {"checkpoint": True}):
        (strategy,) = planned(Request(**asked), only).strategies
        assert strategy.preemptible


def test_who_may_preempt_is_read_as_the_cluster_has_it():
    """Tiers mean nothing to preempt/qos, and QOS nothing to preempt/partition_prio."""
    members = nodes("n", 2, gres=A40)
    pairs = [
        (partition("high", members, priority_tier=9, preempt_mode="REQUEUE"), members),
        (partition("low", members, priority_tier=1, preempt_mode="REQUEUE"), members),
    ]
    qos = (Qos(name="urgent", preempts=frozenset({"normal"})), Qos(name="normal"))

    def left_out(kind):
        config = ClusterConfig(preempt_type=kind, preempt_mode="REQUEUE")
        return set(reasons(planned(Request(), snapshot(*pairs, qos=qos, config=config))))

    assert left_out("partition_prio") == {"a40/low"}
    assert left_out("qos") == {"a40/high", "a40/low"}
    assert left_out("none") == set()
    config = ClusterConfig(preempt_type="partition_prio", preempt_mode="REQUEUE")
    made = planned(Request(preemptible=True), snapshot(*pairs, config=config))
    assert {s.partition: s.preemptible for s in made.strategies} == {"high": False, "low": True}


def test_what_may_be_preempted_covers_nothing_that_is_safe():
    """However cheap it is."""
    members = nodes("n", 2, gres=A40)
    high = partition("high", members, priority_tier=9, billing_weights=priced(5.0))
    low = partition("low", members, preempt_mode="CANCEL", billing_weights=priced(0.0))
    config = ClusterConfig(preempt_type="partition_prio")
    made = planned(
        Request(preemptible=True), snapshot((high, members), (low, members), config=config)
    )
    assert {s.covered_by for s in made.strategies} == {""}


def test_another_qos_where_the_default_is_too_small_but_none_that_costs_more():
    """-q long is what a person would type; -q urgent at twice the price is asked for by name."""
    qos = (
        Qos(name="normal", limits=Limits(max_wall=timedelta(hours=12))),
        Qos(name="long", limits=Limits(max_wall=timedelta(days=2))),
        Qos(name="urgent", usage_factor=2.0),
    )
    cluster = by_qos(
        qos=qos, associations=associated("normal", "long", "urgent"), config=ClusterConfig()
    )

    def found(hours, **asked):
        request = Request(walltime=timedelta(hours=hours), walltime_given=True, **asked)
        return [s.qos for s in planned(request, cluster).strategies]

    assert (found(6), found(24), found(60), found(60, qos="urgent")) == (
        [""],
        ["long"],
        [],
        ["urgent"],
    )
    only = replace(cluster.partitions[0], allow_qos=frozenset({"urgent"}))
    said = reasons(planned(Request(), replace(cluster, partitions=(only,))))
    assert said == {"a40/gpu": "QOS urgent costs 2 times the usual; --qos urgent asks for it"}


def test_another_qos_where_the_default_has_no_room_now():
    """What runs fills one limit; the other QOS starts at once."""
    qos = (Qos(name="normal", limits=Limits(per_user=(("gres/gpu", 4),))), Qos(name="other"))
    held = QueuedJob(
        job_id="1", user="ann", partition="gpu", state=JobState.RUNNING, qos="normal", gpus=4
    )
    cluster = by_qos(qos=qos, associations=associated("normal", "other"), config=ClusterConfig())
    (free,) = planned(Request(), cluster).strategies
    (busy,) = planned(Request(), replace(cluster, jobs=(held,))).strategies
    assert (free.qos, busy.qos, busy.estimate.source) == ("", "other", Source.IDLE)
