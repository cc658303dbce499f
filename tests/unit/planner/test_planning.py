"""What holds of every plan, whatever the cluster and the request."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from rv.models.request import Fanout, Layouts, NodeLimit, Request
from rv.models.snapshot import Limits, Qos
from tests.unit.planner.clusters import nodes, partition, planned, snapshot

TYPES = ["", "a100", "a40", "weird", "nvidia_h100_nvl", "1g.10gb", "a100_3g.40gb"]
FEATURES = ["a100_80gb", "a100_40gb", "h100", "ib", "big"]
STATES = [("IDLE",), ("MIXED",), ("ALLOCATED",), ("IDLE", "DRAIN"), ("DOWN",), ("STRANGE",)]
amounts = st.dictionaries(
    st.sampled_from(["cpu", "mem", "node", "gres/gpu", "gres/gpu:a100"]),
    st.integers(0, 64),
    max_size=2,
).map(lambda found: tuple(found.items()))
limits = st.builds(Limits, per_job=amounts, per_user=amounts, group=amounts)


@st.composite
def kinds(draw, prefix):
    """Draw a handful of alike nodes."""
    return nodes(
        prefix,
        draw(st.integers(1, 4)),
        gres=draw(st.dictionaries(st.sampled_from(TYPES), st.integers(1, 8), max_size=2)),
        cpus=draw(st.integers(1, 128)),
        gib=draw(st.integers(0, 1024)),
        features=draw(st.sets(st.sampled_from(FEATURES), max_size=2)),
        states=draw(st.sampled_from(STATES)),
        used=draw(st.integers(0, 8)),
    )


@st.composite
def clusters(draw):
    """Draw a cluster of a few kinds of nodes in overlapping partitions with limits."""
    found = [draw(kinds(prefix)) for prefix in "abc"[: draw(st.integers(1, 3))]]
    pairs = []
    for name in "pqr"[: draw(st.integers(1, 3))]:
        chosen = draw(st.lists(st.sampled_from(found), min_size=1, max_size=3, unique_by=id))
        members = tuple(node for kind in chosen for node in kind)
        part = partition(
            name,
            members,
            max_time=draw(st.none() | st.integers(1, 72).map(lambda h: timedelta(hours=h))),
            max_nodes=draw(st.none() | st.integers(1, 4)),
            max_cpus_per_node=draw(st.none() | st.integers(1, 64)),
            max_memory_per_cpu_mib=draw(st.none() | st.integers(500, 16000)),
            exclusive=draw(st.booleans()),
            qos=draw(st.sampled_from(["", "limited"])),
            billing_weights=draw(st.sampled_from([(), (("gres/gpu", 2.0), ("cpu", 0.1))])),
        )
        pairs.append((part, members))
    qos = (Qos(name="normal"), Qos(name="limited", limits=draw(limits)))
    return snapshot(*pairs, qos=qos)


requests = st.builds(
    Request,
    gpus=st.integers(0, 16),
    min_vram_mib=st.none() | st.sampled_from([1024, 40960, 81920]),
    walltime=st.integers(1, 100).map(lambda hours: timedelta(hours=hours)),
    walltime_given=st.booleans(),
    memory_mib=st.none() | st.integers(1, 500_000),
    cpus=st.none() | st.integers(1, 64),
    node_limit=st.sampled_from(NodeLimit),
    layouts=st.sampled_from(Layouts),
    fanout=st.sampled_from(Fanout),
    max_submissions=st.integers(1, 12),
)


@settings(max_examples=200)
@given(clusters(), requests)
def test_every_strategy_keeps_the_limits(cluster, request):
    """Its layout is exact, its nodes hold it, and its partition allows it."""
    parts = {part.name: part for part in cluster.partitions}
    known = {node.name: node for node in cluster.nodes}
    limited = dict(cluster.qos[1].limits.per_job)
    for found in planned(request, cluster).strategies:
        part = parts[found.partition]
        assert found.gpus == found.nodes * found.gpus_per_node == request.gpus
        assert len(set(found.node_names)) == len(found.node_names) >= found.nodes
        assert set(found.node_names) <= set(part.nodes)
        for node in (known[name] for name in found.node_names):
            assert not node.states & {"DOWN", "DRAIN"}
            assert sum(group.total for group in node.gpus) >= found.gpus_per_node
            assert (node.cpus, node.memory_mib) >= (found.cpus_per_task, 0)
            assert node.memory_mib >= found.memory_mib
        assert part.max_time is None or found.walltime <= part.max_time
        assert part.max_nodes is None or found.nodes <= part.max_nodes
        assert found.cpus_per_task <= (part.max_cpus_per_node or 10**9)
        per_cpu = part.max_memory_per_cpu_mib or 10**9
        assert found.memory_mib <= per_cpu * found.cpus_per_task
        if part.qos == "limited":
            assert found.gpus <= limited.get("gres/gpu", 10**9)
            assert found.nodes * found.cpus_per_task <= limited.get("cpu", 10**9)
        assert not found.mig_profile


@settings(max_examples=100)
@given(clusters(), requests)
def test_a_plan_is_consistent_with_itself(cluster, request):
    """Ids are unique, nothing is both excluded and planned, and waves hold each job once."""
    made = planned(request, cluster)
    names = [strategy.id for strategy in made.strategies]
    assert len(set(names)) == len(names)
    assert not set(names) & {found.what for found in made.excluded}
    assert [job.number for job in made.submissions] == [n for wave in made.waves for n in wave]
    assert len(made.submissions) <= request.max_submissions
    submitted = [job.strategies[0] for job in made.submissions]
    assert submitted == [s for s in made.strategies if s in submitted]
    carried = [strategy for job in made.submissions for strategy in job.strategies]
    assert len({strategy.id for strategy in carried}) == len(carried)
    if request.fanout is Fanout.AUTO:
        assert not any(strategy.covered_by for strategy in carried)
    assert {s.covered_by for s in made.strategies} - {""} <= set(names)
    assert bool(made.strategies) == bool(made.submissions)


@settings(max_examples=100)
@given(clusters(), requests, st.randoms(use_true_random=False))
def test_the_order_of_the_snapshot_does_not_matter(cluster, request, random):
    """The same cluster told in another order gives the same plan."""
    shuffled = replace(
        cluster,
        nodes=tuple(random.sample(cluster.nodes, len(cluster.nodes))),
        partitions=tuple(random.sample(cluster.partitions, len(cluster.partitions))),
    )
    made, again = planned(request, cluster), planned(request, shuffled)
    assert made.strategies == again.strategies
    assert made.excluded == again.excluded
    assert made.submissions == again.submissions
