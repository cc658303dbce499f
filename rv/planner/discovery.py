"""Find the GPU models of a cluster: from GRES types, then node features, then partition names."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from rv.models.snapshot import GpuGroup, Node, Partition
from rv.planner.catalogue import Catalogue, GpuModel, MigProfile, mig_profile
from rv.planner.nodes import ASLEEP, Offer
from rv.planner.pools import Pool, Slot

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
