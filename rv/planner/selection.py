"""What the names and GPU types of a request mean on this cluster."""

from collections.abc import Iterable
from dataclasses import dataclass

from rv.errors import ErrorKind, RvError
from rv.models.plan import Exclusion
from rv.models.quantities import short_memory
from rv.models.request import Request
from rv.models.snapshot import Partition, Snapshot
from rv.planner.catalogue import Catalogue, MigProfile, mig_profile, normal
from rv.planner.documents import nearest
from rv.planner.eligibility import choices, feature_names
from rv.planner.inventory import Pool


def check_names(request: Request, snapshot: Snapshot) -> None:
    """Raise `RvError(USAGE)` for the first name that the cluster does not have.

    What the snapshot could not read (QOS and accounts without slurmdbd) is not judged.
    """
    if request.gpus < 0:
        raise RvError(
            ErrorKind.USAGE, f"{request.gpus} is no number of GPUs", hint="use --gpu 0 or more"
        )
    for name in request.partitions:
        _check("partition", name, (partition.name for partition in snapshot.partitions))
    if request.qos and snapshot.qos:
        _check("QOS", request.qos, (qos.name for qos in snapshot.qos))
    if request.account and snapshot.associations:
        mine = (association.account for association in snapshot.associations)
        _check("account of yours", request.account, mine)
    named = (*request.exclude_nodes, *request.only_nodes)
    nodes = {node.name for node in snapshot.nodes} if named else set()
    for name in named:
        _check("node", name, nodes)
    for name in request.reservations:
        _check("reservation", name, (r.name for r in snapshot.reservations))
    if request.constraint:
        choices(request.constraint)
        known = frozenset(feature for node in snapshot.nodes for feature in node.features)
        for name in feature_names(request.constraint):
            _check("node feature", name, known)


def chosen_partitions(request: Request, snapshot: Snapshot) -> tuple[Partition, ...]:
    """Return the partitions the request names, or all of them."""
    wanted = frozenset(request.partitions)
    return tuple(p for p in snapshot.partitions if not wanted or p.name in wanted)


def _check(kind: str, name: str, known: Iterable[str]) -> None:
    names = sorted(set(known))
    if name in names:
        return
    near = nearest(name, names)
    named = f", nearest: {near}" if near else ""
    hint = f"here: {', '.join(names[:20])}" if names else ""
    raise RvError(ErrorKind.USAGE, f"there is no {kind} {name!r}{named}", hint=hint)


_ANY_SLICE = "mig"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    """What the words ask for: models by name, slices by name, any model, any slice."""

    models: frozenset[str]
    slices: frozenset[str]
    any_model: bool
    any_slice: bool


def select(
    pools: tuple[Pool, ...], request: Request, catalogue: Catalogue
) -> tuple[tuple[Pool, ...], tuple[Exclusion, ...]]:
    """Return the pools that the request means, and those it would mean but for a stated reason.

    Raises `RvError(USAGE)` for words that name nothing, `RvError(INFEASIBLE)` for those that name
    nothing of this cluster.
    """
    wanted = _wanted(pools, request, catalogue)
    _check_slices(pools, request, wanted)
    whole = [p for p in pools if not p.mig and (wanted.any_model or p.model.name in wanted.models)]
    slices = [p for p in pools if p.mig and _slice_wanted(p.mig, wanted)]
    chosen, excluded = _by_memory(whole, request)
    picked, left = _smallest(slices, request, wanted)
    if not request.types and not wanted.any_slice:
        reason = "MIG slices are used only with --mig"
        left += [Exclusion(what=p.label, reason=reason) for p in pools if p.mig]
    return (*chosen, *picked), (*excluded, *left)


def names_of(pools: Iterable[Pool]) -> tuple[str, ...]:
    """Return the names of the models and slices in the pools, sorted, each once."""
    return tuple(sorted({pool.model.name for pool in pools}))


def _wanted(pools: tuple[Pool, ...], request: Request, catalogue: Catalogue) -> _Wanted:
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
            models.add(_present_model(pools, word, catalogue))
    if models and request.mig:
        raise RvError(
            ErrorKind.USAGE,
            f"--mig and --type {','.join(request.types)} exclude each other",
            hint="leave out --mig, or name a slice such as --type 1g.10gb",
        )
    return _Wanted(
        models=frozenset(models),
        slices=frozenset(slices),
        any_model=not request.types and not request.mig,
        any_slice=any_slice and not slices,
    )


def _present_model(pools: tuple[Pool, ...], word: str, catalogue: Catalogue) -> str:
    here = {pool.model.name for pool in pools if not pool.mig}
    spelled = {normal(name): name for name in here}
    meanings = catalogue.meanings(word)
    for name in (*meanings, normal(word)):
        if name in spelled:
            return spelled[name]
    if not meanings:
        _unknown(word, here, catalogue)
    present = ", ".join(names_of(pools))
    raise RvError(
        ErrorKind.INFEASIBLE,
        f"no {meanings[0]} among the GPUs to choose from",
        hint=f"types here: {present}" if present else "there are no GPUs in these partitions",
    )


def _unknown(word: str, here: set[str], catalogue: Catalogue) -> None:
    served = [alias for alias in catalogue.aliases if here & set(catalogue.meanings(alias))]
    every = (*catalogue.aliases, *catalogue.models)
    near = nearest(normal(word), (*here, *served)) or nearest(normal(word), every)
    named = f", nearest: {near}" if near else ""
    raise RvError(
        ErrorKind.USAGE,
        f"unknown GPU type {word!r}{named}",
        hint=f"types here: {', '.join(sorted(here))}" if here else "",
    )


def _present_slice(pools: tuple[Pool, ...], profile: MigProfile) -> str:
    here = sorted({pool.mig.name for pool in pools if pool.mig})
    if profile.name not in here:
        raise RvError(
            ErrorKind.INFEASIBLE,
            f"no MIG slice {profile.name} among the GPUs to choose from",
            hint=f"slices here: {', '.join(here)}" if here else "there are no MIG slices here",
        )
    return profile.name


def _check_slices(pools: tuple[Pool, ...], request: Request, wanted: _Wanted) -> None:
    if not (wanted.slices or wanted.any_slice) or wanted.models:
        return
    if request.gpus != 1:
        raise RvError(
            ErrorKind.USAGE,
            f"a job gets one MIG slice, {request.gpus} asked",
            hint="use --gpu 1, or whole GPUs without --mig",
        )
    if not any(pool.mig for pool in pools):
        raise RvError(
            ErrorKind.INFEASIBLE,
            "there are no MIG slices among the GPUs to choose from",
            hint=f"types here: {', '.join(names_of(pools))}",
        )


def _slice_wanted(profile: MigProfile, wanted: _Wanted) -> bool:
    return wanted.any_slice or profile.name in wanted.slices


def _by_memory(pools: list[Pool], request: Request) -> tuple[list[Pool], list[Exclusion]]:
    asked = request.min_vram_mib
    if asked is None:
        return pools, []
    chosen = [pool for pool in pools if pool.model.has_vram(asked)]
    excluded = []
    for pool in pools:
        if not pool.model.has_vram(asked):
            vram = pool.model.vram_mib
            has = f"has {short_memory(vram)} of memory" if vram else "its memory is not known"
            excluded.append(
                Exclusion(what=pool.label, reason=f"{has}, {short_memory(asked)} asked")
            )
    return chosen, excluded


def _smallest(
    pools: list[Pool], request: Request, wanted: _Wanted
) -> tuple[list[Pool], list[Exclusion]]:
    """Keep the smallest slice that has the memory asked for, unless slices were named."""
    if request.gpus != 1:
        reason = f"a job gets one MIG slice, {request.gpus} asked"
        return [], [Exclusion(what=pool.label, reason=reason) for pool in pools]
    fitting, excluded = _by_memory(pools, request)
    if wanted.slices or not fitting:
        return fitting, excluded
    usable = [pool for pool in fitting if pool.usable] or fitting
    best = min(_size(pool) for pool in usable)
    name = next(pool.model.name for pool in usable if _size(pool) == best)
    excluded += [
        Exclusion(what=pool.label, reason=f"the smaller slice {name} is enough")
        for pool in fitting
        if _size(pool) != best
    ]
    return [pool for pool in fitting if _size(pool) == best], excluded


def _size(pool: Pool) -> tuple[int, int]:
    return (pool.mig.memory_gb, pool.mig.slices) if pool.mig else (0, 0)
