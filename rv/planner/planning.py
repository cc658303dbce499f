"""From a request and a snapshot to a plan: enumerate, exclude, estimate, price, rank, compile."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rv.errors import ErrorKind, RvError
from rv.models.plan import Exclusion, Plan, Strategy
from rv.models.request import Request
from rv.models.site import Site
from rv.models.snapshot import Snapshot
from rv.planner.access import check_not_skipped
from rv.planner.catalogue import Catalogue
from rv.planner.cost import Tariff, unknown_prices
from rv.planner.eligibility import avoided, choices, offer
from rv.planner.families import Family, Serves
from rv.planner.inventory import Pool, constrained, cpu_pool, discover, told_apart
from rv.planner.layouts import Layout, Spread, layouts, spread
from rv.planner.limits import Infeasible, Owner, unseen_notes
from rv.planner.merge import Merger
from rv.planner.selection import check_names, chosen_partitions, select
from rv.planner.strategies import Builder, Built, affordable
from rv.planner.submissions import Compiled, capped, compile_jobs, queues, rank

_NO_SITE: Final = Site()


@dataclass(slots=True)
class _Draft:
    """What has been found so far: the one mutable thing of the planner, never seen outside."""

    strategies: list[Strategy] = field(default_factory=list)
    excluded: list[Exclusion] = field(default_factory=list)
    owners: dict[str, tuple[Owner, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, built: Built) -> None:
        self.strategies.extend(built.strategies)
        self.owners.update((strategy.id, built.order) for strategy in built.strategies)
        self.notes.extend(built.notes)
        for what, unfit in built.refused:
            self.leave_out(what, unfit.reason, by_limit=unfit.by_limit)

    def leave_out(self, what: str, reason: str, *, by_limit: bool = False) -> None:
        self.excluded.append(Exclusion(what=what, reason=reason, by_limit=by_limit))


def plan(
    request: Request,
    snapshot: Snapshot,
    catalogue: Catalogue,
    families: Sequence[Family],
    site: Site = _NO_SITE,
) -> Plan:
    """Return every strategy that can serve the request, ranked, and every reason against others.

    `site` is what the configuration files say: prices, ceilings, partitions to leave out.
    A plan without strategies is returned, not raised: see `require_feasible`. Raises
    `RvError(USAGE)` for names that the cluster or the catalogue does not have, and
    `RvError(INFEASIBLE)` for GPU types that are not among this cluster's.
    """
    check_names(request, snapshot)
    failing = avoided(request, snapshot, site)
    left_out = tuple(exclusion.what for exclusion in failing)
    request = replace(request, exclude_nodes=(*request.exclude_nodes, *left_out))
    enabled = [family for family in families if family.enabled]
    draft = _Draft()
    pools = _pools(request, snapshot, catalogue, draft, left_out)
    draft.excluded.extend(failing)
    multi = [family for family in enabled if family.serves is Serves.MULTI_NODE]
    wanted = spread(request, min((family.min_gpus_per_node for family in multi), default=2))
    draft.notes.extend((*wanted.notes, *unseen_notes(snapshot)))
    tariff = Tariff(prices=site.prices, config=snapshot.config)
    builder = Builder(request, snapshot, _checkpoint(enabled), tariff)
    for pool in pools:
        _plan_pool(pool, wanted, enabled, builder, draft, request, site)
    draft.notes.extend(unknown_prices(site, snapshot, catalogue))
    within, note = capped(request, site)
    draft.notes.extend(note)
    quality = {pool.model.name: pool.model.rank for pool in pools}
    ranked = rank(draft.strategies, quality, queues(snapshot.partitions), draft.owners)
    merger = Merger(ranked, snapshot)
    compiled = compile_jobs(ranked, within, draft.owners, builder.usage, merger)
    return _finished(draft, ranked, compiled, site.unit)


def _finished(
    draft: _Draft, ranked: tuple[Strategy, ...], compiled: Compiled, cost_unit: str
) -> Plan:
    return Plan(
        strategies=ranked,
        excluded=tuple(sorted(draft.excluded, key=lambda found: (found.what, found.reason))),
        submissions=compiled.submissions,
        spares=compiled.spares,
        waves=compiled.waves,
        notes=tuple(dict.fromkeys(draft.notes)),
        job_notes=compiled.notes,
        cost_unit=cost_unit,
    )


def _pools(
    request: Request,
    snapshot: Snapshot,
    catalogue: Catalogue,
    draft: _Draft,
    failing: Sequence[str],
) -> tuple[Pool, ...]:
    partitions = chosen_partitions(request, snapshot)
    nodes = {node.name: node for node in snapshot.nodes}
    offered = offer(request, snapshot, failing)
    if not request.gpus:
        plain = [cpu_pool(p, nodes, offered, gpu_nodes=False) for p in partitions]
        every = [cpu_pool(p, nodes, offered, gpu_nodes=True) for p in partitions]
        pools = [pool for pool in plain if pool.slots] or [pool for pool in every if pool.slots]
        return _constrained(pools, request.constraint, draft)
    found, mixed = told_apart(discover(partitions, nodes, catalogue, offered))
    for pool in mixed:
        draft.leave_out(pool.label, "no feature tells its GPUs from the MIG slices beside them")
    served = {pool.partition.name for pool in (*found, *mixed)}
    for name in request.partitions:
        if name not in served:
            draft.leave_out(name, "the partition has no GPUs")
    chosen, excluded = select(found, request, catalogue)
    draft.excluded.extend(excluded)
    return _constrained(chosen, request.constraint, draft)


def _constrained(pools: Iterable[Pool], constraint: str, draft: _Draft) -> tuple[Pool, ...]:
    wanted = choices(constraint)
    found: list[Pool] = []
    for pool in pools:
        left = constrained(pool, wanted)
        found.extend(left)
        if not left:
            draft.leave_out(pool.label, f"no node there meets the constraint {constraint}")
    return tuple(found)


def _plan_pool(
    pool: Pool,
    wanted: Spread,
    families: Sequence[Family],
    builder: Builder,
    draft: _Draft,
    request: Request,
    site: Site,
) -> None:
    try:
        check_not_skipped(pool.partition, request, site)
        builder.access.check_partition(pool.partition, request)
        charges = builder.access.charges(pool.partition, request)
    except Infeasible as unfit:
        draft.leave_out(pool.label, unfit.reason, by_limit=unfit.by_limit)
        return
    possible, reasons = layouts(pool, wanted)
    refused = [(layout, Infeasible(reason)) for layout, reason in reasons]
    before = len(draft.strategies)
    for layout in possible:
        serving = [family for family in families if family.serves is _serves(pool, layout)]
        if not serving:
            kind = _serves(pool, layout).value
            refused.append((str(layout), Infeasible(f"no strategy family for {kind} is enabled")))
        for index, family in enumerate(serving):
            suffix = f"/{family.name}" if index else ""
            try:
                built = builder.build(pool, layout, family, charges, suffix)
                draft.add(affordable(built, request, site.unit))
            except Infeasible as unfit:
                refused.append((str(layout), unfit))
    _leave_out(pool, refused, draft, whole=len(draft.strategies) == before)


def _checkpoint(families: Sequence[Family]) -> Family | None:
    return next((family for family in families if family.serves is Serves.CHECKPOINT), None)


def _serves(pool: Pool, layout: Layout) -> Serves:
    if pool.mig:
        return Serves.MIG
    return Serves.SINGLE_NODE if layout.nodes == 1 else Serves.MULTI_NODE


def _leave_out(
    pool: Pool, refused: list[tuple[str, Infeasible]], draft: _Draft, *, whole: bool
) -> None:
    """Name the pool once where all its layouts fail for one reason, else layout by layout."""
    if whole and len({unfit.reason for _, unfit in refused}) == 1:
        unfit = refused[0][1]
        draft.leave_out(pool.label, unfit.reason, by_limit=unfit.by_limit)
        return
    for layout, unfit in refused:
        what = f"{pool.model.name}/{layout}/{pool.place}" if layout else pool.label
        draft.leave_out(what, unfit.reason, by_limit=unfit.by_limit)


_REASONS_SHOWN: Final = 3


def require_feasible(plan: Plan, request: Request) -> None:
    """Raise where the plan has no job to submit.

    `RvError(LIMIT)` where a limit of the site is in the way, `RvError(INFEASIBLE)` where the
    machines are not there. The hint lists some of the other reasons.
    """
    if plan.submissions:
        return
    if plan.strategies:
        reason = plan.job_notes[-1] if plan.job_notes else "no job may be submitted"
        raise RvError(
            ErrorKind.LIMIT,
            f"nothing can be submitted now: {reason}",
            hint="wait until some of your jobs have ended, or stop them",
        )
    require_strategies(plan, request)


def require_strategies(plan: Plan, request: Request) -> None:
    """Raise the same where the plan has no strategy at all, whether or not it may be sent now."""
    if plan.strategies:
        return
    reasons = _best_first(plan.excluded)
    if not reasons:
        nothing = "nodes" if not request.gpus else "GPUs"
        hint = "--gpu 0 --cpus 8 asks for a job without any" if request.gpus else ""
        raise RvError(ErrorKind.INFEASIBLE, f"this cluster has no {nothing} to offer", hint=hint)
    first, *others = reasons
    raise RvError(
        ErrorKind.LIMIT if first.by_limit else ErrorKind.INFEASIBLE,
        f"nothing here can serve {_wish(request)}: {_said(first)}",
        hint="; ".join(map(_said, others[:_REASONS_SHOWN])) or "--dry-run shows what there is",
    )


def _best_first(excluded: Iterable[Exclusion]) -> list[Exclusion]:
    """Order reasons by use to the reader: limits, which can be asked around, come first."""
    seen: dict[str, Exclusion] = {}
    for found in excluded:
        seen.setdefault(found.reason, found)
    return sorted(seen.values(), key=lambda found: (not found.by_limit, "--mig" in found.reason))


def _said(found: Exclusion) -> str:
    return f"{found.what}: {found.reason}"


def _wish(request: Request) -> str:
    if not request.gpus:
        return "a job without GPUs"
    if request.mig:
        return "a MIG slice"
    kind = f" {' or '.join(request.types)}" if request.types else ""
    return f"{request.gpus}{kind} {'GPU' if request.gpus == 1 else 'GPUs'}"
