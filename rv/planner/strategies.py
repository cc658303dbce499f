"""Turn one pool and one layout into strategies, or say why that cannot be.

The first strategy asks for the whole time. Where that does not start now but a backfill window is
there, others cut the time to it: one shorter job (`--min-time`), or segments of a command that can
resume (`--checkpoint`).
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import Final, Self

from rv.dataclass import dataclass
from rv.models.performance import Source
from rv.models.plan import SIGNAL_EARLY, Estimate, Mode, Strategy, usable
from rv.models.quantities import short_duration
from rv.models.request import Request
from rv.models.snapshot import Partition, Snapshot
from rv.planner.access import Access, Charge, allowed_walltime, check_node_count
from rv.planner.capacity import FOREVER
from rv.planner.catalogue import Family, Serves
from rv.planner.cost import Tariff, too_expensive, whole_nodes
from rv.planner.inventory import Pool
from rv.planner.layouts import Layout, NodeNeeds, node_needs
from rv.planner.limits import Infeasible, Sources, Usage, blocking_limit, check_job_size
from rv.planner.schedule import (
    NodeWindows,
    StartEstimator,
    backfill_window,
    free_first,
    free_now,
)

_TEMPLATE: Final = "checkpoint"
_MINUTE: Final = timedelta(minutes=1)
_SLACK: Final = timedelta(seconds=60)
"""A job that ended 30 s before the planned start behind its backfill window was seen to start
(Slurm 22.05 and 24.11); a snapshot may be 30 s old."""

_BUFFER_SHARE: Final = 5
"""By default the buffer is at most this part of a segment: a fifth."""

Refusals = tuple[tuple[str, Infeasible], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutStrategies:
    """The strategies of one layout, what limits their jobs, and notes for the user.

    The first asks for the whole time; `refused` are other ways to spend it, each with the reason.
    """

    strategies: tuple[Strategy, ...]
    sources: Sources
    notes: tuple[str, ...]
    refused: Refusals = ()


class StrategyFactory:
    """Makes the strategies of one request on one snapshot."""

    def __init__(
        self, request: Request, snapshot: Snapshot, checkpoint: Family | None, tariff: Tariff
    ) -> None:
        self.access = Access(snapshot)
        self.usage = Usage(snapshot)
        self._request = request
        self._checkpoint = checkpoint
        self._starts = StartEstimator(_without_own_reservation(snapshot, request))
        self._tariff = tariff

    def asking(self, request: Request) -> Self:
        """Make the strategies of a request that differs in its number of GPUs alone."""
        other = copy(self)
        other.ask(request)
        return other

    def ask(self, request: Request) -> None:
        """Make the strategies of this request from now on."""
        self._request = request

    def strategies(
        self, pool: Pool, layout: Layout, family: Family, charges: tuple[Charge, ...], suffix: str
    ) -> LayoutStrategies:
        """Return the strategies of a layout. Raises `Infeasible` where there is none."""
        needs = node_needs(pool, layout, family, self._request)
        demand = _job_demand(pool, layout, needs)
        charge, walltime = self._charge(pool.partition, charges, demand)
        windows = self._starts.windows(pool, layout, needs)
        blocking = blocking_limit(charge.sources, demand, self.usage)
        # Which nodes of a counted constraint are free together is not worked out.
        may_start = not blocking and not pool.counts
        estimate = self._starts.estimate(windows, pool, layout, walltime, within_limits=may_start)
        in_window = estimate.source is Source.BACKFILL_WINDOW
        cost = self._tariff.cost(pool, demand, self._total(walltime))
        whole = replace(
            _asked_of_nodes(pool, layout, needs, self._request),
            id=f"{pool.model.name}/{layout}/{pool.place}{suffix}",
            family=family.name,
            template=family.template,
            mode=Mode.BACKFILL if in_window else family.mode,
            walltime=walltime,
            account=charge.account,
            qos=charge.qos,
            preemptible=charge.preemptible,
            node_names=free_first(needs.slots, free_now(windows)),
            estimate=estimate,
            cost=cost.amount,
            priced_by=cost.priced_by,
        )
        if self._request.checkpoint:
            whole = self._resumable(whole)
        window_s = backfill_window(windows, layout.nodes) if may_start else 0.0
        shorter, refused = self._in_window(whole, window_s)
        made = (self._scheduled(one, windows) for one in (whole, *shorter))
        waits = (f"{whole.id} has to wait: {blocking}",) if blocking else ()
        return LayoutStrategies(
            strategies=tuple(made),
            sources=charge.sources,
            notes=(*needs.notes, *waits),
            refused=refused,
        )

    def _charge(
        self, partition: Partition, charges: tuple[Charge, ...], demand: Mapping[str, int]
    ) -> tuple[Charge, timedelta]:
        """Return the first way to charge the job that has room now, else the first of all."""
        allowed: list[tuple[Charge, timedelta]] = []
        refusals: list[Infeasible] = []
        for charge in charges:
            try:
                check_node_count(partition, charge, demand["node"])
                check_job_size(charge.sources, demand)
                allowed.append((charge, allowed_walltime(partition, charge, self._request)))
            except Infeasible as refusal:
                refusals.append(refusal)
        if not allowed:
            raise refusals[0]
        first = allowed[0]
        for charge, walltime in allowed:
            if charge.account == first[0].account and not blocking_limit(
                charge.sources, demand, self.usage
            ):
                return charge, walltime
        return first

    def _total(self, walltime: timedelta) -> timedelta:
        """Return the time that the command has in all, by one job or by several."""
        request = self._request
        return request.walltime if request.checkpoint and request.walltime_given else walltime

    def _resumable(self, strategy: Strategy) -> Strategy:
        """Give the one job, or each of several where a limit is below the whole time, a buffer."""
        family = self._checkpoint or Family(name="", serves=Serves.CHECKPOINT, template="")
        buffer = self._buffer(strategy.walltime, family)
        resumable = replace(
            strategy, total=self._total(strategy.walltime), buffer=buffer, template=_TEMPLATE
        )
        return replace(resumable, mode=Mode.CHECKPOINT) if resumable.segments > 1 else resumable

    def _buffer(self, walltime: timedelta, family: Family) -> timedelta:
        """Return how long before its end a job is told to save its work.

        Raises `Infeasible`, with the arithmetic, where a segment is too short to be of use.
        """
        buffer = self._request.checkpoint_buffer
        if buffer is None:
            shortest = min(family.buffer, walltime / _BUFFER_SHARE)
            buffer = timedelta(seconds=shortest // timedelta(seconds=1))
        left = usable(walltime, buffer)
        if left >= family.min_usable:
            return buffer
        parts = " - ".join(f"{_seconds(part)} s" for part in (walltime, buffer, SIGNAL_EARLY))
        raise Infeasible(
            f"a segment of {short_duration(walltime)} is too short: {parts} = {_seconds(left)} s"
            f" of use, at least {_seconds(family.min_usable)} s wanted"
        )

    def _in_window(self, whole: Strategy, window_s: float) -> tuple[tuple[Strategy, ...], Refusals]:
        """Cut the time to the backfill window, where the whole does not start now."""
        longest = longest_in(timedelta(seconds=window_s)) if window_s < FOREVER else timedelta(0)
        if whole.estimate.start_in == timedelta(0) or not longest or longest >= whole.walltime:
            return (), ()
        window = timedelta(seconds=int(window_s))
        start = Estimate(source=Source.BACKFILL_WINDOW, start_in=timedelta(0), window=window)
        strategies: list[Strategy] = []
        refused: list[tuple[str, Infeasible]] = []
        if self._request.min_walltime and longest >= self._request.min_walltime:
            strategies.append(_shortened(whole, longest, start))
        if self._checkpoint:
            try:
                strategies.append(self._segmented(whole, longest, start, self._checkpoint))
            except Infeasible as infeasible:
                refused.append((f"{whole.id}/checkpoint", infeasible))
        return tuple(strategies), tuple(refused)

    def _scheduled(self, strategy: Strategy, windows: NodeWindows) -> Strategy:
        """Give a chain whose end is asked for the starts of its segments."""
        if not self._request.is_timed:
            return strategy
        from rv.planner.segments import segment_starts

        return replace(strategy, segment_starts=segment_starts(windows, strategy))

    def _segmented(
        self, whole: Strategy, walltime: timedelta, start: Estimate, family: Family
    ) -> Strategy:
        return replace(
            whole,
            id=f"{whole.id}/checkpoint",
            family=family.name,
            template=_TEMPLATE,
            mode=Mode.CHECKPOINT,
            walltime=walltime,
            total=whole.total or whole.walltime,
            buffer=self._buffer(walltime, family),
            estimate=start,
        )


def _asked_of_nodes(pool: Pool, layout: Layout, needs: NodeNeeds, request: Request) -> Strategy:
    """Return a strategy with what it asks of nodes; its name, time and start are to be set."""
    return Strategy(
        id="",
        family="",
        template="",
        mode=Mode.DIRECT,
        gpu=pool.model.name,
        gres=pool.gres(layout.gpus_per_node),
        gpus=layout.nodes * layout.gpus_per_node,
        nodes=layout.nodes,
        gpus_per_node=layout.gpus_per_node,
        partition=pool.partition.name,
        walltime=request.walltime,
        memory_mib=needs.memory_mib,
        cpus_per_task=needs.cpus,
        mig_profile=pool.mig.name if pool.mig else "",
        constraint=pool.constraint,
        exclude_nodes=(*request.exclude_nodes, *pool.asleep),
        name_pattern=pool.pattern,
        vram_mib=_least_vram_mib(pool, request),
        strict_gpu=request.strict_gpu,
        allow_busy_gpus=request.allow_busy_gpus,
        extra=request.sbatch,
    )


def _seconds(duration: timedelta) -> int:
    return int(duration.total_seconds())


def longest_in(window: timedelta) -> timedelta:
    """Return the longest walltime, in whole minutes as Slurm counts, that fits a window."""
    return max(timedelta(0), (window - _SLACK) // _MINUTE * _MINUTE)


def _shortened(whole: Strategy, walltime: timedelta, start: Estimate) -> Strategy:
    share = walltime / whole.walltime
    return replace(
        whole,
        id=f"{whole.id}/min-time",
        mode=Mode.BACKFILL,
        walltime=walltime,
        estimate=start,
        shortened=True,
        cost=None if whole.cost is None else round(whole.cost * share, 2),
    )


def _without_own_reservation(snapshot: Snapshot, request: Request) -> Snapshot:
    """Drop the reservations that the job may run in: they are not in its way."""
    if not request.reservations:
        return snapshot
    others = tuple(r for r in snapshot.reservations if r.name not in request.reservations)
    return replace(snapshot, reservations=others)


def _job_demand(pool: Pool, layout: Layout, needs: NodeNeeds) -> dict[str, int]:
    """Count what limits count and prices are for: in an exclusive partition whole nodes."""
    gpus = layout.nodes * layout.gpus_per_node
    memory_mib = layout.nodes * needs.memory_mib
    typed = f"gres/gpu:{pool.gres_type}".lower() if pool.gres_type else "gres/gpu"
    if pool.partition.exclusive:
        slots = needs.slots[: layout.nodes]
        whole = whole_nodes(tuple(slot.node for slot in slots), memory_mib)
        return {typed: sum(slot.total for slot in slots), **whole}
    return {
        "node": layout.nodes,
        "cpu": layout.nodes * needs.cpus,
        "mem": memory_mib,
        typed: gpus,
        "gres/gpu": gpus,
    }


def _least_vram_mib(pool: Pool, request: Request) -> int:
    # Of a slice nvidia-smi shows the whole card's memory, or none at all: there is no check.
    if pool.mig or not pool.largest:
        return 0
    return request.min_vram_mib or pool.model.least_mib


def within_max_cost(made: LayoutStrategies, request: Request, unit: str) -> LayoutStrategies:
    """Drop the strategies above `--max-cost`, and those without a price, each with the reason.

    Raises `Infeasible` where none is left. `unit` is what costs are counted in, "" for no name.
    """
    refused: list[tuple[str, Infeasible]] = []
    kept: list[Strategy] = []
    for strategy in made.strategies:
        reason = too_expensive(strategy, request.max_cost, unit)
        if reason:
            refused.append((strategy.id, Infeasible(reason)))
        else:
            kept.append(strategy)
    if not kept:
        raise refused[0][1]
    return replace(made, strategies=tuple(kept), refused=(*made.refused, *refused))
