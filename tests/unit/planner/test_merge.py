"""Which strategies become one native job, what that job asks for, and what is never merged."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings

from rv.models.job import JobState
from rv.models.plan import Mode
from rv.models.request import Fanout, NodeLimit, Request
from rv.models.snapshot import Association, Limits, Qos, QueuedJob
from rv.planner.merge import Merger
from tests.unit.planner.clusters import (
    campus,
    nodes,
    partition,
    planned,
    priced,
    snapshot,
)
from tests.unit.planner.test_planning import clusters, requests

BUSY = {"states": ("ALLOCATED",), "used": 4}
MULTI = Request(gpus=4, node_limit=NodeLimit.MULTI)


def jobs(request, cluster):
    """Return what is submitted, each as (partition, GRES, constraint, how many strategies)."""
    return [
        (job.strategy.partition, job.strategy.gres, job.strategy.constraint, len(job.strategies))
        for job in planned(request, cluster).submissions
    ]


def two_partitions(*, here=None, there=None, **more):
    """Return V100 nodes in `pa` and A40 nodes in `pb`; partition fields by `here` and `there`."""
    old = nodes("v", 2, gres={"v100": 4}, **(BUSY | more))
    new = nodes("a", 2, gres={"a40": 4}, **(BUSY | more))
    return snapshot(
        (partition("pa", old, **(here or {})), old), (partition("pb", new, **(there or {})), new)
    )


def by_feature(first=(), second=(), gres="", **more):
    """Return one partition of untyped V100 and A40 nodes with features that name them."""
    old = nodes("v", 2, gres={gres: 4}, features=("v100", *first), **(BUSY | more))
    new = nodes("a", 2, gres={gres: 4}, features=("a40", *second), **(BUSY | more))
    return snapshot((partition("gpu", old + new), old + new))


def test_partitions_of_one_model_each_merge_without_a_type():
    """Every node that the job can get holds the GPU that one of its strategies promises."""
    assert jobs(Request(gpus=2), two_partitions()) == [("pb,pa", "gpu:2", "", 2)]


def test_partitions_with_the_same_gres_keep_their_type():
    """Nothing is left open that the parts did not leave open."""
    one, other = (nodes(name, 2, gres={"a40": 4}, **BUSY) for name in "ab")
    cluster = snapshot((partition("pa", one), one), (partition("pb", other), other))
    assert jobs(Request(), cluster) == [("pa,pb", "gpu:a40:1", "", 2)]


@pytest.mark.parametrize(
    ("request_", "constraint"), [(Request(gpus=4), "a40|v100"), (MULTI, "[a40|v100]")]
)
def test_features_of_one_partition_merge(request_, constraint):
    """On several nodes in brackets, so that all of them have the same model."""
    gres = f"gpu:{4 if request_.node_limit is NodeLimit.ANY else 2}"
    (job, *_) = jobs(request_, by_feature())
    assert job == ("gpu", gres, constraint, 2)


def test_a_job_of_features_knows_each_strategys_nodes():
    """By their names, lost ones too: such a node may be back when the job starts."""
    cluster = by_feature()
    lost = replace(cluster.nodes[0], states=frozenset({"DOWN"}))
    cluster = replace(cluster, nodes=(lost, *cluster.nodes[1:]))
    (job,) = planned(Request(), cluster).submissions
    found = zip((s.gpu for s in job.strategies), job.merged.homes, strict=True)
    assert dict(found) == {"a40": ("a1", "a2"), "v100": ("v1", "v2")}


def test_types_in_one_partition_merge_on_one_node_and_not_on_several():
    """Without a type several nodes could be of two models."""
    old = nodes("v", 2, gres={"v100": 4}, **BUSY)
    new = nodes("a", 2, gres={"a40": 4}, **BUSY)
    cluster = snapshot((partition("gpu", old + new), old + new))
    assert jobs(Request(), cluster) == [("gpu", "gpu:1", "", 2)]
    assert [count for *_, count in jobs(MULTI, cluster)] == [1, 1]


def strange(name, gres, features=()):
    """Return the two partitions with another node in the second, in no strategy's place."""
    cluster = two_partitions()
    more = nodes(name, 1, gres=gres, features=features)
    grown = partition("pb", (*cluster.nodes[2:], *more))
    return replace(
        cluster, nodes=(*cluster.nodes, *more), partitions=(cluster.partitions[0], grown)
    )


@pytest.mark.parametrize(
    "cluster",
    [
        strange("m", {"1g.10gb": 7}),
        strange("m", {"a40": 4, "1g.10gb": 7}),
        strange("m", {"a40": 4, "t4": 4}),
    ],
    ids=["slices", "slices beside", "two models"],
)
def test_a_node_that_a_request_without_a_type_could_take_wrongly(cluster):
    """One such node in a partition, and its strategies stay apart from those of others."""
    request = Request(types=("v100", "a40"), memory_mib=1024, cpus=1)
    assert [count for *_, count in jobs(request, cluster)] == [1, 1]


def test_a_model_that_was_not_asked_for_keeps_partitions_apart():
    """`--type` leaves T4 out; without a type Slurm would give it."""
    request = Request(types=("v100", "a40"), memory_mib=1024, cpus=1)
    assert [count for *_, count in jobs(request, strange("t", {"t4": 4}))] == [1, 1]


def test_slices_merge_with_slices_of_the_same_type_only():
    """Never with whole GPUs, and never without their type."""
    one, other = (nodes(name, 1, gres={"1g.10gb": 7}, **BUSY) for name in "ab")
    cluster = snapshot((partition("pa", one), one), (partition("pb", other), other))
    assert jobs(Request(mig=True), cluster) == [("pa,pb", "gpu:1g.10gb:1", "", 2)]
    vendor = nodes("b", 1, gres={"nvidia_a100_1g.10gb": 7}, **BUSY)
    cluster = snapshot((partition("pa", one), one), (partition("pb", vendor), vendor))
    assert [count for *_, count in jobs(Request(mig=True), cluster)] == [1, 1]


@pytest.mark.parametrize(
    "there",
    [
        {"max_time": timedelta(hours=1)},
        {"exclusive": True},
        {"max_cpus_per_node": 2},
        {"preempt_mode": "REQUEUE"},
    ],
    ids=lambda there: next(iter(there)),
)
def test_partitions_that_give_other_terms_stay_apart(there):
    """Walltime, whole nodes, CPUs and preemption are the job's, wherever it starts."""
    made = jobs(Request(), two_partitions(there=there))
    assert [count for *_, count in made] == [1, 1]


@pytest.mark.parametrize(("room", "carried"), [(2, 2), (0, 1)])
def test_a_merged_job_takes_room_of_every_partitions_qos(room, carried):
    """MaxSubmit of each counts it, so that one without room is left out, with the reason."""
    tight = Qos(name="tight", limits=Limits(max_submit_per_user=2))
    queued = tuple(
        QueuedJob(job_id=str(n), user="ann", partition="pa", state=JobState.PENDING, qos="other")
        for n in range(2 - room)
    )
    cluster = two_partitions(here={"qos": "tight"})
    made = planned(Request(), replace(cluster, qos=(Qos(name="normal"), tight), jobs=queued))
    (job,) = made.submissions
    assert [s.partition for s in job.strategies] == ["pb", "pa"][:carried]
    assert any("QOS tight has no room" in note for note in made.job_notes) is (carried == 1)


@pytest.mark.parametrize(
    "terms",
    [
        {"template": "own"},
        {"mode": Mode.BACKFILL},
        {"nodes": 2},
        {"gpus_per_node": 2},
        {"account": "other"},
        {"qos": "other"},
        {"exclude_nodes": ("asleep1",)},
        {"preemptible": True},
    ],
    ids=lambda terms: next(iter(terms)),
)
def test_strategies_of_other_terms_stay_apart(terms):
    """A job has one of each."""
    cluster = two_partitions()
    first, second = planned(Request(), cluster).strategies
    merger = Merger((first, second), cluster)
    assert merger.can_join([first], second)
    assert not merger.can_join([first], replace(second, **terms))


def test_constraints_of_several_features_stay_apart():
    """What they mean is Slurm's to say, even where both strategies have the same."""
    cluster = two_partitions()
    first, second = (
        replace(s, constraint="v100&ib") for s in planned(Request(), cluster).strategies
    )
    assert not Merger((first, second), cluster).can_join([first], second)


def test_commands_that_can_resume_stay_apart():
    """The next segment is the same script again, and goes on with the GPUs it began with."""
    made = planned(Request(checkpoint=True), two_partitions())
    assert [len(job.strategies) for job in made.submissions] == [1, 1]


def test_the_cap_is_on_jobs():
    """What a job can carry too goes with it when no further job may be sent."""
    (job,) = planned(Request(gpus=4, max_submissions=1), two_partitions()).submissions
    assert len(job.strategies) == 2


@pytest.mark.parametrize("field", ["per_user", "per_job", "per_account", "group", "per_node"])
def test_a_limit_on_a_gpu_type_keeps_types_apart(field):
    """Slurm does not hold a job to it that names no type."""
    limited = Qos(name="normal", limits=Limits(**{field: (("gres/gpu:a40", 2),)}))
    cluster = replace(two_partitions(), qos=(limited,))
    assert [count for *_, count in jobs(Request(), cluster)] == [1, 1]
    counted = Qos(name="normal", limits=Limits(**{field: (("gres/gpu", 8),)}))
    assert jobs(Request(), replace(cluster, qos=(counted,))) == [("pb,pa", "gpu:1", "", 2)]


def test_a_price_on_a_gpu_type_keeps_types_apart():
    """Such weights count only where the job names the type."""
    weights = {"billing_weights": (("gres/gpu:a40", 5.0),)}
    assert [count for *_, count in jobs(Request(), two_partitions(there=weights))] == [1, 1]


def test_the_parts_of_every_merged_job_are_ready_within_the_cap():
    """Whichever of them are refused, the race never has more jobs than it may."""
    pairs = []
    for gib in (100, 200):
        for name in "xy":
            members = nodes(
                f"{name}{gib}n", 1, gres={f"{name}{gib}": 8}, gib=gib, states=("ALLOCATED",), used=8
            )
            pairs.append((partition(f"{name}{gib}", members), members))
    for cap, spares in ((2, [1, 2]), (3, [1, 1, 2]), (4, [1, 1, 2, 2])):
        made = planned(Request(gpus=2, max_submissions=cap), snapshot(*pairs))
        assert len(made.submissions) == 2
        assert [job.instead_of for job in made.spares] == spares


def test_an_association_of_a_partition_keeps_it_apart():
    """Slurm looks the association up once, for one of the partitions."""
    own = (Association(account="lab"), Association(account="lab", partition="pa"))
    cluster = replace(two_partitions(), associations=own)
    assert [count for *_, count in jobs(Request(), cluster)] == [1, 1]


def test_layouts_never_merge():
    """Slurm would start `-N 1-2` as 3+1."""
    for job in planned(Request(gpus=4), two_partitions()).submissions:
        assert len({(s.nodes, s.gpus_per_node) for s in job.strategies}) == 1


@pytest.mark.parametrize(("gib", "together"), [(512, True), (420, True), (400, False)])
def test_the_least_memory_of_about_the_same(gib, together):
    """A fifth less is the job's to bear, and the plan says so; more is not."""
    old = nodes("v", 1, gres={"v100": 4}, gib=512, **BUSY)
    new = nodes("a", 1, gres={"a40": 4}, gib=gib, **BUSY)
    made = planned(
        Request(gpus=4), snapshot((partition("pa", old), old), (partition("pb", new), new))
    )
    assert (len(made.submissions) == 1) is together
    if together:
        (job,) = made.submissions
        assert job.strategy.memory_mib == min(s.memory_mib for s in made.strategies)
    assert any("the least of its strategies" in note for note in made.job_notes) is (gib == 420)


def test_the_best_idle_partition_is_first_in_the_list():
    """Slurm takes the partitions of a job in that order, so that the cheaper one is preferred."""
    idle = {"states": ("IDLE",), "used": 0}
    cluster = two_partitions(
        here={"billing_weights": priced(9.0)}, there={"billing_weights": priced(1.0)}, **idle
    )
    assert jobs(Request(), cluster) == [("pb,pa", "gpu:1", "", 2)]
    assert planned(Request(), cluster).waves == ((1,),)


@pytest.mark.parametrize("field", ["priority_tier", "priority_job_factor"])
def test_a_dearer_partition_of_higher_priority_stays_apart(field):
    """Slurm would take it first, though the cheaper one is free."""
    idle = {"states": ("IDLE",), "used": 0}
    weights = {"here": {"billing_weights": priced(9.0)}, "there": {"billing_weights": priced(1.0)}}
    weights["here"][field] = 5
    made = planned(Request(), two_partitions(**weights, **idle))
    assert [job.strategy.partition for job in made.submissions] == ["pb", "pa"]
    assert made.waves == ((1,), (2,))
    busy = planned(Request(), two_partitions(**weights))
    assert len(busy.submissions) == 1


def test_features_that_are_free_now_stay_apart():
    """Which of two free nodes of one partition it takes is Slurm's to say, not the plan's."""
    idle = {"states": ("IDLE",), "used": 0}
    assert [count for *_, count in jobs(Request(), by_feature(**idle))] == [1, 1]


def test_each_is_unmerged():
    """`--fanout each` sends every strategy as a job of its own."""
    made = planned(Request(fanout=Fanout.EACH), two_partitions())
    assert [len(job.strategies) for job in made.submissions] == [1, 1]
    assert not made.spares


def test_the_parts_are_ready_for_a_refusal():
    """Under numbers of their own after all the jobs, each naming the job it stands in for."""
    made = planned(Request(gpus=4), campus())
    merged = [job for job in made.submissions if job.merged]
    parts = [(job.number, s.id) for job in merged for s in job.strategies]
    assert [(job.instead_of, job.strategy.id) for job in made.spares][: len(parts)] == parts[
        : len(made.spares)
    ]
    numbers = [job.number for job in (*made.submissions, *made.spares)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert not {job.number for job in made.spares} & {n for wave in made.waves for n in wave}


@settings(max_examples=300)
@given(clusters(), requests)
def test_merging_changes_nothing_but_the_number_of_jobs(cluster, request):
    """The parts of a job agree on all it has once, and the jobs cover what single ones would.

    In number the jobs are no more, and those sent for a refused one keep the cap.
    """
    merged = planned(replace(request, fanout=Fanout.AUTO), cluster)
    for job in merged.submissions:
        form = job.strategy
        for part in job.strategies:
            assert (part.nodes, part.gpus_per_node, part.walltime, part.cpus_per_task) == (
                form.nodes,
                form.gpus_per_node,
                form.walltime,
                form.cpus_per_task,
            )
            assert (part.account, part.qos, part.mig_profile, part.mode, part.template) == (
                form.account,
                form.qos,
                form.mig_profile,
                form.mode,
                form.template,
            )
            assert 0.8 * part.memory_mib <= form.memory_mib <= part.memory_mib
            assert part.partition in form.partition.split(",")
            assert set(part.node_names) <= set(form.node_names)
    carried = {s.id for job in merged.submissions for s in job.strategies}
    wanted = [s.id for s in merged.strategies if not s.covered_by]
    assert carried <= set(wanted)
    assert carried >= set(wanted[: request.max_submissions])
    singles = sum(job.merged is None for job in merged.submissions)
    assert singles + len(merged.spares) <= request.max_submissions
    assert merged.strategies == planned(request, cluster).strategies


@settings(max_examples=300)
@given(clusters(), requests)
def test_a_merged_job_reaches_no_node_that_none_of_its_parts_asks_for(cluster, request):
    """Every node of its partitions that meets the GRES and the constraint is a part's own.

    Where it asks for no type, the node holds one type of GPU, and that is what the part names.
    """
    known = {node.name: node for node in cluster.nodes}
    parts_of = {part.name: part.nodes for part in cluster.partitions}
    for job in planned(replace(request, fanout=Fanout.AUTO), cluster).submissions:
        for name in job.strategy.partition.split(","):
            for node in (known[node] for node in parts_of[name]):
                if not asks_for(job.strategy, node):
                    continue
                mine = [s for s in job.strategies if s.partition == name and asks_for(s, node)]
                assert len(mine) == 1
                if mine[0].gres != job.strategy.gres:
                    (group,) = node.gpus
                    assert "g." not in group.type


def asks_for(strategy, node):
    """Whether a node meets what a job asks of it, as Slurm reads GRES and constraint."""
    if strategy.constraint:
        either = set(strategy.constraint.strip("[]").split("|"))
        if not either & node.features:
            return False
    if not strategy.gres:
        return True
    _, *kind, count = strategy.gres.split(":")
    groups = [group for group in node.gpus if not kind or [group.type] == kind]
    return sum(group.total for group in groups) >= int(count)
