"""Put strategies of one layout into one native Slurm job, where that is the same thing.

The same thing means: the job can be given nothing that none of its strategies asks for, each of
them could still start wherever it could alone, and the better one is preferred as in a race.
All have as many GPUs a node, so that equal needs a GPU are equal needs a node: `--mem` and
`--cpus-per-task` say the same as `--mem-per-gpu` and `--cpus-per-gpu`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain
from typing import Final

from rv.models.plan import Merged, Strategy
from rv.models.snapshot import Node, Snapshot
from rv.planner.catalogue import mig_profile

_LEAST_MEMORY: Final = 0.8
"""A merged job has the least memory of its strategies; none gets less of its own than this."""

_ONE_FEATURE: Final = re.compile(r"[A-Za-z0-9_.:-]*", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """What Slurm tells nodes apart by: their features, and their GPUs by GRES type."""

    features: frozenset[str]
    gpus: tuple[tuple[str, int], ...]

    @property
    def holds_one_model(self) -> bool:
        """Whether a request without a type can get one kind of GPU only, and no slice."""
        return len(self.gpus) == 1 and not mig_profile(self.gpus[0][0])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ask:
    """What a job asks of a node: GPUs of a type ("" for any), and one of some features."""

    gpu_type: str
    count: int
    features: frozenset[str]

    def reaches(self, kind: _Kind) -> bool:
        """Whether Slurm may give the job a node of this kind."""
        gpus = sum(n for name, n in kind.gpus if self.gpu_type in ("", name))
        return gpus >= self.count and (not self.features or bool(self.features & kind.features))


class Merger:
    """Decides, for one snapshot, which strategies one job can carry."""

    def __init__(self, strategies: Sequence[Strategy], snapshot: Snapshot) -> None:
        self._features = frozenset(strategy.constraint for strategy in strategies)
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._partitions = {partition.name: partition for partition in snapshot.partitions}
        # Slurm looks an association of a partition's own up for one partition of the list only.
        self._apart = frozenset(found.partition for found in snapshot.associations or ())
        self._counts_types = _counts_types(snapshot)
        self._kinds: dict[str, Mapping[_Kind, tuple[str, ...]]] = {}

    def can_join(self, parts: Sequence[Strategy], other: Strategy) -> bool:
        """Whether a job that carries `parts`, best first, may carry a strategy after them too.

        A chain's next segment is the same script again: it goes on where the first one began.
        """
        head = parts[0]
        if head.total or other.total:
            return False
        if _terms(head) != _terms(other) or not self._is_alike(head, other):
            return False
        every = (*parts, other)
        least, most = (pick(s.memory_mib for s in every) for pick in (min, max))
        if least < _LEAST_MEMORY * most or not all(map(_is_plain, every)):
            return False
        return self._keeps_order(parts, other) and self._is_the_same(every)

    def merged(self, parts: Sequence[Strategy]) -> Merged:
        """Return the one job of strategies that may be carried together."""
        form = _form(parts)
        shared = {s.partition for at, s in enumerate(parts) if _is_among(s, parts[:at])}
        homes = (self._home(part) if part.partition in shared else () for part in parts)
        return Merged(form=form, homes=tuple(homes))

    def _is_alike(self, one: Strategy, other: Strategy) -> bool:
        """Whether their partitions give nodes in the same way.

        Their QOS may differ: Slurm checks a job against each when it is submitted, and later
        against that of the partition in which it would start.
        """
        here, there = (self._partitions[s.partition] for s in (one, other))
        return (
            here.exclusive == there.exclusive
            and here.preempt_mode == there.preempt_mode
            and not self._apart & {here.name, there.name}
        )

    def _keeps_order(self, parts: Sequence[Strategy], other: Strategy) -> bool:
        """Whether Slurm prefers the parts as the plan does, where the best could start now.

        It takes a job's partitions by priority, then in the order of its list; within a partition
        it takes any node.
        """
        if not _starts_now(parts[0]):
            return True
        if _is_among(other, parts):
            return not _starts_now(other) and other.cost == parts[0].cost
        least = min(self._priority(part) for part in parts)
        return self._priority(other) <= least

    def _priority(self, strategy: Strategy) -> tuple[int, int]:
        partition = self._partitions[strategy.partition]
        return partition.priority_tier, partition.priority_job_factor

    def _is_the_same(self, parts: Sequence[Strategy]) -> bool:
        """Whether each node that the job may be given is what just one of its parts asks for."""
        form, asked = _form(parts), _ask(parts)
        if self._counts_types and any(part.gres != form.gres for part in parts):
            return False
        by_partition: dict[str, list[Strategy]] = {}
        for part in parts:
            by_partition.setdefault(part.partition, []).append(part)
        for name, here in by_partition.items():
            if len(here) > 1 and form.nodes > 1 and not _told_apart(here, form):
                return False
            for kind in self._kinds_of(name):
                if not asked.reaches(kind):
                    continue
                asking = [part for part in here if _ask([part]).reaches(kind)]
                if len(asking) != 1:
                    return False
                if asking[0].gres != form.gres and not kind.holds_one_model:
                    return False
        return True

    def _home(self, part: Strategy) -> tuple[str, ...]:
        """Name the nodes of its partition that a strategy asks for, lost ones too."""
        ask = _ask([part])
        kinds = self._kinds_of(part.partition)
        return tuple(name for kind, names in kinds.items() if ask.reaches(kind) for name in names)

    def _kinds_of(self, partition: str) -> Mapping[_Kind, tuple[str, ...]]:
        if partition not in self._kinds:
            found: dict[_Kind, list[str]] = {}
            for name in sorted(self._partitions[partition].nodes):
                if name in self._nodes:
                    found.setdefault(self._kind(self._nodes[name]), []).append(name)
            self._kinds[partition] = {kind: tuple(names) for kind, names in found.items()}
        return self._kinds[partition]

    def _kind(self, node: Node) -> _Kind:
        gpus = tuple(sorted((group.type, group.total) for group in node.gpus if group.total))
        # Racks and switches are features too: without them the kinds are few.
        return _Kind(features=node.features & self._features, gpus=gpus)


def _counts_types(snapshot: Snapshot) -> bool:
    """Whether a limit or a price names a GPU type: of a job that names none, it would not hold.

    slurm.schedmd.com/resource_limits.html, "Specific limits over GRES".
    """
    every = (
        *(qos.limits for qos in snapshot.qos),
        *(association.limits for association in snapshot.associations or ()),
        *(account.limits for account in snapshot.accounts),
    )
    counted = (
        name
        for limits in every
        for amounts in (
            limits.per_job,
            limits.least_per_job,
            limits.per_node,
            limits.per_user,
            limits.per_account,
            limits.group,
        )
        for name, _ in amounts
    )
    weighed = (name for partition in snapshot.partitions for name, _ in partition.billing_weights)
    return any(name.lower().startswith("gres/gpu:") for name in chain(counted, weighed))


def _terms(strategy: Strategy) -> tuple[object, ...]:
    """What one job has once, whatever it carries, and one request does not fix for all."""
    return (
        strategy.template,
        strategy.mode,
        strategy.nodes,
        strategy.gpus_per_node,
        strategy.walltime,
        strategy.cpus_per_task,
        strategy.account,
        strategy.qos,
        strategy.exclude_nodes,
        strategy.preemptible,
    )


def _form(parts: Sequence[Strategy]) -> Strategy:
    """Write the one job down as a strategy: its first part, in all the places of the others."""
    head = parts[0]
    gres = {part.gres for part in parts}
    costs = {part.cost for part in parts}
    return replace(
        head,
        id="|".join(part.id for part in parts),
        gpu="|".join(dict.fromkeys(part.gpu for part in parts)),
        partition=",".join(dict.fromkeys(part.partition for part in parts)),
        gres=head.gres if len(gres) == 1 else f"gpu:{head.gpus_per_node}",
        constraint=_constraint(parts),
        memory_mib=min(part.memory_mib for part in parts),
        node_names=tuple(dict.fromkeys(name for part in parts for name in part.node_names)),
        cost=head.cost if len(costs) == 1 else None,
    )


def _constraint(parts: Sequence[Strategy]) -> str:
    features = tuple(dict.fromkeys(part.constraint for part in parts))
    if "" in features:
        return ""
    either = "|".join(features)
    # In brackets Slurm gives all nodes of a job the same one of them.
    return f"[{either}]" if len(features) > 1 and parts[0].nodes > 1 else either


def _ask(parts: Sequence[Strategy]) -> _Ask:
    """Read what strategies, or the one job of them, ask of a node."""
    features = frozenset(part.constraint for part in parts)
    gres = {part.gres for part in parts}
    return _Ask(
        gpu_type=_gpu_type(parts[0].gres) if len(gres) == 1 else "",
        count=parts[0].gpus_per_node,
        features=frozenset() if "" in features else features,
    )


def _gpu_type(gres: str) -> str:
    _, *middle, _ = gres.split(":") if gres else ("", "")
    return ":".join(middle)


def _told_apart(here: Sequence[Strategy], form: Strategy) -> bool:
    """Whether the job's constraint keeps its nodes to one of several strategies of a partition."""
    features = {part.constraint for part in here}
    return bool(form.constraint) and len(features) == len(here)


def _is_plain(strategy: Strategy) -> bool:
    """Whether the constraint is one feature or none: what others mean is Slurm's to say."""
    return bool(_ONE_FEATURE.fullmatch(strategy.constraint))


def _is_among(strategy: Strategy, parts: Sequence[Strategy]) -> bool:
    return any(part.partition == strategy.partition for part in parts)


def _starts_now(strategy: Strategy) -> bool:
    return strategy.estimate.start_in == timedelta(0)
