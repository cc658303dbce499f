"""What a job costs: by the site's prices, else by its partition's TRESBillingWeights."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final

from rv.dataclass import dataclass
from rv.models.plan import Strategy
from rv.models.site import Price, Site
from rv.models.snapshot import ClusterConfig, Node, Partition, Snapshot
from rv.planner.catalogue import Catalogue, mig_profile
from rv.planner.inventory import Pool

WEIGHTS: Final = "TRESBillingWeights"
BILLING: Final = "billing hours"
"""What TRESBillingWeights count: Slurm's TRES `billing`, for an hour."""

_SECONDS_PER_HOUR: Final = 3600
_ON_NODES: Final = ("cpu", "mem", "node")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """A job's cost in the site's unit, and what sets the price; None and "" where nothing does."""

    amount: float | None = None
    priced_by: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tariff:
    """How a cluster charges: the price table of the configuration files, and Slurm's own flags."""

    prices: Mapping[str, Price]
    config: ClusterConfig

    def cost(self, pool: Pool, amounts: Mapping[str, int], duration: timedelta) -> Cost:
        """Price a job that is given these amounts, by TRES name, for the whole duration.

        The table wins where it has the pool's model.
        """
        hours = duration.total_seconds() / _SECONDS_PER_HOUR
        price = self.prices.get(pool.model.name)
        if price:
            total = price.per_gpu_hour * amounts.get("gres/gpu", 0) * hours
            return Cost(amount=round(total, 2), priced_by=price.origin)
        if not pool.partition.billing_weights:
            return Cost()
        rate = billing(pool.partition, pool.gres_type, amounts, self.config.priority_flags)
        return Cost(amount=round(rate * hours, 2), priced_by=WEIGHTS)


def billing(
    partition: Partition,
    gres_type: str,
    amounts: Mapping[str, int],
    priority_flags: frozenset[str] = frozenset(),
) -> float:
    """Return the `billing` that Slurm counts for these amounts, in units an hour.

    It is the sum of weight times amount; with PriorityFlags=MAX_TRES the largest of what is on
    nodes, plus the rest, and with MAX_TRES_GRES the largest of CPUs, memory and nodes, plus GRES
    and the rest (slurm.conf(5)). Weights of `mem` are per MiB here. A typed weight counts where the
    job names that type.
    """
    if gres_type:
        amounts = {**amounts, f"gres/gpu:{gres_type}".lower(): amounts.get("gres/gpu", 0)}
    largest = added = 0.0
    for name, weight in partition.billing_weights:
        billed = amounts.get(name, 0) * weight
        if _only_largest_counts(name, priority_flags):
            largest = max(largest, billed)
        else:
            added += billed
    return largest + added


def _only_largest_counts(tres: str, priority_flags: frozenset[str]) -> bool:
    """Whether of this resource and others such only the largest is billed."""
    if tres in _ON_NODES:
        return bool(priority_flags & {"MAX_TRES", "MAX_TRES_GRES"})
    return tres.startswith("gres/") and "MAX_TRES" in priority_flags


def whole_nodes(nodes: tuple[Node, ...], memory_mib: int) -> dict[str, int]:
    """Count what a job in an exclusive partition is given: all CPUs and GPUs of its nodes.

    Of memory it has what it asks for, and all there is where it asks for none (seen on 22.05).
    """
    return {
        "node": len(nodes),
        "cpu": sum(node.cpus for node in nodes),
        "mem": memory_mib or sum(node.memory_mib for node in nodes),
        "gres/gpu": sum(group.total for node in nodes for group in node.gpus),
    }


def cost_unit(strategies: Iterable[Strategy], site: Site) -> str:
    """Return what the site calls its unit of costs, else Slurm's own where it sets all prices."""
    sources = {strategy.priced_by for strategy in strategies if strategy.priced_by}
    return site.unit or (BILLING if sources == {WEIGHTS} else "")


def too_expensive(strategy: Strategy, max_cost: float | None, unit: str) -> str:
    """Say why `--max-cost` does not allow a strategy; "" where it does, or none is given."""
    if max_cost is None:
        return ""
    if strategy.cost is None:
        return (
            f"it has no price: none of {strategy.gpu} in a configuration file, no {WEIGHTS}"
            f" of partition {strategy.partition}, and --max-cost is given"
        )
    if strategy.cost <= max_cost:
        return ""
    unit_name = f" {unit}" if unit else ""
    return f"costs {strategy.cost:.2f}{unit_name}, above --max-cost {max_cost:g}"


def unknown_prices(site: Site, snapshot: Snapshot, catalogue: Catalogue) -> tuple[str, ...]:
    """Say which prices are of no GPU model that rv knows or the cluster has: likely misspelt."""
    if not site.prices:
        return ()
    present = {group.type for node in snapshot.nodes for group in node.gpus}
    notes = []
    for name, price in site.prices.items():
        if name in catalogue.models or name in present or mig_profile(name):
            continue
        from rv.models.spelling import nearest  # a slip alone needs it

        near = nearest(name, (*present, *catalogue.models))
        hint = f"; did you mean {near}?" if near else ""
        notes.append(f"{price.origin}: no GPU model is called {name!r}{hint}")
    return tuple(notes)
