"""The GPUs of a cluster as pools: one model, as one GRES type, in one partition."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from rv.models.snapshot import GpuGroup, Node, Partition
from rv.planner.catalogue import Catalogue, GpuModel, MigProfile, mig_profile
from rv.planner.eligibility import ASLEEP, Choice, Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One node's share in a pool: its GPUs of the pool's type, in all and free.

    `portion` is one such GPU's part of all that the node has: where one of two GPUs is cut into
    seven slices, the other is half of the node. `lost` says why the node cannot be used
    ("drained"), and is "" where it can.
    """

    node: Node
    total: int
    free: int
    portion: float
    lost: str = ""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """GPUs that one job can ask for by partition, GRES type and constraint.

    `label` is unique ("a100-80/gpu-a100-80"); `usable` holds the largest nodes' shares first.
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
    counts: Choice | None = None
    others_asleep: tuple[str, ...] = ()
    usable: tuple[Slot, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Sort the shares once: every layout asks for them."""
        usable = sorted((s for s in self.slots if not s.lost), key=lambda slot: -slot.total)
        object.__setattr__(self, "usable", tuple(usable))

    @property
    def label(self) -> str:
        """A stable, readable name of the pool."""
        return f"{self.model.name}/{self.place}"

    @property
    def place(self) -> str:
        """The partition, and what tells the pool from its like there."""
        return f"{self.partition.name}{self.suffix}"

    @property
    def largest(self) -> int:
        """The most GPUs that a node of the pool has, usable now or not."""
        return max((slot.total for slot in self.slots), default=0)

    @property
    def asleep(self) -> tuple[str, ...]:
        """The nodes that Slurm would power up for a job that does not leave them out."""
        own = (slot.node.name for slot in self.slots if slot.lost == ASLEEP)
        return tuple(sorted((*own, *self.others_asleep)))

    def gres(self, count: int) -> str:
        """What Slurm is asked for on each node, "" without GPUs."""
        typed = f"gpu:{self.gres_type}" if self.gres_type else "gpu"
        return f"{typed}:{count}" if count else ""

    def with_at_least(self, count: int, *, lost_too: bool = False) -> tuple[Slot, ...]:
        """Return the shares of at least `count` GPUs, of usable nodes or of all."""
        slots = self.slots if lost_too else self.usable
        return tuple(slot for slot in slots if slot.total >= count)


def told_apart(pools: Iterable[Pool]) -> tuple[tuple[Pool, ...], tuple[Pool, ...]]:
    """Give each pool the constraint that tells it from its like in the partition.

    Returns the pools that a job can ask for, and those it cannot: whole GPUs of an untyped GRES
    that no feature tells from MIG slices. Models that no feature tells apart become one pool of
    the lesser memory.
    """
    groups: dict[tuple[str, str], list[Pool]] = {}
    by_partition: dict[str, list[Pool]] = {}
    for pool in pools:
        groups.setdefault((pool.partition.name, pool.gres_type), []).append(pool)
        by_partition.setdefault(pool.partition.name, []).append(pool)
    found: list[Pool] = []
    refused: list[Pool] = []
    for (partition, gres_type), group in groups.items():
        # A GRES without a type is served by GPUs of any type.
        rivals = group if gres_type else by_partition[partition]
        for pool in _separated(group, rivals):
            alone = len(rivals) == 1 or pool.constraint
            mixed = not gres_type and not alone and any(p.mig for p in rivals)
            (refused if mixed else found).append(pool)
    return tuple(_labelled(found)), tuple(_labelled(refused))


def _separated(group: list[Pool], rivals: list[Pool]) -> list[Pool]:
    if len(rivals) == 1:
        return group
    marked = {id(p): _distinguishing(p, [r for r in rivals if r is not p]) for p in group}
    apart = [replace(pool, constraint=marked[id(pool)]) for pool in group if marked[id(pool)]]
    rest = [pool for pool in group if not marked[id(pool)]]
    if not rest:
        return apart
    # Without a constraint Slurm may give any of the rivals' whole GPUs: promise the least of them.
    whole = [pool for pool in rivals if not pool.mig]
    least = min(whole or rest, key=lambda pool: (pool.model.vram_mib or 0, pool.model.name))
    slots = _united(slot for pool in whole or rest for slot in pool.slots)
    pattern = least.pattern if len(whole) < 2 else ""
    merged = replace(least, gres_type=group[0].gres_type, slots=slots, pattern=pattern)
    return [*(pool for pool in apart if pool.model.name != least.model.name), merged]


def _united(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """Return one share a node: a request without a type may take GPUs of several types of one."""
    found: dict[str, Slot] = {}
    for slot in slots:
        other = found.get(slot.node.name)
        found[slot.node.name] = (
            replace(other, total=other.total + slot.total, free=other.free + slot.free)
            if other
            else slot
        )
    return tuple(found.values())


def _distinguishing(pool: Pool, others: list[Pool]) -> str:
    """Return what all nodes of a pool have and no other pool's: `a`, else `a&b`, else `a|b`."""
    mine = [slot.node.features for slot in pool.slots]
    theirs = {slot.node.features for other in others for slot in other.slots}
    if theirs & set(mine):
        return ""
    elsewhere = frozenset[str]().union(*theirs)
    common = frozenset.intersection(*mine)
    # Of several the one that names the model is what a person would have written.
    stem = pool.model.name.split("-")[0]

    def by_name(name: str) -> tuple[bool, str]:
        return (stem not in name.lower(), name)

    own = min(common - elsewhere, key=by_name, default="")
    return own or _all_of(sorted(common, key=by_name), theirs) or _any_of(mine, elsewhere)


def _all_of(common: list[str], theirs: set[frozenset[str]]) -> str:
    """Return the features that together no other node has; "" where one has all of them."""
    chosen: list[str] = []
    left = theirs
    for name in common:
        fewer = {features for features in left if name in features}
        if len(fewer) < len(left):
            chosen.append(name)
            left = fewer
    return "" if left else "&".join(chosen)


def _any_of(mine: list[frozenset[str]], elsewhere: frozenset[str]) -> str:
    """Return features of which each of these nodes has one, and no other node any."""
    chosen: list[str] = []
    left = mine
    for name in sorted(frozenset[str]().union(*mine) - elsewhere):
        fewer = [features for features in left if name not in features]
        if len(fewer) < len(left):
            chosen.append(name)
            left = fewer
    return "" if left else "|".join(chosen)


def constrained(pool: Pool, wanted: tuple[Choice, ...]) -> tuple[Pool, ...]:
    """Return the pool as the user's constraint leaves it, once for each way to meet that."""
    found: list[Pool] = []
    for choice in wanted:
        slots = tuple(slot for slot in pool.slots if choice.allows(slot.node.features))
        within = choice.within(pool.constraint)
        if slots and within:
            suffix = f"{pool.suffix}/{choice.text}" if len(wanted) > 1 else pool.suffix
            counts = within if within.counts else None
            found.append(
                replace(pool, slots=slots, constraint=within.text, counts=counts, suffix=suffix)
            )
    return tuple(found)


def _labelled(pools: list[Pool]) -> list[Pool]:
    counts: dict[str, int] = {}
    for pool in pools:
        counts[pool.label] = counts.get(pool.label, 0) + 1
    return [
        pool if counts[pool.label] == 1 else replace(pool, suffix=f"/{pool.gres_type or 'gpu'}")
        for pool in pools
    ]


UNNAMED: Final = "gpu"
"""The model of GPUs that nothing names."""

_SLICES: Final = 7
"""A GPU is cut into seven compute slices at most."""

_Key = tuple[str, str, str]


def discover(
    partitions: Sequence[Partition],
    nodes: Mapping[str, Node],
    catalogue: Catalogue,
    offered: Offer,
) -> tuple[Pool, ...]:
    """Return one pool for each model and GRES type of each partition, not yet told apart."""
    reader = _Reader(catalogue)
    # Partitions overlap: what a node has to offer is worked out once.
    known = {name for partition in partitions for name in partition.nodes if name in nodes}
    shares = {name: _slots(nodes[name], offered, reader) for name in known}
    pools: list[Pool] = []
    for partition in partitions:
        members = (shares[name] for name in partition.nodes if name in shares)
        pools.extend(_pools(partition, members, reader))
    return tuple(pools)


def cpu_pool(
    partition: Partition, nodes: Mapping[str, Node], offered: Offer, *, gpu_nodes: bool
) -> Pool:
    """Return a partition's nodes for a job without GPUs; those with GPUs only if asked for."""
    members = [nodes[name] for name in partition.nodes if name in nodes]
    slots = tuple(
        Slot(node=node, total=0, free=0, portion=0.0, lost=offered.lost_because(node))
        for node in members
        if gpu_nodes or not node.gpus
    )
    others = (node for node in members if node.gpus and not gpu_nodes)
    asleep = tuple(node.name for node in others if offered.lost_because(node) == ASLEEP)
    return Pool(partition=partition, model=GpuModel(name="cpu"), slots=slots, others_asleep=asleep)


def _pools(
    partition: Partition,
    members: Iterable[tuple[tuple[str, Slot], ...]],
    reader: "_Reader",
) -> Iterator[Pool]:
    slots: dict[_Key, list[Slot]] = {}
    models: dict[_Key, tuple[GpuModel, MigProfile | None]] = {}
    for gres_type, slot in chain.from_iterable(members):
        model, mig = reader.model(gres_type, slot.node.features, partition.name)
        key = (gres_type, model.name, mig.name if mig else "")
        models[key] = (model, mig)
        slots.setdefault(key, []).append(slot)
    for key, (model, mig) in models.items():
        yield Pool(
            partition=partition,
            model=model,
            gres_type=key[0],
            mig=mig,
            pattern=model.pattern,
            slots=tuple(slots[key]),
        )


def _slots(node: Node, offered: Offer, reader: "_Reader") -> tuple[tuple[str, Slot], ...]:
    """Return a node's share in the pools of each of its GRES types."""
    lost = offered.lost_because(node)
    groups = _by_type(node.gpus)
    sizes = [_size(reader.slices(group.type, node.features)) for group in groups]
    whole = sum(group.total * size for group, size in zip(groups, sizes, strict=True))
    return tuple(
        (
            group.type,
            Slot(node=node, total=group.total, free=group.free, portion=size / whole, lost=lost),
        )
        for group, size in zip(groups, sizes, strict=True)
    )


def _size(mig: MigProfile | None) -> float:
    """Return how much of a GPU one is."""
    return mig.slices / _SLICES if mig else 1.0


def _by_type(groups: tuple[GpuGroup, ...]) -> tuple[GpuGroup, ...]:
    if len({group.type for group in groups}) == len(groups):
        return tuple(group for group in groups if group.total > 0)
    sums: dict[str, tuple[int, int]] = {}
    for group in groups:
        total, used = sums.get(group.type, (0, 0))
        sums[group.type] = (total + group.total, used + group.used)
    return tuple(
        GpuGroup(type=t, total=total, used=used) for t, (total, used) in sums.items() if total
    )


class _Reader:
    """Reads models from evidence, each distinct evidence once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._known: dict[tuple[str, frozenset[str], str], tuple[GpuModel, MigProfile | None]] = {}
        self._sliced: dict[tuple[str, frozenset[str]], MigProfile | None] = {}

    def model(
        self, gres_type: str, features: frozenset[str], partition: str
    ) -> tuple[GpuModel, MigProfile | None]:
        """Return the model of a GRES type on a node with these features, and its MIG profile."""
        key = (gres_type, features, partition)
        if key not in self._known:
            mig = self.slices(gres_type, features)
            model = _slice_model(mig) if mig else self._read(gres_type, features, partition)
            self._known[key] = (model, mig)
        return self._known[key]

    def slices(self, gres_type: str, features: frozenset[str]) -> MigProfile | None:
        """Return the MIG profile of a GRES type, or of the one feature that is one, else None."""
        key = (gres_type, features)
        if key not in self._sliced:
            words = features if self._catalogue.is_vague(gres_type) else ()
            named = {profile for word in words if (profile := mig_profile(word))}
            only = named.pop() if len(named) == 1 else None
            self._sliced[key] = mig_profile(gres_type) or only
        return self._sliced[key]

    def _read(self, gres_type: str, features: frozenset[str], partition: str) -> GpuModel:
        model = self._catalogue.recognise((gres_type,))
        if model is None and not self._catalogue.is_vague(gres_type):
            return GpuModel(name=gres_type)
        for evidence in (tuple(sorted(features)), (partition,)):
            more = self._catalogue.recognise(evidence)
            if more and (model is None or more.refines == model.name):
                model = more
        return model or GpuModel(name=UNNAMED)


def _slice_model(profile: MigProfile) -> GpuModel:
    # nvidia-smi names the card, not the slice: there is no pattern to hold it to.
    return GpuModel(name=profile.name, vram_mib=profile.vram_mib, least_mib=profile.vram_mib)
