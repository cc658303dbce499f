"""What the names and GPU types of a request mean on this cluster.

Partitions, accounts, QOS, nodes and features by name; pools by `--type`, `--vram` and `--mig`.
"""

from collections.abc import Iterable, Iterator

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.plan import Exclusion
from rv.models.quantities import short_memory
from rv.models.request import Request
from rv.models.snapshot import Node, Partition, Qos, Reservation, Snapshot
from rv.planner.catalogue import Catalogue, MigProfile, mig_profile, normal
from rv.planner.eligibility import feature_names, parse_constraint
from rv.planner.inventory import Pool

_ANY_SLICE = "mig"


def check_names(request: Request, snapshot: Snapshot) -> None:
    """Raise `RvError(USAGE)` for the first name that the cluster does not have.

    What the snapshot could not read (QOS and accounts without slurmdbd) is not judged.
    """
    if request.gpus < 0:
        hint = "use --gpu 0 or more"
        raise RvError(ErrorKind.USAGE, f"{request.gpus} is no number of GPUs", hint=hint)
    nodes = (*request.exclude_nodes, *request.only_nodes)
    _check("partition", request.partitions, _names(snapshot.partitions))
    if snapshot.qos:
        _check("QOS", (request.qos,), _names(snapshot.qos))
    if snapshot.associations:
        accounts = (association.account for association in snapshot.associations)
        _check("account of yours", (request.account,), accounts)
    _check("node", nodes, _names(snapshot.nodes))
    _check("reservation", request.reservations, _names(snapshot.reservations))
    if request.constraint:
        parse_constraint(request.constraint)
        features = (feature for node in snapshot.nodes for feature in node.features)
        _check("node feature", feature_names(request.constraint), features)


def _names(named: Iterable[Partition | Qos | Node | Reservation]) -> Iterator[str]:
    return (one.name for one in named)


def _check(kind: str, names: tuple[str, ...], existing: Iterable[str]) -> None:
    asked = tuple(filter(None, names))
    present = set(existing) if asked else set()
    for name in asked:
        if name not in present:
            from rv.models.spelling import nearest  # a slip alone needs it

            near = nearest(name, sorted(present))
            nearest_named = f", nearest: {near}" if near else ""
            hint = f"here: {', '.join(sorted(present)[:20])}" if present else ""
            message = f"there is no {kind} {name!r}{nearest_named}"
            raise RvError(ErrorKind.USAGE, message, hint=hint)


def chosen_partitions(request: Request, snapshot: Snapshot) -> tuple[Partition, ...]:
    """Return the partitions the request names, or all of them."""
    names = frozenset(request.partitions)
    return tuple(part for part in snapshot.partitions if not names or part.name in names)


@dataclass(frozen=True, kw_only=True, slots=True)
class _GpuTypes:
    """What the request asks for: models by name, slices by name, any model, any slice."""

    models: frozenset[str]
    slices: frozenset[str]
    any_model: bool
    any_slice: bool

    def includes(self, pool: Pool) -> bool:
        """Whether a pool has a model, or slices, that are asked for."""
        if pool.mig:
            return self.any_slice or pool.mig.name in self.slices
        return self.any_model or pool.model.name in self.models


def select_pools(
    pools: tuple[Pool, ...], request: Request, catalogue: Catalogue
) -> tuple[tuple[Pool, ...], tuple[Exclusion, ...]]:
    """Return the pools that the request means, and those it would mean but for a stated reason.

    Raises `RvError(USAGE)` for words that name nothing, `RvError(INFEASIBLE)` for those that name
    nothing of this cluster.
    """
    types = _gpu_types(pools, request, catalogue)
    _check_slices(pools, request, types)
    asked, others = asked_by_name(pools, request)
    slice_pools = [pool for pool in asked if pool.mig]
    gpus = [pool for pool in asked if not pool.mig and types.includes(pool)]
    whole, too_small = _with_memory(gpus, request)
    slices, unused = _smallest_slices(list(filter(types.includes, slice_pools)), request, types)
    if not request.types and not types.any_slice:
        unused += _excluded(slice_pools, "MIG slices are used only with --mig")
    meant = filter(types.includes, others)
    return (*whole, *slices), (*none_asked(meant), *too_small, *unused)


def asked_by_name(pools: Iterable[Pool], request: Request) -> tuple[list[Pool], list[Pool]]:
    """Return the pools with a node that the request names, all where it names none; and the others.

    What else there is against the others is no answer to the request.
    """
    names = frozenset(request.only_nodes)
    asked: list[Pool] = []
    others: list[Pool] = []
    for pool in pools:
        is_asked = not names or any(slot.node.name in names for slot in pool.slots)
        (asked if is_asked else others).append(pool)
    return asked, others


def none_asked(pools: Iterable[Pool]) -> Iterator[Exclusion]:
    """Say of pools that the request names none of their nodes."""
    for pool in pools:
        reason = "it has none of the nodes asked for"
        yield Exclusion(what=pool.label, reason=reason, is_aside=True)


def _excluded(pools: Iterable[Pool], reason: str) -> Iterator[Exclusion]:
    for pool in pools:
        yield Exclusion(what=pool.label, reason=reason)


def _gpu_types(pools: tuple[Pool, ...], request: Request, catalogue: Catalogue) -> _GpuTypes:
    models: set[str] = set()
    slices: set[str] = set()
    any_slice = request.mig
    for word in request.types:
        profile = mig_profile(word)
        if profile:
            slices.add(_present_slice(pools, profile))
        elif word.strip().lower() == _ANY_SLICE:
            any_slice = True
        else:
            models.update(_present_models(pools, word, catalogue))
    if models and request.mig:
        raise RvError(
            ErrorKind.USAGE,
            f"--mig and --type {','.join(request.types)} exclude each other",
            hint="leave out --mig, or name a slice such as --type 1g.10gb",
        )
    return _GpuTypes(
        models=frozenset(models),
        slices=frozenset(slices),
        any_model=not request.types and not request.mig,
        any_slice=any_slice and not slices,
    )


def _present_models(pools: tuple[Pool, ...], word: str, catalogue: Catalogue) -> list[str]:
    """Return the models of a word that are there: the best one for a model's own name, else all."""
    present = {pool.model.name for pool in pools if not pool.mig}
    spelled = {normal(name): name for name in present}
    meanings = catalogue.meanings(word)
    names = [spelled[name] for name in (*meanings, normal(word)) if name in spelled]
    if names:
        return names[:1] if normal(word) in catalogue.models else names
    if not meanings:
        raise _unknown_type(word, present, catalogue)
    raise _absent_model(meanings[0], pools)


def _absent_model(name: str, pools: tuple[Pool, ...]) -> RvError:
    types = ", ".join(sorted({pool.model.name for pool in pools}))
    return RvError(
        ErrorKind.INFEASIBLE,
        f"no {name} among the GPUs to choose from",
        hint=f"types here: {types}" if types else "there are no GPUs in these partitions",
    )


def _unknown_type(word: str, present: set[str], catalogue: Catalogue) -> RvError:
    served = [alias for alias in catalogue.aliases if present & set(catalogue.meanings(alias))]
    every = (*catalogue.aliases, *catalogue.models)
    from rv.models.spelling import nearest  # a slip alone needs it

    near = nearest(normal(word), (*present, *served)) or nearest(normal(word), every)
    named = f", nearest: {near}" if near else ""
    hint = f"types here: {', '.join(sorted(present))}" if present else ""
    return RvError(ErrorKind.USAGE, f"unknown GPU type {word!r}{named}", hint=hint)


def _present_slice(pools: tuple[Pool, ...], profile: MigProfile) -> str:
    present = sorted({pool.mig.name for pool in pools if pool.mig})
    if profile.name in present:
        return profile.name
    raise RvError(
        ErrorKind.INFEASIBLE,
        f"no MIG slice {profile.name} among the GPUs to choose from",
        hint=f"slices here: {', '.join(present)}" if present else "there are no MIG slices here",
    )


def _check_slices(pools: tuple[Pool, ...], request: Request, types: _GpuTypes) -> None:
    """Raise where only slices are asked for, and they cannot be had."""
    if types.models or not (types.slices or types.any_slice):
        return
    if request.gpus != 1:
        raise RvError(
            ErrorKind.USAGE,
            f"a job gets one MIG slice, {request.gpus} asked",
            hint="use --gpu 1, or whole GPUs without --mig",
        )
    if not any(pool.mig for pool in pools):
        names = sorted({pool.model.name for pool in pools})
        raise RvError(
            ErrorKind.INFEASIBLE,
            "there are no MIG slices among the GPUs to choose from",
            hint=f"types here: {', '.join(names)}",
        )


def _with_memory(pools: Iterable[Pool], request: Request) -> tuple[list[Pool], list[Exclusion]]:
    """Return the pools that have the memory asked for, and the others."""
    asked = request.min_vram_mib
    chosen: list[Pool] = []
    excluded: list[Exclusion] = []
    for pool in pools:
        if asked is None or pool.model.has_vram(asked):
            chosen.append(pool)
            continue
        vram = pool.model.vram_mib
        has = f"has {short_memory(vram)} of memory" if vram else "its memory is not known"
        excluded.append(Exclusion(what=pool.label, reason=f"{has}, {short_memory(asked)} asked"))
    return chosen, excluded


def _smallest_slices(
    pools: list[Pool], request: Request, types: _GpuTypes
) -> tuple[list[Pool], list[Exclusion]]:
    """Keep the smallest slice that has the memory asked for, unless slices were named."""
    if request.gpus != 1:
        return [], list(_excluded(pools, f"a job gets one MIG slice, {request.gpus} asked"))
    large_enough, excluded = _with_memory(pools, request)
    if types.slices or not large_enough:
        return large_enough, excluded
    usable = [pool for pool in large_enough if pool.usable] or large_enough
    best = min(usable, key=_slice_size)
    smallest: list[Pool] = []
    larger: list[Pool] = []
    for pool in large_enough:
        (smallest if pool.mig == best.mig else larger).append(pool)
    excluded += _excluded(larger, f"the smaller slice {best.model.name} is enough")
    return smallest, excluded


def _slice_size(pool: Pool) -> tuple[int, int]:
    return (pool.mig.memory_gb, pool.mig.slices) if pool.mig else (0, 0)
