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
from rv.planner.eligibility import failing_nodes, node_filter, parse_constraint
from rv.planner.families import Family, Serves
from rv.planner.inventory import Pool, constrained, cpu_pools, gpu_pools
from rv.planner.layouts import Layout, LayoutRules, layout_rules, layouts
from rv.planner.limits import Infeasible, Sources, hidden_jobs_notes
from rv.planner.merge import Merger
from rv.planner.selection import check_names, chosen_partitions, select_pools
from rv.planner.strategies import LayoutStrategies, StrategyFactory, within_max_cost
from rv.planner.submissions import compile_jobs, partition_priorities, rank, within_max_fanout

_NO_SITE: Final = Site()
_REASONS_SHOWN: Final = 3


def plan(
    request: Request,
    snapshot: Snapshot,
    catalogue: Catalogue,
    families: Sequence[Family],
    site: Site = _NO_SITE,
) -> Plan:
    """Return every strategy that can serve the request, ranked, and every reason against others.

    `site` is what the configuration files say: prices, ceilings, partitions to skip.
    A plan without strategies is returned, not raised: see `require_feasible`. Raises
    `RvError(USAGE)` for names that the cluster or the catalogue does not have, and
    `RvError(INFEASIBLE)` for GPU types that are not among this cluster's.
    """
    check_names(request, snapshot)
    failing = failing_nodes(request, snapshot, site)
    names = tuple(exclusion.what for exclusion in failing)
    request = replace(request, exclude_nodes=(*request.exclude_nodes, *names))
    considered = _Considered()
    pools = _pools(request, snapshot, catalogue, considered, names)
    considered.excluded.extend(failing)
    search = _Search(request, snapshot, families, site, considered)
    considered.notes.extend((*search.rules.notes, *hidden_jobs_notes(snapshot)))
    for pool in pools:
        search.add_pool(pool)
    considered.notes.extend(unknown_prices(site, snapshot, catalogue))
    capped, cap_notes = within_max_fanout(request, site)
    considered.notes.extend(cap_notes)
    ranked = rank(
        considered.strategies,
        {pool.model.name: pool.model.rank for pool in pools},
        partition_priorities(snapshot.partitions),
        considered.sources,
    )
    merger = Merger(ranked, snapshot)
    compiled = compile_jobs(ranked, capped, considered.sources, search.factory.usage, merger)
    return Plan(
        strategies=ranked,
        excluded=tuple(sorted(considered.excluded, key=lambda one: (one.what, one.reason))),
        submissions=compiled.submissions,
        spares=compiled.spares,
        waves=compiled.waves,
        notes=tuple(dict.fromkeys(considered.notes)),
        job_notes=compiled.notes,
        cost_unit=site.unit,
    )


@dataclass(slots=True)
class _Considered:
    """The strategies so far, what was excluded, and notes: the planner's one mutable object."""

    strategies: list[Strategy] = field(default_factory=list)
    excluded: list[Exclusion] = field(default_factory=list)
    sources: dict[str, Sources] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, made: LayoutStrategies) -> None:
        self.strategies.extend(made.strategies)
        self.sources.update((strategy.id, made.sources) for strategy in made.strategies)
        self.notes.extend(made.notes)
        for what, infeasible in made.refused:
            self.exclude(what, infeasible)

    def exclude(self, what: str, infeasible: Infeasible) -> None:
        exclusion = Exclusion(what=what, reason=infeasible.reason, by_limit=infeasible.by_limit)
        self.excluded.append(exclusion)


def _pools(
    request: Request,
    snapshot: Snapshot,
    catalogue: Catalogue,
    considered: _Considered,
    failing: Sequence[str],
) -> tuple[Pool, ...]:
    """Return the pools that the request means, under its constraint."""
    partitions = chosen_partitions(request, snapshot)
    nodes = {node.name: node for node in snapshot.nodes}
    eligible = node_filter(request, snapshot, failing)
    if not request.gpus:
        pools = cpu_pools(partitions, nodes, eligible)
        return _constrained(pools, request.constraint, considered)
    distinct, ambiguous = gpu_pools(partitions, nodes, catalogue, eligible)
    for pool in ambiguous:
        reason = "no feature tells its GPUs from the MIG slices beside them"
        considered.exclude(pool.label, Infeasible(reason))
    with_gpus = {pool.partition.name for pool in (*distinct, *ambiguous)}
    for name in request.partitions:
        if name not in with_gpus:
            considered.exclude(name, Infeasible("the partition has no GPUs"))
    chosen, excluded = select_pools(distinct, request, catalogue)
    considered.excluded.extend(excluded)
    return _constrained(chosen, request.constraint, considered)


def _constrained(
    pools: Iterable[Pool], constraint: str, considered: _Considered
) -> tuple[Pool, ...]:
    ways = parse_constraint(constraint)
    kept: list[Pool] = []
    for pool in pools:
        left = constrained(pool, ways)
        kept.extend(left)
        if not left:
            reason = f"no node there meets the constraint {constraint}"
            considered.exclude(pool.label, Infeasible(reason))
    return tuple(kept)


class _Search:
    """Looks for strategies in one pool after the other."""

    def __init__(
        self,
        request: Request,
        snapshot: Snapshot,
        families: Sequence[Family],
        site: Site,
        considered: _Considered,
    ) -> None:
        self._request = request
        self._site = site
        self._considered = considered
        self._families = [family for family in families if family.enabled]
        least = (family.min_gpus_per_node for family in self._serving(Serves.MULTI_NODE))
        self.rules: LayoutRules = layout_rules(request, min(least, default=2))
        checkpoint = next(iter(self._serving(Serves.CHECKPOINT)), None)
        tariff = Tariff(prices=site.prices, config=snapshot.config)
        self.factory = StrategyFactory(request, snapshot, checkpoint, tariff)

    def _serving(self, kind: Serves) -> list[Family]:
        return [family for family in self._families if family.serves is kind]

    def add_pool(self, pool: Pool) -> None:
        """Add the strategies of a pool's layouts, and the reasons against the others."""
        access = self.factory.access
        try:
            check_not_skipped(pool.partition, self._request, self._site)
            access.check_partition(pool.partition, self._request)
            charges = access.charges(pool.partition, self._request)
        except Infeasible as infeasible:
            self._considered.exclude(pool.label, infeasible)
            return
        possible, reasons = layouts(pool, self.rules)
        refused = [(layout, Infeasible(reason)) for layout, reason in reasons]
        before = len(self._considered.strategies)
        for layout in possible:
            kind = _serves(pool, layout)
            serving = self._serving(kind)
            if not serving:
                reason = f"no strategy family for {kind.value} is enabled"
                refused.append((str(layout), Infeasible(reason)))
            for index, family in enumerate(serving):
                suffix = f"/{family.name}" if index else ""
                try:
                    made = self.factory.strategies(pool, layout, family, charges, suffix)
                    made = within_max_cost(made, self._request, self._site.unit)
                    self._considered.add(made)
                except Infeasible as infeasible:
                    refused.append((str(layout), infeasible))
        self._exclude_layouts(pool, refused, whole=len(self._considered.strategies) == before)

    def _exclude_layouts(
        self, pool: Pool, refused: list[tuple[str, Infeasible]], *, whole: bool
    ) -> None:
        """Name the pool once where all its layouts fail for one reason, else layout by layout."""
        if whole and len({infeasible.reason for _, infeasible in refused}) == 1:
            self._considered.exclude(pool.label, refused[0][1])
            return
        for layout, infeasible in refused:
            what = f"{pool.model.name}/{layout}/{pool.place}" if layout else pool.label
            self._considered.exclude(what, infeasible)


def _serves(pool: Pool, layout: Layout) -> Serves:
    if pool.mig:
        return Serves.MIG
    return Serves.SINGLE_NODE if layout.nodes == 1 else Serves.MULTI_NODE


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
    exclusions = _most_useful_first(plan.excluded)
    if not exclusions:
        nothing = "nodes" if not request.gpus else "GPUs"
        hint = "--gpu 0 --cpus 8 asks for a job without any" if request.gpus else ""
        raise RvError(ErrorKind.INFEASIBLE, f"this cluster has no {nothing} to offer", hint=hint)
    first, *others = exclusions
    shown = [_sentence(exclusion) for exclusion in others[:_REASONS_SHOWN]]
    raise RvError(
        ErrorKind.LIMIT if first.by_limit else ErrorKind.INFEASIBLE,
        f"nothing here can serve {_asked(request)}: {_sentence(first)}",
        hint="; ".join(shown) or "--dry-run shows what there is",
    )


def _most_useful_first(excluded: Iterable[Exclusion]) -> list[Exclusion]:
    """Order by use to the reader, one of each reason: limits, which can be asked around, first."""
    by_reason: dict[str, Exclusion] = {}
    for exclusion in excluded:
        by_reason.setdefault(exclusion.reason, exclusion)
    return sorted(by_reason.values(), key=lambda one: (not one.by_limit, "--mig" in one.reason))


def _sentence(exclusion: Exclusion) -> str:
    return f"{exclusion.what}: {exclusion.reason}"


def _asked(request: Request) -> str:
    if not request.gpus:
        return "a job without GPUs"
    if request.mig:
        return "a MIG slice"
    kind = f" {' or '.join(request.types)}" if request.types else ""
    return f"{request.gpus}{kind} {'GPU' if request.gpus == 1 else 'GPUs'}"
