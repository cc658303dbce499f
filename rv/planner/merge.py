"""Put strategies of one layout into one native Slurm job, where that is the same thing.

The same thing means: the job can be given nothing that none of its strategies asks for, each of
them could still start wherever it could alone, and the better one is preferred as in a race.
All have as many GPUs a node, so that equal needs a GPU are equal needs a node: `--mem` and
`--cpus-per-task` say the same as `--mem-per-gpu` and `--cpus-per-gpu`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from operator import attrgetter
from typing import Final

from rv.dataclass import dataclass
from rv.models.plan import Merged, Strategy
from rv.models.snapshot import Node, Snapshot
from rv.planner.catalogue import mig_profile

_LEAST_MEMORY_SHARE: Final = 0.8
"""A merged job has the least memory of its strategies; none gets less of its own than this."""

_ONE_FEATURE: Final = re.compile(r"[A-Za-z0-9_.:-]*", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class _NodeType:
    """What Slurm distinguishes nodes by: their features, and their GPUs by GRES type."""

    features: frozenset[str]
    gpus: tuple[tuple[str, int], ...]

    @property
    def has_one_model(self) -> bool:
        """Whether a request without a type can get one kind of GPU only, and no slice."""
        return len(self.gpus) == 1 and not mig_profile(self.gpus[0][0])


@dataclass(frozen=True, kw_only=True, slots=True)
class _NodeRequest:
    """What a job asks of a node: GPUs of a type ("" for any), and one of some features."""

    gpu_type: str
    count: int
    features: frozenset[str]

    def allows(self, node_type: _NodeType) -> bool:
        """Whether Slurm may give the job a node of this type."""
        gpus = sum(count for name, count in node_type.gpus if self.gpu_type in ("", name))
        if gpus < self.count:
            return False
        return not self.features or bool(self.features & node_type.features)


class Merger:
    """Decides, for one snapshot, which strategies one job can carry."""

    def __init__(self, strategies: Sequence[Strategy], snapshot: Snapshot) -> None:
        self._features = frozenset(strategy.constraint for strategy in strategies)
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._partitions = {partition.name: partition for partition in snapshot.partitions}
        # Slurm looks an association of a partition's own up for one partition of the list only.
        self._with_own_association = frozenset(one.partition for one in snapshot.associations or ())
        self._types_are_counted = any(
            name.lower().startswith("gres/gpu:") for name, _ in _counted_amounts(snapshot)
        )
        self._node_types: dict[str, Mapping[_NodeType, tuple[str, ...]]] = {}

    def can_join(self, parts: Sequence[Strategy], other: Strategy) -> bool:
        """Whether a job that carries `parts`, best first, may carry a strategy after them too.

        A chain's next segment is the same script again: it goes on where the first one began.
        """
        head = parts[0]
        if head.total or other.total or _COMMON_TERMS(head) != _COMMON_TERMS(other):
            return False
        if not self._partitions_are_alike(head, other):
            return False
        every = (*parts, other)
        amounts = [part.memory_mib for part in every]
        if min(amounts) < _LEAST_MEMORY_SHARE * max(amounts):
            return False
        # Only Slurm knows what constraints of more than one feature mean.
        if not all(_ONE_FEATURE.fullmatch(part.constraint) for part in every):
            return False
        return self._keeps_order(parts, other) and self._is_the_same(every)

    def merged(self, parts: Sequence[Strategy]) -> Merged:
        """Return the one job of strategies that may be carried together."""
        partitions = [part.partition for part in parts]
        homes = (self._home(part) if partitions.count(part.partition) > 1 else () for part in parts)
        return Merged(form=_form(parts), homes=tuple(homes))

    def _partitions_are_alike(self, one: Strategy, other: Strategy) -> bool:
        """Whether their partitions give nodes in the same way.

        Their QOS may differ: Slurm checks a job against each when it is submitted, and later
        against that of the partition in which it would start.
        """
        here, there = (self._partitions[s.partition] for s in (one, other))
        return (
            here.exclusive == there.exclusive
            and here.preempt_mode == there.preempt_mode
            and not self._with_own_association & {here.name, there.name}
        )

    def _keeps_order(self, parts: Sequence[Strategy], other: Strategy) -> bool:
        """Whether Slurm prefers the parts as the plan does, where the best could start now.

        It takes a job's partitions by priority, then in the order of its list; within a partition
        it takes any node.
        """
        if not _starts_now(parts[0]):
            return True
        if any(part.partition == other.partition for part in parts):
            return not _starts_now(other) and other.cost == parts[0].cost
        least = min(self._priority(part) for part in parts)
        return self._priority(other) <= least

    def _priority(self, strategy: Strategy) -> tuple[int, int]:
        partition = self._partitions[strategy.partition]
        return partition.priority_tier, partition.priority_job_factor

    def _is_the_same(self, parts: Sequence[Strategy]) -> bool:
        """Whether each node that the job may be given is what just one of its parts asks for."""
        form, asked = _form(parts), _node_request(parts)
        if self._types_are_counted and any(part.gres != form.gres for part in parts):
            return False
        for name in {part.partition for part in parts}:
            here = [part for part in parts if part.partition == name]
            node_types = list(filter(asked.allows, self._types_in(name)))
            if not _nodes_are_of_one(here, node_types, form):
                return False
        return True

    def _home(self, part: Strategy) -> tuple[str, ...]:
        """Return the nodes of its partition that a strategy asks for, unusable ones too."""
        asked = _node_request([part])
        types = self._types_in(part.partition)
        return tuple(
            name for node_type, names in types.items() if asked.allows(node_type) for name in names
        )

    def _types_in(self, partition: str) -> Mapping[_NodeType, tuple[str, ...]]:
        """Return the node types of a partition, each with the names of its nodes."""
        if partition not in self._node_types:
            types: dict[_NodeType, list[str]] = {}
            for name in sorted(self._partitions[partition].nodes):
                if name in self._nodes:
                    types.setdefault(self._type_of(self._nodes[name]), []).append(name)
            self._node_types[partition] = {one: tuple(names) for one, names in types.items()}
        return self._node_types[partition]

    def _type_of(self, node: Node) -> _NodeType:
        gpus = tuple(sorted((group.type, group.total) for group in node.gpus if group.total))
        # Racks and switches are features too: without them the types are few.
        return _NodeType(features=node.features & self._features, gpus=gpus)


def _nodes_are_of_one(
    here: Sequence[Strategy], node_types: Sequence[_NodeType], form: Strategy
) -> bool:
    """Whether a job gets all its nodes in a partition from just one of the strategies there."""
    if form.nodes > 1 and len(here) > 1:
        features = {part.constraint for part in here}
        if not form.constraint or len(features) < len(here):
            return False
    return all(_is_of_one(node_type, here, form) for node_type in node_types)


def _is_of_one(node_type: _NodeType, here: Sequence[Strategy], form: Strategy) -> bool:
    """Whether a node of this type is what just one strategy asks for."""
    asking = [part for part in here if _node_request([part]).allows(node_type)]
    if len(asking) != 1:
        return False
    return asking[0].gres == form.gres or node_type.has_one_model


def _counted_amounts(snapshot: Snapshot) -> Iterator[tuple[str, float]]:
    """Yield the TRES that limits and prices name, with the limit or price.

    A job that names no GPU type is not held to a limit of one (slurm.schedmd.com/
    resource_limits.html, "Specific limits over GRES").
    """
    for partition in snapshot.partitions:
        yield from partition.billing_weights
    holders = (snapshot.qos, snapshot.associations or (), snapshot.accounts)
    for limits in (holder.limits for group in holders for holder in group):
        yield from (*limits.per_job, *limits.least_per_job, *limits.per_node)
        yield from (*limits.per_user, *limits.per_account, *limits.group)


_COMMON_TERMS: Final = attrgetter(
    "template", "mode", "nodes", "gpus_per_node", "walltime", "cpus_per_task", "account", "qos",
    "exclude_nodes", "preemptible",
)  # fmt: skip
"""What one job has once, whatever it carries, and one request does not fix for all."""


def _form(parts: Sequence[Strategy]) -> Strategy:
    """Write the one job as a strategy: its first part, in all the places of the others."""
    head = parts[0]
    same_gres = len({part.gres for part in parts}) == 1
    same_cost = len({part.cost for part in parts}) == 1
    return replace(
        head,
        id="|".join(part.id for part in parts),
        gpu="|".join(dict.fromkeys(part.gpu for part in parts)),
        partition=",".join(dict.fromkeys(part.partition for part in parts)),
        gres=head.gres if same_gres else f"gpu:{head.gpus_per_node}",
        constraint=_constraint(parts),
        memory_mib=min(part.memory_mib for part in parts),
        node_names=tuple(dict.fromkeys(chain.from_iterable(part.node_names for part in parts))),
        cost=head.cost if same_cost else None,
    )


def _constraint(parts: Sequence[Strategy]) -> str:
    features = tuple(dict.fromkeys(part.constraint for part in parts))
    if "" in features:
        return ""
    either = "|".join(features)
    # In brackets Slurm gives all nodes of a job the same one of them.
    return f"[{either}]" if len(features) > 1 and parts[0].nodes > 1 else either


def _node_request(parts: Sequence[Strategy]) -> _NodeRequest:
    """Return what strategies, or the one job of them, ask of a node."""
    features = frozenset(part.constraint for part in parts)
    same_gres = len({part.gres for part in parts}) == 1
    return _NodeRequest(
        gpu_type=_gpu_type(parts[0].gres) if same_gres else "",
        count=parts[0].gpus_per_node,
        features=frozenset() if "" in features else features,
    )


def _gpu_type(gres: str) -> str:
    _, *middle, _ = gres.split(":") if gres else ("", "")
    return ":".join(middle)


def _starts_now(strategy: Strategy) -> bool:
    return strategy.estimate.start_in == timedelta(0)
