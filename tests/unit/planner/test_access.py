"""The shapes that sites have: constraints, preemption, nodes asleep, shared nodes, accounts."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rv.errors import RvError
from rv.models.job import JobState
from rv.models.plan import Source
from rv.models.request import Request
from rv.models.snapshot import (
    Account,
    Association,
    ClusterConfig,
    Limits,
    Qos,
    QueuedJob,
    Reservation,
)
from rv.planner.eligibility import meets, parse_constraint
from tests.unit.planner.clusters import (
    NOON,
    ids,
    nodes,
    partition,
    planned,
    priced,
    reasons,
    snapshot,
)

A40 = {"a40": 4}


def one_partition(*groups, **more):
    """Return a cluster of these nodes in one partition."""
    members = sum(groups, ())
    return snapshot((partition("gpu", members), members), **more)


@pytest.mark.parametrize(
    ("expression", "features", "met"),
    [
        ("a", "a b", True),
        ("a&b", "a", False),
        ("a|b", "b", True),
        ("(a|b)&c", "b c", True),
        ("(a|b)&c", "b", False),
        # From the left, as 22.05 was seen to read it: (h|a)&r.
        ("h|a&r", "h", False),
        ("a&r|h", "h", True),
    ],
)
def test_what_an_expression_of_features_allows(expression, features, met):
    """AND, OR and parentheses, in Slurm's order."""
    assert meets(frozenset(features.split()), expression) is met


@pytest.mark.parametrize("text", ["a&", "(a", "a b", "a*x", "[a|b]&c", "a*2&b*2", "a;b", "[]"])
def test_what_is_no_constraint(text):
    """Slurm would refuse it, or read something else: rv says what can be written."""
    with pytest.raises(RvError, match="is no constraint"):
        parse_constraint(text)


def racks():
    """Return GPU nodes of one model in two racks."""
    near = nodes("r", 2, gres=A40, features=("a40", "rack1"))
    far = nodes("s", 1, gres=A40, features=("a40", "rack2", "fast"))
    return one_partition(near, far)


@pytest.mark.parametrize(
    ("constraint", "wanted"),
    [
        ("rack1", {"1x4": "rack1", "2x2": "rack1"}),
        ("rack1&fast", {}),
        ("rack1|fast", {"1x4": "rack1|fast", "2x2": "rack1|fast"}),
        ("[rack1|rack2]", {"1x4/rack1": "rack1", "1x4/rack2": "rack2", "2x2/rack1": "rack1"}),
        ("[rack1*1&rack2*1]", {"2x2": "[rack1*1&rack2*1]"}),
        ("rack1*2", {"2x2": "rack1*2"}),
        ("rack2*2", {}),
    ],
)
def test_the_users_own_constraint(constraint, wanted):
    """It picks nodes, splits into one strategy for each of `[a|b]`, and counts nodes."""
    made = planned(Request(gpus=4, constraint=constraint), racks())
    found = {s.id.removeprefix("a40/").replace("/gpu", ""): s.constraint for s in made.strategies}
    assert found == wanted
    assert wanted or made.excluded


def test_a_constraint_joins_the_one_that_tells_models_apart():
    """Both hold; a count is then of nodes of that model, and counts them all."""
    old = nodes("v", 2, gres={"": 4}, features=("v100", "rack1"))
    new = nodes("h", 2, gres={"": 4}, features=("h100", "rack1"))
    cluster = one_partition(old, new)
    plain = planned(Request(constraint="rack1|h100"), cluster).strategies
    assert {s.constraint for s in plain} == {"(rack1|h100)&v100", "(rack1|h100)&h100"}
    counted = planned(Request(gpus=4, constraint="[rack1*2]"), cluster).strategies
    assert {(s.nodes, s.constraint) for s in counted} == {
        (2, "[(rack1&v100)*2]"),
        (2, "[(rack1&h100)*2]"),
    }
    assert {s.estimate.source for s in counted} == {Source.UNKNOWN}


def test_an_unknown_feature_names_the_nearest():
    """A slip of the pen is no reason to wait for ever."""
    with pytest.raises(RvError, match=r"no node feature 'rack3', nearest: rack\d"):
        planned(Request(constraint="rack3"), racks())


def test_models_told_apart_by_two_features_or_by_any_of_several():
    """`a&b` where neither is its own alone, `a|b` where its nodes have none in common."""
    small = nodes("s", 1, gres={"": 4}, features=("a100", "hbm40g"))
    large = nodes("b", 1, gres={"": 4}, features=("a100", "hbm80g"))
    other = nodes("h", 1, gres={"": 4}, features=("h100", "hbm80g"))
    volta = nodes("v", 1, gres={"": 4}, features=("v100-sxm2",))
    slots = nodes("w", 1, gres={"": 4}, features=("v100-pcie",))
    made = planned(Request(), one_partition(small, large, other, volta, slots))
    assert {s.gpu: s.constraint for s in made.strategies} == {
        "a100-40": "hbm40g",
        "a100-80": "a100&hbm80g",
        "h100": "h100",
        "v100": "v100-pcie|v100-sxm2",
    }


def test_whole_gpus_beside_slices_have_their_part_of_the_node():
    """Two whole GPUs and seven sevenths are three: each whole one is a third of the node."""
    mixed = nodes("m", 1, gres={"a100": 2, "1g.10gb": 7}, cpus=12, gib=300)
    cluster = one_partition(mixed)
    (whole,) = planned(Request(types=("a100",)), cluster).strategies
    assert (whole.cpus_per_task, whole.memory_mib) == (4, 90 * 1024)
    (both,) = planned(Request(gpus=2, types=("a100",)), cluster).strategies
    assert (both.cpus_per_task, both.memory_mib) == (8, 180 * 1024)
    several = nodes("m", 1, gres={"1g.10gb": 7, "3g.40gb": 2})
    made = planned(Request(types=("3g.40gb",)), one_partition(several))
    assert [(s.gres, s.cpus_per_task) for s in made.strategies] == [("gpu:3g.40gb:1", 1)]


def test_untyped_slices_are_read_from_a_feature():
    """A feature that is a profile says that the GRES counts slices."""
    cut = nodes("m", 1, gres={"": 7}, features=("a100_80gb", "1g.10gb"))
    made = planned(Request(mig=True), one_partition(cut))
    assert [(s.mig_profile, s.gres) for s in made.strategies] == [("1g.10gb", "gpu:1")]


def asleep(*states):
    """Return two nodes awake, and two of the given states."""
    awake = nodes("n", 2, gres=A40)
    return one_partition(awake, nodes("c", 2, gres={"a40": 8}, states=("IDLE", "CLOUD", *states)))


@pytest.mark.parametrize("state", ["POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"])
def test_nodes_that_sleep_are_left_alone(state):
    """Slurm would wake them for a job that does not leave them out."""
    (one,) = planned(Request(gpus=1), asleep(state)).strategies
    assert (one.node_names, one.exclude_nodes) == (("n1", "n2"), ("c1", "c2"))
    said = reasons(planned(Request(gpus=8), asleep(state)))
    reason = "2 of 2 nodes are not usable (2 powered down); --power-up wakes nodes"
    assert said["a40/1x8/gpu"] == reason
    woken = planned(Request(gpus=8, power_up=True), asleep(state)).strategies
    (single,) = [s for s in woken if s.nodes == 1]
    assert (single.node_names, single.exclude_nodes) == (("c1", "c2"), ())
    assert single.estimate.source is Source.UNKNOWN


def test_nodes_that_a_new_controller_has_not_heard_of_yet():
    """They are not lost before SlurmdTimeout; nor is their start known."""
    members = nodes("n", 1, gres=A40, states=("UNKNOWN",))
    config = ClusterConfig(booted_at=NOON - timedelta(seconds=20))
    (strategy,) = planned(Request(), one_partition(members, config=config)).strategies
    assert strategy.estimate.source is Source.UNKNOWN
    old = ClusterConfig(booted_at=NOON - timedelta(hours=1))
    made = planned(Request(), one_partition(members, config=old))
    assert reasons(made) == {"a40/gpu": "1 of 1 node is not usable (1 in an unknown state)"}


def test_a_reservation_that_the_user_names():
    """Its nodes, and only they, take the job; nobody else's jobs run there meanwhile."""
    mine = nodes("r", 1, gres=A40, states=("IDLE", "RESERVED"))
    cluster = one_partition(
        mine,
        nodes("n", 1, gres=A40),
        reservations=(
            Reservation(name="class", nodes=("r1",), start=NOON, end=NOON + timedelta(days=1)),
        ),
    )
    (outside,) = planned(Request(), cluster).strategies
    assert outside.node_names == ("n1",)
    (inside,) = planned(Request(sbatch=(("reservation", "class"),)), cluster).strategies
    assert (inside.node_names, inside.estimate.source) == (("r1",), Source.IDLE)
    with pytest.raises(RvError, match="no reservation 'clas', nearest: class"):
        planned(Request(sbatch=(("reservation", "clas"),)), cluster)


def test_any_of_several_reservations():
    """A list of them, as sbatch takes it."""
    held = nodes("r", 2, gres=A40, states=("IDLE", "RESERVED"))
    booked = tuple(
        Reservation(name=f"class{n}", nodes=(f"r{n}",), start=NOON, end=NOON + timedelta(days=1))
        for n in (1, 2)
    )
    cluster = one_partition(held, reservations=booked)
    (inside,) = planned(Request(sbatch=(("reservation", "class1,class2"),)), cluster).strategies
    assert (inside.node_names, inside.estimate.source) == (("r1", "r2"), Source.IDLE)


def test_a_job_without_gpus_wakes_no_gpu_node_either():
    """It would fit there, and Slurm would power it up."""
    plain = nodes("n", 1, states=("ALLOCATED",), used=0)
    asleep_ = nodes("g", 2, gres=A40, states=("IDLE", "POWERED_DOWN"))
    (one,) = planned(Request(gpus=0, cpus=2), one_partition(plain, asleep_)).strategies
    assert one.exclude_nodes == ("g1", "g2")
    woken = planned(
        Request(gpus=0, cpus=2, power_up=True), one_partition(plain, asleep_)
    ).strategies
    assert woken[0].exclude_nodes == ()


def shared(first, second, **node):
    """Return two partitions over the same nodes, which are busy unless told otherwise."""
    members = nodes("n", 2, gres=A40, **{"states": ("ALLOCATED",), "used": 4, **node})
    return snapshot(
        (partition("first", members, **first), members),
        (partition("second", members, **second), members),
        qos=(Qos(name="normal"), Qos(name="small", limits=Limits(per_user=(("gres/gpu", 2),)))),
    )


@pytest.mark.parametrize(
    ("first", "second", "covered"),
    [
        ({}, {}, {"second": "a40/1x1/first"}),
        ({}, {"priority_tier": 5}, {"first": "a40/1x1/second"}),
        ({}, {"priority_job_factor": 5}, {"first": "a40/1x1/second"}),
        ({"exclusive": True}, {}, {"first": "a40/1x1/second"}),
        ({"qos": "small"}, {}, {"first": "a40/1x1/second"}),
        ({"billing_weights": priced(1.0)}, {"billing_weights": priced(2.0)}, {"second": "a40/1x1/first"}),
        ({"max_time": timedelta(hours=1)}, {}, {}),
        ({"billing_weights": priced(1.0)}, {"priority_tier": 5, "billing_weights": priced(2.0)}, {}),
        ({"qos": "small", "priority_tier": 5}, {}, {}),
    ],
)  # fmt: skip
def test_partitions_over_the_same_nodes_are_one_way_unless_they_differ(first, second, covered):
    """Even where no start is known: the queue served first, under no limit more, is no later."""
    made = planned(Request(), shared(first, second))
    assert {s.partition: s.covered_by for s in made.strategies if s.covered_by} == covered
    assert sum(len(job.strategies) for job in made.submissions) == 2 - len(covered)


def by_qos(**more):
    """Return a cluster where `normal` preempts `scavenger`."""
    qos = (
        Qos(name="normal", preempts=frozenset({"scavenger"})),
        Qos(name="scavenger"),
        Qos(name="kept", preempt_mode="OFF"),
    )
    config = ClusterConfig(preempt_type="qos", preempt_mode="REQUEUE")
    members = nodes("n", 2, gres=A40)
    return snapshot((partition("gpu", members), members), **{"qos": qos, "config": config, **more})


def mine(*qos, default="normal"):
    """Return the association of a user with these QOS."""
    return (Association(account="lab", is_default=True, qos=qos, default_qos=default),)


def test_a_preemptible_qos_is_left_out_unless_asked_for():
    """Where it is the user's default another is taken; where there is none, the plan says so."""
    both = by_qos(associations=mine("normal", "scavenger", default="scavenger"))
    (strategy,) = planned(Request(), both).strategies
    assert (strategy.qos, strategy.preemptible) == ("normal", False)
    only = by_qos(associations=mine("scavenger", default="scavenger"))
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
    cluster = by_qos(qos=qos, associations=mine("normal", "long", "urgent"), config=ClusterConfig())

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
    cluster = by_qos(qos=qos, associations=mine("normal", "other"), config=ClusterConfig())
    (free,) = planned(Request(), cluster).strategies
    (busy,) = planned(Request(), replace(cluster, jobs=(held,))).strategies
    assert (free.qos, busy.qos, busy.estimate.source) == ("", "other", Source.IDLE)


def limited(limits, **more):
    """Return a cluster whose usual QOS has these limits."""
    return by_qos(qos=(Qos(name="normal", limits=limits),), config=ClusterConfig(), **more)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(per_node=(("gres/gpu", 1),)), "QOS normal allows 1 GPU per node, 2 asked"),
        (Limits(per_account=(("cpu", 4),)), "QOS normal allows 4 CPUs per account, 8 asked"),
        (Limits(least_per_job=(("gres/gpu", 4),)), "QOS normal takes jobs of 4 GPUs or more only, 2 asked"),
        (Limits(group_jobs=0), "QOS normal allows no jobs"),
        (Limits(max_submit_per_account=0), "QOS normal allows no jobs"),
    ],
)  # fmt: skip
def test_every_kind_of_limit_is_a_sentence(limits, reason):
    """Those that are not in the table of per-job and per-user limits."""
    assert set(reasons(planned(Request(gpus=2), limited(limits))).values()) == {reason}


@pytest.mark.parametrize(
    ("limits", "full"),
    [
        (Limits(max_jobs_per_user=1), "QOS normal allows 1 running job per user, 1 in use"),
        (Limits(max_jobs_per_account=1), "QOS normal allows 1 running job per account, 1 in use"),
        (Limits(group_jobs=1), "QOS normal allows 1 running job in all, 1 in use"),
        (Limits(per_account=(("gres/gpu", 4),)), "QOS normal allows 4 GPUs per account, 3 in use"),
        (Limits(per_user=(("mem", 4096),)), None),
    ],
)
def test_what_runs_now_fills_a_limit(limits, full):
    """The start is then not known, and a note says which limit and how full it is."""
    held = QueuedJob(
        job_id="1", user="ann", partition="gpu", account="lab", qos="normal",
        state=JobState.RUNNING, gpus=3, memory_mib=1024,
    )  # fmt: skip
    cluster = limited(limits, associations=mine("normal"), jobs=(held,))
    (strategy,) = planned(request := Request(gpus=2, memory_mib=1024), cluster).strategies
    assert (strategy.estimate.source is Source.UNKNOWN) is bool(full)
    notes = [note for note in planned(request, cluster).notes if "has to wait" in note]
    assert notes == ([f"{strategy.id} has to wait: {full}"] if full else [])


def test_accounts_above_the_users_limit_what_all_below_them_hold():
    """Each level holds; a colleague's jobs in a sister account count, others' do not."""
    accounts = (
        Account(name="root"),
        Account(name="physics", parent="root", limits=Limits(group=(("gres/gpu", 6),))),
        Account(name="lab", parent="physics"),
        Account(name="astro", parent="physics"),
        Account(name="law", parent="root"),
    )

    def source(account, gpus=3):
        theirs = QueuedJob(
            job_id="1", user="bob", partition="gpu", account=account, qos="normal",
            state=JobState.RUNNING, gpus=4,
        )  # fmt: skip
        cluster = by_qos(accounts=accounts, associations=mine("normal"), jobs=(theirs,))
        return planned(Request(gpus=gpus), cluster).strategies[0].estimate.source

    assert (source("astro"), source("law"), source("lab", 2)) == (
        Source.UNKNOWN,
        Source.IDLE,
        Source.IDLE,
    )
    cluster = by_qos(accounts=accounts, associations=mine("normal"))
    said = set(reasons(planned(Request(gpus=8), cluster)).values())
    assert "account physics allows 6 GPUs in all, 8 asked" in said


def test_a_qos_overrides_what_an_association_limits():
    """Slurm 22.05 ran two GPUs under a QOS of two for an account of one."""
    associations = (replace(mine("normal", "long")[0], limits=Limits(per_job=(("gres/gpu", 1),))),)
    qos = (Qos(name="normal"), Qos(name="long", limits=Limits(per_job=(("gres/gpu", 2),))))
    cluster = by_qos(qos=qos, associations=associations, config=ClusterConfig())
    (strategy,) = planned(Request(gpus=2), cluster).strategies
    assert strategy.qos == "long"


def test_limits_that_nobody_enforces():
    """AccountingStorageEnforce decides whether limits, and grants of QOS, mean anything."""
    cluster = limited(Limits(per_job=(("gres/gpu", 1),)), associations=mine("normal"))
    loose = replace(cluster, config=ClusterConfig(enforces=frozenset({"associations"})))
    assert planned(Request(gpus=2), cluster).strategies == ()
    assert len(planned(Request(gpus=2), loose).strategies) == 1
    other = Request(qos="high")
    more = (*cluster.qos, Qos(name="high"))
    assert planned(other, replace(cluster, qos=more)).strategies == ()
    assert len(planned(other, replace(loose, qos=more)).strategies) == 1


def test_an_exclusive_partition_counts_whole_nodes_against_limits():
    """One GPU of it takes four, and all CPUs, as Slurm counts them."""
    members = nodes("n", 2, gres=A40, cpus=32)
    qos = (Qos(name="q", limits=Limits(per_job=(("gres/gpu", 2),))), Qos(name="normal"))
    part = partition("gpu", members, exclusive=True, qos="q")
    said = reasons(planned(Request(), snapshot((part, members), qos=qos)))
    assert said == {"a40/gpu": "QOS q allows 2 GPUs per job, 4 asked"}


def test_a_qos_that_needs_a_reservation_or_ignores_node_counts():
    """Flags of the QOS that change what may run."""
    members = nodes("n", 4, gres=A40)
    narrow = partition("gpu", members, max_nodes=1)
    flagged = (Qos(name="normal", flags=frozenset({"PartitionMaxNodes"})),)
    wide = planned(Request(gpus=4), snapshot((narrow, members), qos=flagged))
    assert sorted(ids(wide)) == ["a40/1x4/gpu", "a40/2x2/gpu"]
    bound = (Qos(name="normal", flags=frozenset({"RequiresReservation"})),)
    assert planned(Request(), snapshot((narrow, members), qos=bound)).strategies == ()


def test_hidden_jobs_are_said():
    """Nobody knows then who waits ahead."""
    config = ClusterConfig(private_data=frozenset({"jobs"}))
    cluster = one_partition(nodes("n", 1, gres=A40), config=config)
    (note,) = planned(Request(), cluster).notes
    assert note == "other people's jobs are hidden here (PrivateData): who waits ahead is not known"
    theirs = QueuedJob(job_id="1", user="bob", partition="gpu", state=JobState.PENDING)
    assert planned(Request(), replace(cluster, jobs=(theirs,))).notes == ()
