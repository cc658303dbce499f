"""Turn one pool and one layout into strategies, or say why that cannot be."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from rv.models.plan import SIGNAL_EARLY, Estimate, Mode, Source, Strategy, usable
from rv.models.quantities import short_duration
from rv.models.request import Request
from rv.models.snapshot import Partition, Snapshot
from rv.planner.access import Access, Charge, check_node_count, walltime
from rv.planner.cost import Tariff, too_dear, whole_nodes
from rv.planner.families import Family, Serves
from rv.planner.inventory import Pool
from rv.planner.layouts import Layout, Needs, needs
from rv.planner.limits import Infeasible, Owner, Usage, check_size, no_room
from rv.planner.schedule import FOREVER, Forecast, backfill_window, free_first, free_now

_TEMPLATE = "checkpoint"


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """The strategies of one layout, whose limits their jobs count against, and what to tell.

    The first asks for the whole time; `refused` are other ways to spend it, each with the reason.
    """

    strategies: tuple[Strategy, ...]
    order: tuple[Owner, ...]
    notes: tuple[str, ...]
    refused: tuple[tuple[str, Infeasible], ...] = ()


class Builder:
    """Builds the strategies of one request on one snapshot."""

    def __init__(
        self, request: Request, snapshot: Snapshot, checkpoint: Family | None, tariff: Tariff
    ) -> None:
        self.access = Access(snapshot)
        self.usage = Usage(snapshot)
        self._request = request
        self._checkpoint = checkpoint
        self._forecast = Forecast(_without_own_reservation(snapshot, request))
        self._tariff = tariff

    def build(
        self, pool: Pool, layout: Layout, family: Family, charges: tuple[Charge, ...], suffix: str
    ) -> Built:
        """Return the strategies of a layout. Raises `Infeasible` where there is none."""
        request = self._request
        wanted = needs(pool, layout, family, request)
        demand = _demand(pool, layout, wanted)
        charge, duration = self._charge(pool.partition, charges, demand)
        windows = self._forecast.windows(pool, layout, wanted)
        full = no_room(charge.order, demand, self.usage)
        # Which nodes of a counted constraint are free together, nobody worked out.
        room = not full and not pool.counts
        estimate = self._forecast.estimate(windows, pool, layout, duration, has_room=room)
        cost = self._tariff.cost(pool, demand, self._total(duration))
        strategy = Strategy(
            id=f"{pool.model.name}/{layout}/{pool.place}{suffix}",
            family=family.name,
            template=family.template,
            mode=Mode.BACKFILL if estimate.source is Source.BACKFILL_WINDOW else family.mode,
            gpu=pool.model.name,
            gres=pool.gres(layout.gpus_per_node),
            gpus=layout.nodes * layout.gpus_per_node,
            nodes=layout.nodes,
            gpus_per_node=layout.gpus_per_node,
            partition=pool.partition.name,
            walltime=duration,
            memory_mib=wanted.memory_mib,
            cpus_per_task=wanted.cpus,
            mig_profile=pool.mig.name if pool.mig else "",
            account=charge.account,
            qos=charge.qos,
            constraint=pool.constraint,
            exclude_nodes=(*request.exclude_nodes, *pool.asleep),
            node_names=free_first(wanted.slots, free_now(windows)),
            name_pattern=pool.pattern,
            vram_mib=_vram(pool, request),
            strict_gpu=request.strict_gpu,
            extra=request.sbatch,
            preemptible=charge.preemptible,
            estimate=estimate,
            cost=cost.amount,
            priced_by=cost.priced_by,
        )
        whole = self._resumable(strategy) if request.checkpoint else strategy
        hole = backfill_window(windows, layout.nodes) if room else 0.0
        shorter, refused = self._in_hole(whole, hole)
        notes = (*wanted.notes, f"{strategy.id} has to wait: {full}") if full else wanted.notes
        return Built(strategies=(whole, *shorter), order=charge.order, notes=notes, refused=refused)

    def _total(self, duration: timedelta) -> timedelta:
        """Return the time that the command has in all, by one job or by several."""
        request = self._request
        return request.walltime if request.checkpoint and request.walltime_given else duration

    def _resumable(self, strategy: Strategy) -> Strategy:
        """Give the one job, or each of several where a limit is below the whole time, a buffer."""
        family = self._checkpoint or Family(name="", serves=Serves.CHECKPOINT, template="")
        buffer = buffer_of(strategy.walltime, family, self._request)
        check_usable(strategy.walltime, buffer, family)
        made = replace(
            strategy, total=self._total(strategy.walltime), buffer=buffer, template=_TEMPLATE
        )
        return replace(made, mode=Mode.CHECKPOINT) if made.segments > 1 else made

    def _in_hole(
        self, whole: Strategy, hole: float
    ) -> tuple[tuple[Strategy, ...], tuple[tuple[str, Infeasible], ...]]:
        """Cut the time to the hole that is there now, where the whole does not start now."""
        longest = longest_in(timedelta(seconds=hole)) if hole < FOREVER else timedelta(0)
        if whole.estimate.start_in == timedelta(0) or not longest or longest >= whole.walltime:
            return (), ()
        window = timedelta(seconds=int(hole))
        start = Estimate(source=Source.BACKFILL_WINDOW, start_in=timedelta(0), window=window)
        found: list[Strategy] = []
        refused: list[tuple[str, Infeasible]] = []
        if self._request.min_walltime and longest >= self._request.min_walltime:
            found.append(_shortened(whole, longest, start))
        if self._checkpoint:
            try:
                found.append(self._segmented(whole, longest, start, self._checkpoint))
            except Infeasible as unfit:
                refused.append((f"{whole.id}/checkpoint", unfit))
        return tuple(found), tuple(refused)

    def _segmented(
        self, whole: Strategy, walltime: timedelta, start: Estimate, family: Family
    ) -> Strategy:
        buffer = buffer_of(walltime, family, self._request)
        check_usable(walltime, buffer, family)
        return replace(
            whole,
            id=f"{whole.id}/checkpoint",
            family=family.name,
            template=_TEMPLATE,
            mode=Mode.CHECKPOINT,
            walltime=walltime,
            total=whole.total or whole.walltime,
            buffer=buffer,
            estimate=start,
        )

    def _charge(
        self, partition: Partition, charges: tuple[Charge, ...], demand: Mapping[str, int]
    ) -> tuple[Charge, timedelta]:
        """Return the first way to charge the job that has room now, else the first of all."""
        fitting: list[tuple[Charge, timedelta]] = []
        refusals: list[Infeasible] = []
        for charge in charges:
            try:
                check_node_count(partition, charge, demand["node"])
                check_size(charge.order, demand)
                fitting.append((charge, walltime(partition, charge, self._request)))
            except Infeasible as refusal:
                refusals.append(refusal)
        if not fitting:
            raise refusals[0]
        alike = (f for f in fitting if f[0].account == fitting[0][0].account)
        return next((f for f in alike if not no_room(f[0].order, demand, self.usage)), fitting[0])


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
    """Leave out the reservations that the job may run in: they are not in its way."""
    if not request.reservations:
        return snapshot
    others = tuple(r for r in snapshot.reservations if r.name not in request.reservations)
    return replace(snapshot, reservations=others)


def _demand(pool: Pool, layout: Layout, wanted: Needs) -> dict[str, int]:
    """Count what limits count and prices are for: in an exclusive partition whole nodes."""
    gpus = layout.nodes * layout.gpus_per_node
    memory = layout.nodes * wanted.memory_mib
    typed = f"gres/gpu:{pool.gres_type}".lower() if pool.gres_type else "gres/gpu"
    if pool.partition.exclusive:
        taken = wanted.slots[: layout.nodes]
        whole = whole_nodes(tuple(slot.node for slot in taken), memory)
        return {typed: sum(slot.total for slot in taken), **whole}
    return {
        "node": layout.nodes,
        "cpu": layout.nodes * wanted.cpus,
        "mem": memory,
        typed: gpus,
        "gres/gpu": gpus,
    }


def _vram(pool: Pool, request: Request) -> int:
    # Of a slice nvidia-smi shows the whole card's memory, or none at all: nothing to hold it to.
    if pool.mig or not pool.largest:
        return 0
    return request.min_vram_mib or pool.model.least_mib


_MINUTE: Final = timedelta(minutes=1)
_SLACK: Final = timedelta(seconds=60)
"""A job that ended 30 s before the planned start behind its hole was seen to start (Slurm 22.05
and 24.11); a snapshot may be 30 s old."""

_SHARE: Final = 5
"""Unless told, the buffer is at most this part of a segment."""


def longest_in(hole: timedelta) -> timedelta:
    """Return the longest walltime, in whole minutes as Slurm counts, that fits a hole."""
    return max(timedelta(0), (hole - _SLACK) // _MINUTE * _MINUTE)


def buffer_of(walltime: timedelta, family: Family, request: Request) -> timedelta:
    """Return how long before its end a job is told to save its work."""
    if request.checkpoint_buffer is not None:
        return request.checkpoint_buffer
    return timedelta(seconds=min(family.buffer, walltime / _SHARE) // timedelta(seconds=1))


def check_usable(walltime: timedelta, buffer: timedelta, family: Family) -> None:
    """Raise `Infeasible`, with the arithmetic, where a segment is too short to be of use."""
    left = usable(walltime, buffer)
    if left >= family.min_usable:
        return
    parts = (walltime, buffer, SIGNAL_EARLY)
    sum_text = " - ".join(f"{_seconds(part)} s" for part in parts)
    raise Infeasible(
        f"a segment of {short_duration(walltime)} is too short: {sum_text} = {_seconds(left)} s"
        f" of use, at least {_seconds(family.min_usable)} s wanted"
    )


def _seconds(duration: timedelta) -> int:
    return int(duration.total_seconds())


def affordable(built: Built, request: Request, unit: str) -> Built:
    """Refuse the strategies that cost more than `--max-cost`, and those that nobody prices.

    Raises `Infeasible` where none is left.
    """
    dear = {s.id: why for s in built.strategies if (why := too_dear(s, request, unit))}
    kept = tuple(s for s in built.strategies if s.id not in dear)
    if not kept:
        raise Infeasible(dear[built.strategies[0].id])
    refused = tuple((what, Infeasible(why)) for what, why in dear.items())
    return replace(built, strategies=kept, refused=(*built.refused, *refused))
