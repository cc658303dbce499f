"""From a request and a snapshot to a plan: enumerate, exclude, estimate, price, rank, compile."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from rv.errors import ErrorKind, RvError
from rv.models.plan import Exclusion, Plan, RunTime, Strategy
from rv.models.request import Objective, Request, Work
from rv.models.site import Site
from rv.models.snapshot import Snapshot
from rv.planner.access import Charge, check_not_skipped
from rv.planner.catalogue import Catalogue, Family, Serves
from rv.planner.cost import Tariff, cost_unit, unknown_prices
from rv.planner.eligibility import failing_nodes, node_filter, parse_constraint, returning_nodes
from rv.planner.inventory import Pool, card_sizes, constrained, cpu_pools, gpu_pools
from rv.planner.layouts import Layout, layout_rules, layouts
from rv.planner.limits import Infeasible, Sources, has_room, hidden_jobs_notes
from rv.planner.merge import Merger
from rv.planner.quantiles import StartSpreads
from rv.planner.selection import (
    asked_by_name,
    check_names,
    chosen_partitions,
    none_asked,
    select_pools,
)
from rv.planner.strategies import LayoutStrategies, StrategyFactory, within_max_cost
from rv.planner.submissions import compile_jobs, rank, within_max_fanout

if TYPE_CHECKING:
    from rv.planner.finish import Order
    from rv.planner.throughput import RunTimes

_NO_SITE: Final = Site()


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
    search = _Search(request, snapshot, families, site)
    if request.is_timed:
        from rv.planner.throughput import RunTimes

        search.time(RunTimes(request, site.performance, site.past, catalogue))
    pools = search.every_size(catalogue)
    possible = 0 if search.strategies else _possible_gpus(request.gpus, search, catalogue, pools)
    capped, cap_notes = within_max_fanout(request, site)
    price_notes = unknown_prices(site, snapshot, catalogue)
    ranked = rank(
        search.strategies,
        {pool.model.name: pool.model.rank for pool in pools},
        {partition.name: partition for partition in snapshot.partitions},
        search.sources,
        _order(request),
    )
    ranked, sent, late_notes = _raced(ranked, request, snapshot, search)
    merger = Merger(sent, snapshot)
    compiled = compile_jobs(sent, capped, search.sources, search.factory.usage, merger)
    return Plan(
        strategies=ranked,
        excluded=search.reasons(),
        submissions=compiled.submissions,
        spares=compiled.spares,
        waves=compiled.waves,
        room=compiled.room,
        moves=compiled.moves,
        notes=tuple(dict.fromkeys((*search.notes, *price_notes, *cap_notes))),
        job_notes=(*compiled.notes, *late_notes),
        cost_unit=cost_unit(ranked, site),
        possible_gpus=possible,
        card_sizes=card_sizes(snapshot, catalogue),
        objective=request.objective,
        work=search.work,
    )


def _order(request: Request) -> "Order":
    """Return what comes before the start in the ranking: nothing where starts are ranked."""
    if request.objective is Objective.START:
        return lambda _: ()
    from rv.planner.finish import order_by

    return order_by(request.objective)


def _raced(
    ranked: tuple[Strategy, ...], request: Request, snapshot: Snapshot, search: "_Search"
) -> tuple[tuple[Strategy, ...], tuple[Strategy, ...], tuple[str, ...]]:
    """Return the strategies, those that are raced, and notes on the others."""
    if request.objective is Objective.START:
        return ranked, ranked, ()
    from rv.planner.finish import in_time, late_notes

    may_be_sent = [one for one in ranked if has_room(search.sources[one.id], search.factory.usage)]
    marked, sent = in_time(ranked, may_be_sent, request, snapshot.taken_at)
    return marked, sent, late_notes(marked)


class _Search:
    """Looks for strategies in one pool after the other, and keeps what it excludes and why."""

    def __init__(
        self, request: Request, snapshot: Snapshot, families: Sequence[Family], site: Site
    ) -> None:
        self.strategies: list[Strategy] = []
        self.sources: dict[str, Sources] = {}
        self.excluded = failing_nodes(request, snapshot, site)
        self._failing = tuple(exclusion.what for exclusion in self.excluded)
        excluded_nodes = (*request.exclude_nodes, *self._failing)
        self._request = replace(request, exclude_nodes=excluded_nodes)
        self._snapshot = snapshot
        self._site = site
        self._families = [family for family in families if family.enabled]
        least = (family.min_gpus_per_node for family in self._serving(Serves.MULTI_NODE))
        self._least = min(least, default=2)
        self._rules = layout_rules(self._request, self._least)
        self.notes = [*self._rules.notes, *hidden_jobs_notes(snapshot)]
        checkpoint = next(iter(self._serving(Serves.CHECKPOINT)), None)
        tariff = Tariff(prices=site.prices, config=snapshot.config)
        self.factory = StrategyFactory(self._request, snapshot, checkpoint, tariff)
        self._starts = StartSpreads(site.past)
        self._run_times: RunTimes | None = None

    def time(self, run_times: "RunTimes") -> None:
        """Give each strategy the time that the work takes there."""
        self._run_times = run_times
        self.notes.extend(run_times.notes(self._request))

    def reasons(self) -> tuple[Exclusion, ...]:
        """Return every reason against something, each once."""
        each_once = dict.fromkeys(self.excluded)
        return tuple(sorted(each_once, key=lambda one: (one.what, one.reason)))

    @property
    def work(self) -> Work | None:
        """What there is to compute, None where nobody said."""
        return self._run_times.work if self._run_times else None

    def every_size(self, catalogue: Catalogue) -> tuple[Pool, ...]:
        """Look for each number of GPUs that would do, and return the pools that it means."""
        pools = self.search(catalogue)
        for gpus in self._request.sizes:
            if gpus != self._request.gpus:
                pools = (*pools, *self.also(gpus, catalogue))
        return pools

    def search(self, catalogue: Catalogue) -> tuple[Pool, ...]:
        """Look in all pools that the request means, and return them."""
        pools = self.pools(catalogue)
        for pool in pools:
            self.add_pool(pool)
        return pools

    def also(self, gpus: int, catalogue: Catalogue) -> tuple[Pool, ...]:
        """Look for another number of GPUs too, and return the pools that it means."""
        other = self.asking(gpus)
        pools = other.search(catalogue)
        self.strategies.extend(other.strategies)
        self.sources.update(other.sources)
        self.excluded.extend(other.excluded)
        self.notes.extend(other.notes)
        return pools

    def asking(self, gpus: int) -> Self:
        """Look for another number of GPUs, in what is known of the cluster."""
        other = copy(self)
        other.begin(gpus)
        return other

    def begin(self, gpus: int) -> None:
        """Forget what was searched for, and look for so many GPUs."""
        self.strategies, self.sources, self.excluded, self.notes = [], {}, [], []
        self._request = replace(self._request, gpus=gpus)
        self._rules = layout_rules(self._request, self._least)
        self.factory = self.factory.asking(self._request)

    def serves(self, pool: Pool) -> bool:
        """Say whether there is a strategy in a pool."""
        self.add_pool(pool)
        return bool(self.strategies)

    def _serving(self, kind: Serves) -> list[Family]:
        return [family for family in self._families if family.serves is kind]

    def pools(self, catalogue: Catalogue) -> tuple[Pool, ...]:
        """Return the pools that the request means, under its constraint."""
        request = self._request
        partitions = chosen_partitions(request, self._snapshot)
        nodes = {node.name: node for node in self._snapshot.nodes}
        eligible = replace(
            node_filter(request, self._snapshot, self._failing),
            returning=returning_nodes(self._snapshot),
        )
        if not request.gpus:
            asked, others = asked_by_name(cpu_pools(partitions, nodes, eligible), request)
            self.excluded.extend(none_asked(others))
            return self._constrained(asked)
        distinct, ambiguous = gpu_pools(partitions, nodes, catalogue, eligible)
        for pool in asked_by_name(ambiguous, request)[0]:
            reason = "no feature tells its GPUs from the MIG slices beside them"
            self._exclude(pool.label, Infeasible(reason))
        with_gpus = {pool.partition.name for pool in (*distinct, *ambiguous)}
        for name in request.partitions:
            if name not in with_gpus:
                self._exclude(name, Infeasible("the partition has no GPUs"))
        chosen, excluded = select_pools(distinct, request, catalogue)
        self.excluded.extend(excluded)
        return self._constrained(chosen)

    def _constrained(self, pools: Iterable[Pool]) -> tuple[Pool, ...]:
        ways = parse_constraint(self._request.constraint)
        kept: list[Pool] = []
        for pool in pools:
            left = constrained(pool, ways)
            kept.extend(left)
            if not left:
                reason = f"no node there meets the constraint {self._request.constraint}"
                self._exclude(pool.label, Infeasible(reason))
        return tuple(kept)

    def add_pool(self, pool: Pool) -> None:
        """Add the strategies of a pool's layouts, and the reasons against the others."""
        access = self.factory.access
        try:
            check_not_skipped(pool.partition, self._request, self._site)
            access.check_partition(pool.partition, self._request)
            charges = access.charges(pool.partition, self._request)
        except Infeasible as infeasible:
            self._exclude(pool.label, infeasible)
            return
        possible, reasons = layouts(pool, self._rules)
        refused = [(layout, Infeasible(reason)) for layout, reason in reasons]
        before = len(self.strategies)
        for layout in possible:
            refused.extend((str(layout), why) for why in self._add_layout(pool, layout, charges))
        self._exclude_layouts(pool, refused, whole=len(self.strategies) == before)

    def _add_layout(
        self, pool: Pool, layout: Layout, charges: tuple[Charge, ...]
    ) -> Iterator[Infeasible]:
        """Add a layout's strategies, of each family that serves it; yield why there are none."""
        kind = _serves(pool, layout)
        serving = self._serving(kind)
        if not serving:
            yield Infeasible(f"no strategy family for {kind.value} is enabled")
        for index, family in enumerate(serving):
            suffix = f"/{family.name}" if index else ""
            try:
                run = self._run_times.of(pool.model.name, layout) if self._run_times else None
                factory = self._factory_for(run)
                made = factory.strategies(pool, layout, family, charges, suffix)
                self._add(within_max_cost(made, self._request, self._site.unit), run)
            except Infeasible as infeasible:
                yield infeasible

    def _factory_for(self, run: RunTime | None) -> StrategyFactory:
        """Return what makes strategies that ask for the time of a run, or for the request's."""
        if run is None:
            return self.factory
        from rv.planner.throughput import asked_time

        walltime, spare = asked_time(self._request, run)
        own = replace(self._request, walltime=walltime, spare=spare, walltime_given=True)
        return self.factory.asking(own)

    def _add(self, made: LayoutStrategies, run: RunTime | None) -> None:
        self.strategies.extend(self._timed(one, run) for one in made.strategies)
        self.sources.update((strategy.id, made.sources) for strategy in made.strategies)
        self.notes.extend(made.notes)
        for what, infeasible in made.refused:
            self._exclude(what, infeasible)

    def _timed(self, strategy: Strategy, run: RunTime | None) -> Strategy:
        """Say when a strategy is likely to start, and to be done where a run is known."""
        start = self._starts.of(strategy.estimate, strategy.gpus)
        if run is None:
            return replace(strategy, start=start)
        from rv.planner.finish import finish

        return replace(strategy, start=start, run=run, finish=finish(strategy, run, start))

    def _exclude_layouts(
        self, pool: Pool, refused: list[tuple[str, Infeasible]], *, whole: bool
    ) -> None:
        """Name the pool once where all its layouts fail for one reason, else layout by layout."""
        if whole and len({infeasible.reason for _, infeasible in refused}) == 1:
            self._exclude(pool.label, refused[0][1])
            return
        for layout, infeasible in refused:
            what = f"{pool.model.name}/{layout}/{pool.place}" if layout else pool.label
            self._exclude(what, infeasible)

    def _exclude(self, what: str, infeasible: Infeasible) -> None:
        exclusion = Exclusion(what=what, reason=infeasible.reason, by_limit=infeasible.by_limit)
        self.excluded.append(exclusion)


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
    require_strategies(plan, request)
    reason = plan.job_notes[-1] if plan.job_notes else "no job may be submitted"
    raise RvError(
        ErrorKind.LIMIT,
        f"nothing can be submitted now: {reason}",
        hint="wait until some of your jobs have ended, or stop them",
    )


def require_strategies(plan: Plan, request: Request) -> None:
    """Raise the same where the plan has no strategy at all, whether or not it may be sent now."""
    if not plan.strategies:
        from rv.planner.infeasible import why_none  # such a plan alone needs it

        raise why_none(plan, request)


def _possible_gpus(asked: int, search: _Search, catalogue: Catalogue, pools: Sequence[Pool]) -> int:
    """Return how many GPUs, fewer than asked for, a request could have; 0 for none.

    The search halves: it takes for granted that what n GPUs can have n-1 can have too. It asks only
    pools that have so many, first the one that could serve the number before, and none after one
    that can.
    """
    sized = _by_size(pools)
    low, high = 0, asked
    while high - low > 1:
        middle = (low + high) // 2
        other = search.asking(middle)
        # A MIG slice is asked for alone: one GPU has other pools than several.
        candidates = sized if middle > 1 else _by_size(other.pools(catalogue))
        enough = (pool for size, pool in candidates if size >= middle)
        serving = next(filter(other.serves, enough), None)
        if serving:
            low = middle
            sized.sort(key=lambda one: one[1] is not serving)
        else:
            high = middle
    return low


def _by_size(pools: Iterable[Pool]) -> list[tuple[int, Pool]]:
    """Return each pool with the GPUs that its nodes have, free or not, the largest first."""
    sized = [(sum(slot.total for slot in pool.slots), pool) for pool in pools]
    return sorted(sized, key=lambda one: -one[0])
