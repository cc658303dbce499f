"""Estimates, prices, order, what is covered, and the waves of submissions."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.job import JobState
from rv.models.performance import Source
from rv.models.plan import Estimate, Strategy
from rv.models.request import Fanout, Request
from rv.models.snapshot import (
    Account,
    Association,
    ClusterConfig,
    Limits,
    Qos,
    QueuedJob,
    Reservation,
    Snapshot,
)
from rv.planner import require_feasible
from rv.planner.report import overview
from rv.planner.submissions import rank
from tests.unit.planner.clusters import (
    A40,
    CATALOGUE,
    NOON,
    campus,
    ids,
    nodes,
    partition,
    planned,
    priced,
    reasons,
    snapshot,
)


def source(**node):
    """Return the estimate's source for half a node of one node in the state given."""
    members = nodes("n", 1, gres={"a40": 8}, **node)
    (strategy,) = planned(
        Request(gpus=3), snapshot((partition("gpu", members), members))
    ).strategies
    assert (strategy.estimate.start_in is None) == (strategy.estimate.source is Source.UNKNOWN)
    return strategy.estimate.source


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({}, Source.IDLE),
        ({"states": ("MIXED",), "used": 5}, Source.IDLE),
        ({"states": ("MIXED",), "used": 6}, Source.UNKNOWN),
        ({"states": ("ALLOCATED",)}, Source.UNKNOWN),
        ({"states": ("IDLE", "PLANNED")}, Source.IDLE),
        ({"states": ("IDLE", "COMPLETING")}, Source.UNKNOWN),
        ({"states": ("MIXED",), "cpus_used": 120}, Source.UNKNOWN),
    ],
)
def test_idle_is_what_is_free_now(node, expected):
    """GPUs, CPUs and the node's own state; everything else is unknown, never a number."""
    assert source(**node) is expected


@pytest.mark.parametrize(
    ("jobs", "private", "expected"),
    [
        ([{"state": JobState.RUNNING, "nodes": ("n1",), "gpus": 2}], (), Source.IDLE),
        ([{"partition": "else"}], (), Source.IDLE),
        ([{"planned_nodes": ("n2",), "start": NOON}], (), Source.IDLE),
        ([{"planned_nodes": ("n2",), "start": NOON, "job_id": "1_[2-5]"}], (), Source.UNKNOWN),
        ([{}], (), Source.UNKNOWN),
        ([], ("jobs",), Source.UNKNOWN),
    ],
    ids=["started", "elsewhere", "planned elsewhere", "array", "not planned yet", "hidden"],
)
def test_planned_is_left_from_an_older_pass_unless_a_job_may_be_meant(jobs, private, expected):
    """Slurm clears the state of a node at its next backfill pass, not when the job starts."""
    waits = {"job_id": "1", "user": "other", "partition": "gpu", "state": JobState.PENDING}
    members = nodes("n", 1, gres={"a40": 8}, states=("MIXED", "PLANNED"))
    cluster = snapshot(
        (partition("gpu", members), members),
        jobs=tuple(QueuedJob(**(waits | job)) for job in jobs),
        config=ClusterConfig(private_data=frozenset(private)),
    )
    (strategy,) = planned(Request(gpus=3), cluster).strategies
    assert strategy.estimate.source is expected


def test_memory_in_use_counts():
    """A node whose memory is taken starts nothing."""
    (node,) = nodes("n", 1, gres={"a40": 8})
    full = (replace(node, memory_used_mib=node.memory_mib - 1024),)
    (strategy,) = planned(Request(), snapshot((partition("gpu", full), full))).strategies
    assert strategy.estimate.source is Source.UNKNOWN


@pytest.mark.parametrize(
    ("hours", "expected"), [(2, Source.PLANNED), (4, Source.IDLE)], ids=["within", "after"]
)
def test_a_reservation_within_the_jobs_time(hours, expected):
    """Slurm does not start a job that would run into it."""
    members = nodes("n", 1, gres={"a40": 8})
    start = NOON + timedelta(hours=hours)
    maintenance = Reservation(
        name="maint", nodes=("n1",), start=start, end=start + timedelta(hours=8)
    )
    cluster = snapshot((partition("gpu", members), members), reservations=(maintenance,))
    (whole, *_) = sorted(planned(Request(), cluster).strategies, key=lambda found: found.segments)
    assert whole.estimate.source is expected
    if expected is Source.PLANNED:
        assert whole.estimate.start_in == timedelta(hours=2 + 8)


@pytest.mark.parametrize("state", ["MAINT", "RESERVED"])
def test_a_reservation_of_now_is_waited_for(state):
    """As sbatch does: the job keeps its place in the queue, and starts when the nodes are back."""
    assert whole_of(held_until(state, timedelta(hours=30))).estimate == Estimate(
        source=Source.PLANNED, start_in=timedelta(hours=30)
    )


@pytest.mark.parametrize("state", ["MAINT", "RESERVED"])
def test_a_reservation_for_months_is_not(state):
    """Those are a group's own nodes. A second one that ends soon changes nothing."""
    (short,) = held_until(state, timedelta(hours=1)).reservations
    cluster = held_until(state, timedelta(days=90))
    both = replace(cluster, reservations=(*cluster.reservations, short))
    for snap in (cluster, both):
        assert planned(Request(), snap).strategies == ()
        assert "1 of 1 node is not usable" in str(reasons(planned(Request(), snap)))


def test_status_counts_reserved_gpus_as_not_free():
    """What a job can wait for is not there now."""
    (view,) = overview(held_until("MAINT", timedelta(hours=30)), CATALOGUE)
    assert (view.free, view.lost) == (0, 8)


def held_until(state: str, left: timedelta) -> Snapshot:
    """A node in a reservation that began an hour ago and ends after `left`."""
    members = nodes("n", 1, gres={"a40": 8}, states=("IDLE", state))
    held = Reservation(
        name=str(left), nodes=("n1",), start=NOON - timedelta(hours=1), end=NOON + left
    )
    return snapshot((partition("gpu", members), members), reservations=(held,))


def whole_of(cluster: Snapshot) -> Strategy:
    """The one strategy of a plain request."""
    (strategy,) = planned(Request(), cluster).strategies
    return strategy


def test_idle_before_unknown_before_price():
    """A dear GPU that is free now is ahead of a cheap one that is not."""
    busy = nodes("b", 1, gres={"t4": 4}, states=("ALLOCATED",), used=4)
    free = nodes("f", 1, gres={"h100": 4})
    cluster = snapshot(
        (partition("cheap", busy, billing_weights=priced(1.0)), busy),
        (partition("dear", free, billing_weights=priced(9.0)), free),
    )
    assert ids(planned(Request(), cluster)) == ["h100/1x1/dear", "t4/1x1/cheap"]


def test_without_prices_fewer_nodes_then_the_better_model():
    """Then the name, so that the order is always the same."""
    old = nodes("o", 2, gres={"t4": 4})
    new = nodes("n", 2, gres={"h100": 4})
    cluster = snapshot((partition("a", old), old), (partition("b", new), new))
    assert ids(planned(Request(gpus=4), cluster)) == [
        "h100/1x4/b",
        "t4/1x4/a",
        "h100/2x2/b",
        "t4/2x2/a",
    ]
    assert {s.cost for s in planned(Request(), cluster).strategies} == {None}


def test_nodes_free_now_come_first_by_weight_and_name():
    """The node that will serve the job is the first named."""
    busy = nodes("a", 1, gres={"t4": 4}, states=("ALLOCATED",), used=4)
    heavy = nodes("b", 1, gres={"t4": 4}, weight=10)
    light = nodes("c", 2, gres={"t4": 4})
    every = busy + heavy + light
    (strategy,) = planned(Request(), snapshot((partition("gpu", every), every))).strategies
    assert strategy.node_names == ("c1", "c2", "b1", "a1")


def test_price_is_weights_times_hours():
    """CPUs, memory (per MiB) and GPUs, untyped and typed, of all nodes together."""
    members = nodes("n", 2, gres={"t4": 4})
    weights = (("cpu", 1.0), ("mem", 0.25 / 1024), ("gres/gpu", 10.0), ("gres/gpu:t4", 5.0))
    cluster = snapshot((partition("gpu", members, billing_weights=weights), members))
    asked = Request(
        gpus=2, cpus=8, memory_mib=4096, walltime=timedelta(hours=2), walltime_given=True
    )
    (strategy,) = planned(asked, cluster).strategies
    assert strategy.cost == pytest.approx(2 * (8 + 1 + 20 + 10))


def test_whole_node_partitions_are_priced_and_judged_as_such():
    """One GPU of an EXCLUSIVE node costs four, and starts on an empty node only."""
    empty = nodes("e", 1, gres={"t4": 4})
    part = partition("gpu", empty, exclusive=True, billing_weights=priced(1.0))
    hour = {"walltime": timedelta(hours=1), "walltime_given": True}
    (strategy,) = planned(Request(**hour), snapshot((part, empty))).strategies
    assert (strategy.cost, strategy.estimate.source) == (4.0, Source.IDLE)
    typed = replace(part, billing_weights=(("gres/gpu:t4", 2.0),))
    (strategy,) = planned(Request(**hour), snapshot((typed, empty))).strategies
    assert strategy.cost == 8.0
    mixed = nodes("e", 1, gres={"t4": 4}, cpus_used=2, states=("MIXED",))
    (strategy,) = planned(Request(), snapshot((part, mixed))).strategies
    assert strategy.estimate.source is Source.UNKNOWN


def twice(cost=(1.0, 2.0), **node):
    """Return one kind of node, each two of their own, in two partitions of different prices."""
    pairs = []
    for name, price in zip(("long", "short"), cost, strict=True):
        members = nodes(name, 2, gres={"t4": 4}, **node)
        pairs.append((partition(name, members, billing_weights=priced(price)), members))
    return snapshot(*pairs)


def test_a_better_one_of_the_same_model_and_layout_covers():
    """The other stays in the plan, is not submitted, and is with `--fanout each`."""
    made = planned(Request(), twice())
    assert [(s.id, s.covered_by) for s in made.strategies] == [
        ("t4/1x1/long", ""),
        ("t4/1x1/short", "t4/1x1/long"),
    ]
    assert [job.strategy.id for job in made.submissions] == ["t4/1x1/long"]
    each = planned(Request(fanout=Fanout.EACH), twice())
    assert [job.strategy.id for job in each.submissions] == ids(made)


def test_unknown_covers_nothing_and_is_not_covered():
    """Which of two queues moves first, nobody knows."""
    busy = twice(states=("ALLOCATED",), used=4)
    assert {s.covered_by for s in planned(Request(), busy).strategies} == {""}


def test_a_start_to_come_covers_nothing():
    """Jobs end before their limits: the second partition may be free before the first."""
    cluster = twice()
    later = [
        replace(
            s, covered_by="", estimate=Estimate(source=Source.PLANNED, start_in=timedelta(hours=n))
        )
        for n, s in enumerate(planned(Request(), cluster).strategies, 1)
    ]
    ranked = rank(later, {"t4": 1}, {part.name: part for part in cluster.partitions}, {})
    assert [s.covered_by for s in ranked] == ["", ""]


def test_other_layouts_and_models_are_never_covered():
    """The campus has a strategy of its own for each, all of them sent, some of them together."""
    made = planned(Request(gpus=4), campus())
    assert {s.covered_by for s in made.strategies} == {""}
    assert sum(len(job.strategies) for job in made.submissions) == 12
    assert len(made.submissions) == 10


def test_waves_the_best_idle_one_first():
    """Then the rest together; all at once where nothing is idle, or each is asked for."""
    assert planned(Request(gpus=8), campus()).waves == ((1,), tuple(range(2, 8)))
    assert planned(Request(gpus=8, fanout=Fanout.EACH), campus()).waves == (tuple(range(1, 10)),)
    busy = twice(states=("ALLOCATED",), used=4)
    assert planned(Request(gpus=4), busy).waves == ((1, 2),)


def test_a_race_has_at_most_so_many_jobs():
    """Strategies beyond the cap stay in the plan, which says so."""
    made = planned(Request(gpus=4, max_submissions=5), campus())
    assert [job.number for job in made.submissions] == [1, 2, 3, 4, 5]
    carried = {s.id for job in made.submissions for s in job.strategies}
    assert carried >= set(ids(made)[:5])
    assert len(made.strategies) == 12
    left = 12 - len(carried)
    assert f"{left} strategies are not submitted: a race has at most 5 jobs" in made.job_notes
    each = planned(Request(gpus=4, max_submissions=5, fanout=Fanout.EACH), campus())
    assert [job.strategy.id for job in each.submissions] == ids(each)[:5]


def test_max_submit_headroom_is_respected():
    """Two of three places are taken: one job goes, and the note names the QOS."""
    queued = tuple(
        QueuedJob(job_id=str(n), user="ann", partition="x", state=JobState.PENDING, qos="normal")
        for n in (1, 2)
    )
    tight = (Qos(name="normal", limits=Limits(max_submit_per_user=3)),)
    cluster = replace(campus(), qos=(*campus().qos[1:], *tight), jobs=queued)
    made = planned(Request(gpus=8), cluster)
    assert len(made.submissions) == 1
    note = "8 strategies are not submitted: QOS normal has no room for more jobs (MaxSubmit)"
    assert note in made.job_notes
    full = replace(cluster, jobs=(*queued, queued[0]._replace(job_id="3")))
    request = Request(gpus=8)
    with pytest.raises(RvError, match="no room for more jobs") as caught:
        require_feasible(planned(request, full), request)
    assert caught.value.kind is ErrorKind.LIMIT


def six_models(mine, above):
    """Return six models that do not merge, for a user and an account with limits."""
    pairs = []
    for number in range(6):
        members = nodes(f"n{number}x", 1, gres={f"t{number}": 8}, gib=64 * 2**number)
        pairs.append((partition(f"p{number}", members), members))
    own = Association(account="lab", is_default=True, limits=mine)
    accounts = (Account(name="lab", parent="root", limits=above), Account(name="root"))
    return snapshot(*pairs, associations=(own,), accounts=accounts)


@pytest.mark.parametrize(
    ("mine", "above", "sent"),
    [
        (Limits(max_submit_per_user=4), Limits(), 4),
        (Limits(max_submit_per_user=4), Limits(group=(("gres/gpu", 100),)), 4),
        (Limits(), Limits(group_submit=2), 2),
        (Limits(max_submit_per_user=4), Limits(group_submit=2), 2),
        (Limits(max_submit_per_user=2), Limits(group_submit=4), 2),
    ],
)
def test_a_user_and_an_account_of_one_name_each_have_room_of_their_own(mine, above, sent):
    """Both are "account lab" in what rv says."""
    assert len(planned(Request(), six_models(mine, above)).submissions) == sent


def test_what_covers_but_may_not_be_submitted_hides_nothing():
    """The cheaper partition has no room for another job (MaxSubmit): the dearer one is sent."""
    cluster = twice()
    long, short = cluster.partitions
    tight = Qos(name="tight", limits=Limits(max_submit_per_user=1))
    waiting = QueuedJob(
        job_id="1", user="ann", partition="other", state=JobState.PENDING, qos="tight"
    )
    cluster = replace(
        cluster, partitions=(replace(long, qos="tight"), short), qos=(Qos(name="normal"), tight),
        jobs=(waiting,),
    )  # fmt: skip
    assert [job.strategy.id for job in planned(Request(), cluster).submissions] == ["t4/1x1/short"]


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
