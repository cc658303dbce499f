"""Limits of partitions, QOS and associations: checked before anything is submitted."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rv.models.job import JobState
from rv.models.performance import Source
from rv.models.request import Request
from rv.models.snapshot import (
    Account,
    Association,
    ClusterConfig,
    Limits,
    Qos,
    QueuedJob,
)
from tests.unit.planner.clusters import (
    A40,
    associated,
    by_qos,
    ids,
    nodes,
    one_partition,
    partition,
    planned,
    reasons,
    snapshot,
)


def site(*, qos=(), associations=None, jobs=(), **limits):
    """Return two nodes of eight GPUs in one partition with the limits given."""
    members = nodes("n", 2, gres={"a40": 8})
    part = partition("gpu", members, **limits)
    return snapshot((part, members), qos=qos, associations=associations, jobs=jobs)


def why(cluster, **asked):
    """Return the one reason why nothing of a plan remains."""
    made = planned(Request(**asked), cluster)
    assert made.strategies == ()
    (reason,) = {found.reason for found in made.excluded}
    return reason


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"state": "DOWN"}, "partition gpu is DOWN"),
        ({"state": "DRAIN"}, "partition gpu is DRAIN"),
        ({"root_only": True}, "partition gpu is for root only"),
        ({"needs_reservation": True}, "partition gpu takes jobs in a reservation only"),
        ({"hidden": True}, "partition gpu is hidden; -p gpu asks for it"),
        ({"allow_groups": frozenset({"staff"})}, "partition gpu is for the groups staff"),
        ({"min_nodes": 2}, "partition gpu takes jobs of 2 nodes or more only"),
    ],
)
def test_partitions_that_take_no_such_job(limits, reason):
    """Each says why."""
    assert why(site(**limits)) == reason


def test_max_nodes_leaves_the_single_node():
    """The reason stands beside the layout only."""
    made = planned(Request(gpus=4), site(max_nodes=1))
    assert [s.nodes for s in made.strategies] == [1]
    assert reasons(made) == {"a40/2x2/gpu": "partition gpu allows 1 node a job, 2 asked"}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(per_job=(("gres/gpu", 2),)), "QOS q allows 2 GPUs per job, 4 asked"),
        (Limits(per_user=(("gres/gpu", 2),)), "QOS q allows 2 GPUs per user, 4 asked"),
        (Limits(group=(("gres/gpu", 2),)), "QOS q allows 2 GPUs in all, 4 asked"),
        (Limits(per_job=(("gres/gpu:a40", 1),)), "QOS q allows 1 a40 GPU per job, 4 asked"),
        (Limits(per_job=(("cpu", 8),)), "QOS q allows 8 CPUs per job, 16 asked"),
        (Limits(per_job=(("node", 0),)), "QOS q allows 0 nodes per job, 1 asked"),
        (
            Limits(per_job=(("mem", 1024),)),
            "QOS q allows 1G of memory per job, 230G of memory asked",
        ),
        (Limits(max_submit_per_user=0), "QOS q allows no jobs"),
    ],
)
def test_qos_of_a_partition(limits, reason):
    """Every kind of limit is a sentence, with who sets it."""
    members = nodes("n", 2, gres={"a40": 8})
    part = partition("gpu", members, qos="q")
    limited = snapshot((part, members), qos=(Qos(name="q", limits=limits),))
    made = planned(Request(gpus=4), limited)
    assert reason in {found.reason for found in made.excluded}
    assert all(found.by_limit for found in made.excluded)
    assert "1x4" not in {s.id.split("/")[1] for s in made.strategies}


def test_a_typed_limit_of_another_type_is_no_limit():
    """gres/gpu:h100=1 says nothing of A40s."""
    qos = (Qos(name="normal", limits=Limits(per_job=(("gres/gpu:h100", 1),))),)
    assert len(planned(Request(gpus=4), site(qos=qos)).strategies) == 2


def test_the_partitions_qos_comes_before_the_jobs():
    """Slurm takes each limit from the first that sets it; OverPartQOS turns the two around."""

    def cluster(flags):
        members = nodes("n", 2, gres={"a40": 8})
        loose = Qos(name="part", limits=Limits(per_job=(("gres/gpu", 8),)))
        tight = Qos(
            name="normal", limits=Limits(per_job=(("gres/gpu", 1),)), flags=frozenset(flags)
        )
        return snapshot((partition("gpu", members, qos="part"), members), qos=(loose, tight))

    assert len(planned(Request(gpus=4), cluster(())).strategies) == 2
    expected = "QOS normal allows 1 GPU per job, 4 asked"
    assert why(cluster(("OverPartQOS",)), gpus=4) == expected


def test_max_wall_of_a_qos():
    """It cuts the default and refuses what was given."""
    qos = (Qos(name="normal", limits=Limits(max_wall=timedelta(hours=1))),)
    (strategy,) = planned(Request(), site(qos=qos)).strategies
    assert strategy.walltime == timedelta(hours=1)
    given = {"walltime": timedelta(hours=2), "walltime_given": True}
    assert why(site(qos=qos), **given) == "2h is above MaxWall of QOS normal: 1h"


def test_current_use_makes_the_start_unknown_not_impossible():
    """Four allowed, two held: four more would wait."""
    held = QueuedJob(
        job_id="1", user="ann", partition="gpu", state=JobState.RUNNING, qos="normal", gpus=2
    )
    qos = (Qos(name="normal", limits=Limits(per_user=(("gres/gpu", 4),))),)
    cluster = site(qos=qos, jobs=(held,))
    (two,) = planned(Request(gpus=2), cluster).strategies
    assert two.estimate.source is Source.IDLE
    assert {s.estimate.source for s in planned(Request(gpus=4), cluster).strategies} == {
        Source.UNKNOWN
    }
    others = site(qos=qos, jobs=(held._replace(user="bob"),))
    assert {s.estimate.source for s in planned(Request(gpus=4), others).strategies} == {Source.IDLE}


def test_a_group_limit_counts_everybodys_jobs():
    """Of a QOS; that of an association counts the user's own."""
    theirs = QueuedJob(
        job_id="1",
        user="bob",
        partition="gpu",
        state=JobState.RUNNING,
        qos="normal",
        account="lab",
        gpus=6,
    )
    limits = Limits(group=(("gres/gpu", 8),))
    qos = (Qos(name="normal", limits=limits),)
    (strategy, *_) = planned(Request(gpus=4), site(qos=qos, jobs=(theirs,))).strategies
    assert strategy.estimate.source is Source.UNKNOWN
    mine = (Association(account="lab", limits=limits),)
    (strategy, *_) = planned(Request(gpus=4), site(associations=mine, jobs=(theirs,))).strategies
    assert strategy.estimate.source is Source.IDLE


def test_a_qos_may_go_beyond_the_partitions_time():
    """Flag PartitionTimeLimit of the job's QOS."""
    given = {"walltime": timedelta(days=5), "walltime_given": True}
    flagged = (Qos(name="normal", flags=frozenset({"PartitionTimeLimit"})),)
    assert len(planned(Request(**given), site(qos=flagged)).strategies) == 1
    assert why(site(), **given) == "5d is above MaxTime of partition gpu: 3d"


ASSOCIATIONS = (
    Association(account="lab", is_default=True, qos=("normal", "long"), default_qos="normal"),
    Association(account="grant", qos=("normal",), default_qos="normal"),
)


@pytest.mark.parametrize(
    ("limits", "asked", "charge"),
    [
        ({}, {}, ("", "")),
        ({"allow_accounts": frozenset({"grant"})}, {}, ("grant", "")),
        ({"deny_accounts": frozenset({"lab"})}, {}, ("grant", "")),
        ({"allow_qos": frozenset({"long"})}, {}, ("", "long")),
        ({"deny_qos": frozenset({"normal"})}, {}, ("", "long")),
        ({}, {"account": "lab"}, ("lab", "")),
        ({}, {"account": "grant", "qos": "normal"}, ("grant", "normal")),
        ({}, {"qos": "long"}, ("", "long")),
    ],
)
def test_an_account_and_qos_that_work(limits, asked, charge):
    """The defaults are left unsaid where they work; else one that does is chosen."""
    qos = (Qos(name="normal"), Qos(name="long"))
    cluster = site(qos=qos, associations=ASSOCIATIONS, **limits)
    (strategy,) = planned(Request(**asked), cluster).strategies
    assert (strategy.account, strategy.qos) == charge


@pytest.mark.parametrize(
    ("limits", "asked", "reason"),
    [
        (
            {"allow_accounts": frozenset({"vip"})},
            {},
            "partition gpu allows the accounts vip; yours: grant, lab",
        ),
        ({"allow_qos": frozenset({"vip"})}, {}, "partition gpu allows the QOS vip"),
        (
            {"allow_qos": frozenset({"long"})},
            {"qos": "normal"},
            "partition gpu does not allow QOS normal",
        ),
        ({}, {"qos": "vip"}, "QOS vip is not yours to use in partition gpu"),
        (
            {"allow_accounts": frozenset({"lab"})},
            {"account": "grant"},
            "partition gpu allows the accounts lab; yours: grant",
        ),
    ],
)
def test_no_account_or_qos_works(limits, asked, reason):
    """The reason names what would."""
    qos = (Qos(name="normal"), Qos(name="long"), Qos(name="vip"))
    assert why(site(qos=qos, associations=ASSOCIATIONS, **limits), **asked) == reason


def test_associations_for_other_partitions_only():
    """A user whose associations are all bound elsewhere may not use this partition."""
    mine = (Association(account="lab", partition="other"),)
    assert why(site(associations=mine)) == "none of your accounts may use partition gpu"


def test_another_account_where_the_default_is_too_small():
    """An association's own limits count, and one that is large enough is found."""
    mine = (
        Association(account="lab", is_default=True, limits=Limits(per_job=(("gres/gpu", 1),))),
        Association(account="grant"),
    )
    assert {s.account for s in planned(Request(gpus=4), site(associations=mine)).strategies} == {
        "grant"
    }
    (one,) = planned(Request(gpus=1), site(associations=mine)).strategies
    assert one.account == ""


def test_nobody_to_ask_means_allowed():
    """Without slurmdbd nothing is assumed to be forbidden."""
    assert len(planned(Request(), site(associations=None)).strategies) == 1


def test_preemptible_partitions_are_asked_for_by_name():
    """Lower in tier, on the same nodes, and with a PreemptMode: jobs there are killed."""
    members = nodes("n", 2, gres={"a40": 8})
    high = partition("gpu", members, priority_tier=10, preempt_mode="REQUEUE")
    low = partition("spare", members, priority_tier=1, preempt_mode="REQUEUE")
    cluster = snapshot((high, members), (low, members))
    made = planned(Request(), cluster)
    assert [s.partition for s in made.strategies] == ["gpu"]
    assert reasons(made) == {
        "a40/spare": "jobs there are preempted (REQUEUE); --preemptible or -p spare asks for it"
    }
    named = planned(Request(partitions=("spare",)), cluster)
    assert [s.partition for s in named.strategies] == ["spare"]


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
    cluster = limited(limits, associations=associated("normal"), jobs=(held,))
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
        cluster = by_qos(accounts=accounts, associations=associated("normal"), jobs=(theirs,))
        return planned(Request(gpus=gpus), cluster).strategies[0].estimate.source

    assert (source("astro"), source("law"), source("lab", 2)) == (
        Source.UNKNOWN,
        Source.IDLE,
        Source.IDLE,
    )
    cluster = by_qos(accounts=accounts, associations=associated("normal"))
    said = set(reasons(planned(Request(gpus=8), cluster)).values())
    assert "account physics allows 6 GPUs in all, 8 asked" in said


def test_a_qos_overrides_what_an_association_limits():
    """Slurm 22.05 ran two GPUs under a QOS of two for an account of one."""
    associations = (
        replace(associated("normal", "long")[0], limits=Limits(per_job=(("gres/gpu", 1),))),
    )
    qos = (Qos(name="normal"), Qos(name="long", limits=Limits(per_job=(("gres/gpu", 2),))))
    cluster = by_qos(qos=qos, associations=associations, config=ClusterConfig())
    (strategy,) = planned(Request(gpus=2), cluster).strategies
    assert strategy.qos == "long"


def test_limits_that_nobody_enforces():
    """AccountingStorageEnforce decides whether limits, and grants of QOS, mean anything."""
    cluster = limited(Limits(per_job=(("gres/gpu", 1),)), associations=associated("normal"))
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
