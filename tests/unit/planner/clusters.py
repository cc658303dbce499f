"""Snapshots for the planner's tests, built in a few readable lines."""

from dataclasses import replace
from datetime import datetime, timedelta

from rv.config.gpu_models import load_catalogue
from rv.config.strategy_families import load_families
from rv.models.snapshot import (
    Association,
    ClusterConfig,
    GpuGroup,
    Limits,
    Node,
    Partition,
    Qos,
    Snapshot,
)
from rv.planner import plan

NOON = datetime(2026, 11, 21, 12, 0, 0)  # noqa: DTZ001 - Slurm's own clock has no zone
CATALOGUE = load_catalogue()
FAMILIES = load_families()
GIB = 1024


def nodes(
    prefix,
    count,
    *,
    gres=None,
    cpus=128,
    gib=512,
    features=(),
    states=("IDLE",),
    used=0,
    cpus_used=0,
    **more,
):
    """Build `count` alike nodes; `gres` maps types to counts, `used` GPUs of each are taken."""
    groups = tuple(GpuGroup(type=t, total=n, used=used) for t, n in (gres or {}).items())
    return tuple(
        Node(
            name=f"{prefix}{number}",
            states=frozenset(states),
            cpus=cpus,
            cpus_used=cpus_used,
            memory_mib=gib * GIB,
            memory_used_mib=0,
            gpus=groups,
            features=frozenset(features),
            **more,
        )
        for number in range(1, count + 1)
    )


def partition(name, members, **more):
    """Build a partition of the nodes given."""
    limits = {"max_time": timedelta(days=3), **more}
    return Partition(name=name, nodes=tuple(node.name for node in members), **limits)


def snapshot(*pairs, **more):
    """Build a snapshot from (partition, its nodes) pairs."""
    found = {node.name: node for _, members in pairs for node in members}
    return Snapshot(
        taken_at=NOON,
        user="ann",
        groups=frozenset({"users"}),
        partitions=tuple(part for part, _ in pairs),
        nodes=tuple(found.values()),
        **more,
    )


def priced(per_gpu):
    """Return billing weights of so much a GPU-hour."""
    return (("cpu", 0.0), ("gres/gpu", per_gpu))


def campus():
    """Return the findings' site, idle: the table of rv-original.md."""
    shapes = [
        ("gpu-v100", "v100", 4, 384, ("v100",), 20.96, 2),
        ("gpu-a6000", "a6000", 8, 256, ("a6000",), 142.73, 3),
        ("gpu-a40", "a40", 8, 256, ("a40",), 186.69, 2),
        ("gpu-a100-40", "a100", 8, 512, (), 463.81, 2),
        ("gpu-a100-80", "a100", 8, 1024, ("gpupod", "a100_80gb"), 508.89, 2),
    ]
    pairs = []
    for name, gres, per_node, gib, features, cost, count in shapes:
        members = nodes(f"{name}-n", count, gres={gres: per_node}, gib=gib, features=features)
        pairs.append((partition(name, members, billing_weights=priced(cost)), members))
    h200 = nodes("h200n", 2, gres={"h200": 8}, gib=1536)
    pairs.append((partition("gpu-h200", h200, qos="h200", billing_weights=priced(816.67)), h200))
    rtx = nodes("rtx", 2, gres={"rtx3090": 4}, cpus=64, gib=256)
    half_day = timedelta(hours=12)
    weights = priced(113.23)
    interactive = partition(
        "interactive-rtx3090", rtx, qos="rtx", max_time=half_day, billing_weights=weights
    )
    pairs.append((interactive, rtx))
    mig = nodes("mig", 1, gres={"1g.10gb": 56}, gib=2048, features=("a100_80gb", "mig"))
    slices = partition("gpu-mig", mig, qos="mig", max_memory_per_cpu_mib=8000)
    pairs.append((replace(slices, billing_weights=priced(0.0)), mig))
    plain = nodes("cpu", 2, cpus=64, gib=256)
    pairs.append((partition("standard", plain, is_default=True), plain))
    return snapshot(
        *pairs,
        qos=(
            Qos(name="normal"),
            Qos(name="h200", limits=Limits(per_user=(("gres/gpu", 4),))),
            Qos(name="rtx", limits=Limits(per_job=(("gres/gpu", 2),))),
            Qos(name="mig", limits=Limits(per_job=(("cpu", 1), ("gres/gpu", 1)))),
        ),
    )


def renamed(cluster):
    """Give every partition and every GRES type but the slices a name that no table knows."""
    types = sorted({g.type for node in cluster.nodes for g in node.gpus if "g." not in g.type})
    gres = {name: f"weird{number}" for number, name in enumerate(types, 1)}
    parts = {part.name: f"p{number}" for number, part in enumerate(cluster.partitions, 1)}

    def group(old):
        return replace(old, type=gres.get(old.type, old.type))

    return replace(
        cluster,
        partitions=tuple(replace(part, name=parts[part.name]) for part in cluster.partitions),
        nodes=tuple(replace(node, gpus=tuple(map(group, node.gpus))) for node in cluster.nodes),
    )


def planned(request, cluster):
    """Plan with the bundled catalogue and families."""
    return plan(request, cluster, CATALOGUE, FAMILIES)


def reasons(made):
    """Map what was excluded to its reason."""
    return {found.what: found.reason for found in made.excluded}


def ids(made):
    """Return the ids of a plan's strategies, best first."""
    return [strategy.id for strategy in made.strategies]


A40 = {"a40": 4}


def one_partition(*groups, **more):
    """Return a cluster of these nodes in one partition."""
    members = sum(groups, ())
    return snapshot((partition("gpu", members), members), **more)


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


def associated(*qos, default="normal"):
    """Return the association of a user with these QOS."""
    return (Association(account="lab", is_default=True, qos=qos, default_qos=default),)
