"""The GPUs of a cluster as pools: one model, as one GRES type, in one partition.

A node's GPU model is read from its GRES types, else from its features, else from the partition's
name. Pools that share a partition and a GRES type each need a constraint that distinguishes them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Final

from rv.dataclass import dataclass
from rv.models.snapshot import GpuGroup, Node, Partition, Snapshot
from rv.planner.catalogue import Catalogue, GpuModel, MigProfile, mig_profile
from rv.planner.eligibility import ASLEEP, Constraint, Features, NodeFilter

UNNAMED: Final = "gpu"
"""The model of GPUs that nothing names."""

_SLICES_PER_GPU: Final = 7
"""A GPU is cut into seven compute slices at most."""

_PoolKey = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One node's share in a pool: its GPUs of the pool's type, in all and free.

    `portion` is one such GPU's part of all that the node has: where one of two GPUs is cut into
    seven slices, the other is half of the node. `unusable` says why the node cannot be used
    ("drained"), and is "" where it can.
    """

    node: Node
    total: int
    free: int
    portion: float
    unusable: str = ""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """GPUs that one job can ask for by partition, GRES type and constraint.

    `label` is unique ("a100-80/gpu-a100-80"); `usable` holds the largest nodes' slots first.
    `pattern` is what nvidia-smi must call the GPU, "" where the pool holds several models.
    `counts` is set where the user wants so many nodes of one feature and so many of another.
    `others_asleep` are powered-down nodes that are no part of it and that its jobs would fit.
    """

    partition: Partition
    model: GpuModel
    gres_type: str = ""
    constraint: str = ""
    mig: MigProfile | None = None
    pattern: str = ""
    slots: tuple[Slot, ...] = ()
    suffix: str = ""
    counts: Constraint | None = None
    others_asleep: tuple[str, ...] = ()

    @cached_property
    def usable(self) -> tuple[Slot, ...]:
        """The slots of usable nodes, sorted once: every layout asks for them."""
        usable = (slot for slot in self.slots if not slot.unusable)
        return tuple(sorted(usable, key=lambda slot: -slot.total))

    @property
    def label(self) -> str:
        """A stable, readable name of the pool."""
        return f"{self.model.name}/{self.place}"

    @property
    def place(self) -> str:
        """The partition, and what distinguishes the pool from others of its model there."""
        return f"{self.partition.name}{self.suffix}"

    @property
    def largest(self) -> int:
        """The most GPUs that a node of the pool has, usable now or not."""
        return max((slot.total for slot in self.slots), default=0)

    @property
    def asleep(self) -> tuple[str, ...]:
        """The nodes that Slurm would power up for a job that does not exclude them."""
        own = (slot.node.name for slot in self.slots if slot.unusable == ASLEEP)
        return tuple(sorted((*own, *self.others_asleep)))

    def gres(self, count: int) -> str:
        """What Slurm is asked for on each node, "" without GPUs."""
        typed = f"gpu:{self.gres_type}" if self.gres_type else "gpu"
        return f"{typed}:{count}" if count else ""

    def with_at_least(self, count: int, *, all_nodes: bool = False) -> tuple[Slot, ...]:
        """Return the slots of at least `count` GPUs, of usable nodes or of all."""
        slots = self.slots if all_nodes else self.usable
        return tuple(slot for slot in slots if slot.total >= count)


def gpu_pools(
    partitions: Sequence[Partition],
    nodes: Mapping[str, Node],
    catalogue: Catalogue,
    eligible: NodeFilter,
) -> tuple[tuple[Pool, ...], tuple[Pool, ...]]:
    """Return the pools that a job can ask for, and those it cannot.

    Those it cannot ask for are whole GPUs of an untyped GRES that no feature distinguishes from the
    MIG slices beside them.
    """
    # Partitions overlap: what a node has to offer is worked out once.
    names = {name for partition in partitions for name in partition.nodes if name in nodes}
    slots = {name: _slots(nodes[name], eligible, catalogue) for name in names}
    pools: list[Pool] = []
    for partition in partitions:
        members = [slot for name in partition.nodes if name in slots for slot in slots[name]]
        pools.extend(_pools_of(partition, members, catalogue))
    return distinguish(pools)


def cpu_pools(
    partitions: Sequence[Partition], nodes: Mapping[str, Node], eligible: NodeFilter
) -> list[Pool]:
    """Return the nodes of each partition for a job without GPUs.

    Nodes with GPUs are taken only where no partition has others.
    """
    for gpu_nodes in (False, True):
        pools = [_cpu_pool(part, nodes, eligible, gpu_nodes=gpu_nodes) for part in partitions]
        filled = [pool for pool in pools if pool.slots]
        if filled:
            return filled
    return []


def _cpu_pool(
    partition: Partition, nodes: Mapping[str, Node], eligible: NodeFilter, *, gpu_nodes: bool
) -> Pool:
    slots: list[Slot] = []
    asleep: list[str] = []
    for node in filter(None, map(nodes.get, partition.nodes)):
        unusable = eligible.why_unusable(node)
        if gpu_nodes or not node.gpus:
            slots.append(Slot(node=node, total=0, free=0, portion=0.0, unusable=unusable))
        elif unusable == ASLEEP:
            asleep.append(node.name)
    model, others = GpuModel(name="cpu"), tuple(asleep)
    return Pool(partition=partition, model=model, slots=tuple(slots), others_asleep=others)


def _pools_of(
    partition: Partition, members: Iterable[tuple[str, Slot]], catalogue: Catalogue
) -> list[Pool]:
    slots: dict[_PoolKey, list[Slot]] = {}
    models: dict[_PoolKey, tuple[GpuModel, MigProfile | None]] = {}
    for gres_type, slot in members:
        model, mig = _model(catalogue, gres_type, slot.node.features, partition.name)
        key = (gres_type, model.name, mig.name if mig else "")
        models[key] = (model, mig)
        slots.setdefault(key, []).append(slot)
    return [
        Pool(
            partition=partition,
            model=model,
            gres_type=key[0],
            mig=mig,
            pattern=model.pattern,
            slots=tuple(slots[key]),
        )
        for key, (model, mig) in models.items()
    ]


def _slots(node: Node, eligible: NodeFilter, catalogue: Catalogue) -> tuple[tuple[str, Slot], ...]:
    """Return a node's GRES types, each with the node's slot in the pools of that type."""
    unusable = eligible.why_unusable(node)
    portions = _portions(catalogue, node.gpus, node.features)
    return tuple(
        (name, Slot(node=node, total=total, free=free, portion=portion, unusable=unusable))
        for name, total, free, portion in portions
    )


# Nodes of one kind, in use alike, have the same.
@lru_cache(maxsize=4096)
def _portions(
    catalogue: Catalogue, gpus: tuple[GpuGroup, ...], features: Features
) -> tuple[tuple[str, int, int, float], ...]:
    """Return each GRES type with its GPUs, in all and free, and one's part of all of the node's."""
    groups = _by_type(gpus)
    slices = [_mig(catalogue, group.type, features) for group in groups]
    sizes = [mig.slices / _SLICES_PER_GPU if mig else 1.0 for mig in slices]
    whole = sum(group.total * size for group, size in zip(groups, sizes, strict=True))
    return tuple(
        (group.type, group.total, group.free, size / whole)
        for group, size in zip(groups, sizes, strict=True)
    )


def _by_type(groups: tuple[GpuGroup, ...]) -> tuple[GpuGroup, ...]:
    """Return one group for each type that has GPUs."""
    if len({group.type for group in groups}) == len(groups):
        return tuple(group for group in groups if group.total > 0)
    totals: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for group in groups:
        totals[group.type] += group.total
        used[group.type] += group.used
    return tuple(
        GpuGroup(type=name, total=total, used=used[name]) for name, total in totals.items() if total
    )


def card_sizes(snapshot: Snapshot, catalogue: Catalogue) -> tuple[int, ...]:
    """Return the memory of the models of whole GPUs that a cluster has, in MiB, least first."""
    sizes = {model.vram_mib for model in _whole_models(snapshot, catalogue)}
    return tuple(sorted(size for size in sizes if size))


def model_names(snapshot: Snapshot, catalogue: Catalogue) -> tuple[str, ...]:
    """Return the models of whole GPUs that a cluster has, as --type names them."""
    return tuple(sorted({model.name for model in _whole_models(snapshot, catalogue)} - {UNNAMED}))


def _whole_models(snapshot: Snapshot, catalogue: Catalogue) -> Iterator[GpuModel]:
    nodes = {node.name: node for node in snapshot.nodes}
    kinds = {
        (group.type, node.features, partition.name)
        for partition in snapshot.partitions
        for node in filter(None, map(nodes.get, partition.nodes))
        for group in node.gpus
        if group.total > 0
    }
    return (model for model, mig in (_model(catalogue, *kind) for kind in kinds) if not mig)


@lru_cache(maxsize=4096)
def _model(
    catalogue: Catalogue, gres_type: str, features: Features, partition: str
) -> tuple[GpuModel, MigProfile | None]:
    """Return the model of a GRES type on a node with these features, and its MIG profile."""
    mig = _mig(catalogue, gres_type, features)
    if mig:
        # nvidia-smi names the card, not the slice: there is no pattern to check it against.
        return GpuModel(name=mig.name, vram_mib=mig.vram_mib, least_mib=mig.vram_mib), mig
    model = catalogue.recognise((gres_type,))
    if model is None and not catalogue.is_vague(gres_type):
        return GpuModel(name=gres_type), None
    for texts in (tuple(sorted(features)), (partition,)):
        named = catalogue.recognise(texts)
        if named and (model is None or named.refines == model.name):
            model = named
    return model or GpuModel(name=UNNAMED), None


@lru_cache(maxsize=4096)
def _mig(catalogue: Catalogue, gres_type: str, features: Features) -> MigProfile | None:
    """Return the MIG profile of a GRES type, else of the one feature that names one."""
    profile = mig_profile(gres_type)
    if profile or not catalogue.is_vague(gres_type):
        return profile
    profiles = {named for feature in features if (named := mig_profile(feature))}
    return profiles.pop() if len(profiles) == 1 else None


def distinguish(pools: Iterable[Pool]) -> tuple[tuple[Pool, ...], tuple[Pool, ...]]:
    """Assign each pool a constraint that distinguishes it within its partition.

    Returns the pools that a job can ask for, and the ambiguous ones. Models that no feature
    distinguishes become one pool of the lesser memory.
    """
    groups: dict[tuple[str, str], list[Pool]] = {}
    by_partition: dict[str, list[Pool]] = {}
    for pool in pools:
        groups.setdefault((pool.partition.name, pool.gres_type), []).append(pool)
        by_partition.setdefault(pool.partition.name, []).append(pool)
    distinct: list[Pool] = []
    ambiguous: list[Pool] = []
    for (partition, gres_type), group in groups.items():
        # A GRES without a type is served by GPUs of any type.
        rivals = group if gres_type else by_partition[partition]
        for pool in _distinguished(group, rivals):
            (ambiguous if _may_be_slices(pool, rivals) else distinct).append(pool)
    return tuple(_labelled(distinct)), tuple(_labelled(ambiguous))


def _may_be_slices(pool: Pool, rivals: list[Pool]) -> bool:
    """Whether Slurm may give a job of this pool MIG slices instead of whole GPUs."""
    if pool.gres_type or pool.constraint or len(rivals) == 1:
        return False
    return any(rival.mig for rival in rivals)


def _distinguished(group: list[Pool], rivals: list[Pool]) -> list[Pool]:
    """Give the pools of a group their constraints; merge those that can have none into one."""
    if len(rivals) == 1:
        return group
    distinct: list[Pool] = []
    rest: list[Pool] = []
    for pool in group:
        constraint = _constraint(pool, [rival for rival in rivals if rival is not pool])
        if constraint:
            distinct.append(replace(pool, constraint=constraint))
        else:
            rest.append(pool)
    if not rest:
        return distinct
    merged = _merged(rest, rivals)
    return [*(pool for pool in distinct if pool.model.name != merged.model.name), merged]


def _merged(rest: list[Pool], rivals: list[Pool]) -> Pool:
    """Return one pool for those that no constraint distinguishes.

    Without a constraint Slurm may give any of the rivals' whole GPUs: promise the least of them.
    """
    whole = [pool for pool in rivals if not pool.mig]
    candidates = whole or rest
    least = min(candidates, key=lambda pool: (pool.model.vram_mib or 0, pool.model.name))
    return replace(
        least,
        gres_type=rest[0].gres_type,
        slots=_united(slot for pool in candidates for slot in pool.slots),
        pattern=least.pattern if len(whole) < 2 else "",
    )


def _united(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """Return one slot a node: a request without a type may take GPUs of several types of one."""
    by_node: dict[str, Slot] = {}
    for slot in slots:
        other = by_node.get(slot.node.name)
        if other:
            total, free = other.total + slot.total, other.free + slot.free
            by_node[slot.node.name] = replace(other, total=total, free=free)
        else:
            by_node[slot.node.name] = slot
    return tuple(by_node.values())


def _constraint(pool: Pool, others: list[Pool]) -> str:
    """Return what all nodes of a pool have and no other pool's: `a`, else `a&b`, else `a|b`."""
    own = [slot.node.features for slot in pool.slots]
    foreign = {slot.node.features for other in others for slot in other.slots}
    if foreign & set(own):
        return ""
    elsewhere = frozenset[str]().union(*foreign)
    common = frozenset.intersection(*own)
    # Of several the one that names the model is what a person would have written.
    stem = pool.model.name.split("-")[0]

    def model_first(name: str) -> tuple[bool, str]:
        return (stem not in name.lower(), name)

    only = min(common - elsewhere, key=model_first, default="")
    if only:
        return only
    # Together no other node has them; else each of these nodes has one, and no other node any.
    all_of = _until_none_left(sorted(common, key=model_first), list(foreign), leaves=True)
    unique = sorted(frozenset[str]().union(*own) - elsewhere)
    return "&".join(all_of) or "|".join(_until_none_left(unique, own, leaves=False))


def _until_none_left(names: list[str], nodes: list[Features], *, leaves: bool) -> list[str]:
    """Choose features, in order, until no node is left; none where some always are.

    A feature `leaves` the nodes that have it, else those that do not.
    """
    chosen: list[str] = []
    for name in names:
        left = [features for features in nodes if (name in features) is leaves]
        if len(left) < len(nodes):
            chosen.append(name)
            nodes = left
    return [] if nodes else chosen


def constrained(pool: Pool, ways: tuple[Constraint, ...]) -> tuple[Pool, ...]:
    """Return the pool as the user's constraint leaves it, once for each way to meet that."""
    pools: list[Pool] = []
    for way in ways:
        slots = tuple(slot for slot in pool.slots if way.allows(slot.node.features))
        combined = way.combined_with(pool.constraint)
        if slots and combined:
            suffix = f"{pool.suffix}/{way.text}" if len(ways) > 1 else pool.suffix
            counts, text = combined if combined.counts else None, combined.text
            pools.append(replace(pool, slots=slots, constraint=text, counts=counts, suffix=suffix))
    return tuple(pools)


def _labelled(pools: list[Pool]) -> list[Pool]:
    """Add the GRES type to labels that would otherwise recur."""
    counts = Counter(pool.label for pool in pools)
    return [
        pool if counts[pool.label] == 1 else replace(pool, suffix=f"/{pool.gres_type or 'gpu'}")
        for pool in pools
    ]
