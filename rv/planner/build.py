"""Turn one pool and one layout into a strategy, or say why that cannot be."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from rv.models.plan import Mode, Source, Strategy
from rv.models.request import Request
from rv.models.snapshot import Partition, Snapshot
from rv.planner.access import Access, Charge
from rv.planner.cost import price, whole_nodes
from rv.planner.estimates import Forecast, free_first, free_now
from rv.planner.families import Family
from rv.planner.layouts import Layout
from rv.planner.limits import Owner, check_size, has_room
from rv.planner.needs import Needs, needs, walltime
from rv.planner.pools import Pool
from rv.planner.reasons import Unfit, amount
from rv.planner.usage import Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A strategy, whose limits its job counts against, and what the user should know of it."""

    strategy: Strategy
    order: tuple[Owner, ...]
    notes: tuple[str, ...]


class Builder:
    """Builds the strategies of one request on one snapshot."""

    def __init__(self, request: Request, snapshot: Snapshot) -> None:
        self.access = Access(snapshot)
        self.usage = Usage(snapshot)
        self._request = request
        self._forecast = Forecast(snapshot)

    def build(
        self, pool: Pool, layout: Layout, family: Family, charges: tuple[Charge, ...], suffix: str
    ) -> Built:
        """Return the strategy of a layout. Raises `Unfit` with the reason where there is none."""
        request = self._request
        _check_node_count(pool.partition, layout)
        wanted = needs(pool, layout, family, request)
        demand = _demand(pool, layout, wanted)
        charge, duration = self._charge(pool.partition, charges, demand)
        windows = self._forecast.windows(pool, layout, wanted)
        room = has_room(charge.order, demand, self.usage)
        estimate = self._forecast.estimate(windows, pool, layout, duration, has_room=room)
        strategy = Strategy(
            id=f"{pool.model.name}/{layout}/{pool.place}{suffix}",
            family=family.name,
            template=family.template,
            mode=Mode.BACKFILL if estimate.source is Source.HOLE else family.mode,
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
            exclude_nodes=request.exclude_nodes,
            node_names=free_first(wanted.slots, free_now(windows)),
            name_pattern=pool.pattern,
            vram_mib=_vram(pool, request),
            strict_gpu=request.strict_gpu,
            extra=request.sbatch,
            estimate=estimate,
            cost=_cost(pool, layout, wanted, demand, duration),
        )
        return Built(strategy=strategy, order=charge.order, notes=wanted.notes)

    def _charge(
        self, partition: Partition, charges: tuple[Charge, ...], demand: Mapping[str, int]
    ) -> tuple[Charge, timedelta]:
        refusals: list[Unfit] = []
        for charge in charges:
            try:
                check_size(charge.order, demand)
                return charge, walltime(partition, charge, self._request)
            except Unfit as refusal:
                refusals.append(refusal)
        raise refusals[0]


def _check_node_count(partition: Partition, layout: Layout) -> None:
    most, least = partition.max_nodes, partition.min_nodes
    if most is not None and layout.nodes > most:
        allowed = f"partition {partition.name} allows {amount('node', most)} a job"
        raise Unfit(f"{allowed}, {layout.nodes} asked", by_limit=True)
    if layout.nodes < least:
        reason = f"partition {partition.name} takes jobs of {amount('node', least)} or more only"
        raise Unfit(reason, by_limit=True)


def _demand(pool: Pool, layout: Layout, wanted: Needs) -> dict[str, int]:
    gpus = layout.nodes * layout.gpus_per_node
    demand = {
        "node": layout.nodes,
        "cpu": layout.nodes * wanted.cpus,
        "mem": layout.nodes * wanted.memory_mib,
        "gres/gpu": gpus,
    }
    if pool.gres_type:
        demand[f"gres/gpu:{pool.gres_type}".lower()] = gpus
    return demand


def _vram(pool: Pool, request: Request) -> int:
    # Of a slice nvidia-smi shows the whole card's memory, or none at all: nothing to hold it to.
    if pool.mig or not pool.largest:
        return 0
    return request.min_vram_mib or pool.model.least_mib


def _cost(
    pool: Pool, layout: Layout, wanted: Needs, demand: dict[str, int], duration: timedelta
) -> float | None:
    amounts = demand
    if pool.partition.exclusive:
        amounts = whole_nodes(tuple(slot.node for slot in wanted.slots[: layout.nodes]))
    return price(pool.partition, pool.gres_type, amounts, duration.total_seconds())
