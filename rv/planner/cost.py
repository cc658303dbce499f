"""What a job costs: by the site's prices, else by its partition's TRESBillingWeights."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rv.models.plan import Strategy
from rv.models.request import Request
from rv.models.site import Price, Site
from rv.models.snapshot import ClusterConfig, Node, Partition, Snapshot
from rv.planner.catalogue import Catalogue, mig_profile
from rv.planner.documents import nearest
from rv.planner.inventory import Pool

WEIGHTS: Final = "TRESBillingWeights"
_SECONDS_PER_HOUR: Final = 3600
_OF_A_NODE: Final = ("cpu", "mem", "node")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """A job's cost in the site's unit, and who says so; None and "" where nobody does."""

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
        listed = self.prices.get(pool.model.name)
        if listed:
            whole = listed.per_gpu_hour * amounts.get("gres/gpu", 0) * hours
            return Cost(amount=round(whole, 2), priced_by=listed.origin)
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
    typed = f"gres/gpu:{gres_type}".lower()
    known = {**amounts, typed: amounts.get("gres/gpu", 0)} if gres_type else amounts
    weighted = {name: known.get(name, 0) * weight for name, weight in partition.billing_weights}
    largest = [part for name, part in weighted.items() if _competes(name, priority_flags)]
    return max(largest, default=0.0) + sum(
        part for name, part in weighted.items() if not _competes(name, priority_flags)
    )


def _competes(tres: str, priority_flags: frozenset[str]) -> bool:
    """Whether only the largest of this resource and its like is billed."""
    if tres in _OF_A_NODE:
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


def too_dear(strategy: Strategy, request: Request, unit: str) -> str:
    """Say why a strategy may not be paid for under `--max-cost`; "" where it may."""
    most = request.max_cost
    if most is None:
        return ""
    if strategy.cost is None:
        return (
            f"nobody prices it: no price of {strategy.gpu} in a configuration file, no {WEIGHTS}"
            f" of partition {strategy.partition}, and --max-cost is given"
        )
    named = f" {unit}" if unit else ""
    dear = f"costs {strategy.cost:.2f}{named}, above --max-cost {most:g}"
    return dear if strategy.cost > most else ""


def unknown_prices(site: Site, snapshot: Snapshot, catalogue: Catalogue) -> tuple[str, ...]:
    """Say which prices are of no GPU model that rv knows or the cluster has: slips of the pen."""
    doubtful = [n for n in site.prices if n not in catalogue.models and not mig_profile(n)]
    if not doubtful:
        return ()
    here = {group.type for node in snapshot.nodes for group in node.gpus}
    notes = []
    for name in doubtful:
        if name not in here:
            near = nearest(name, (*here, *catalogue.models))
            meant = f"; did you mean {near}?" if near else ""
            notes.append(f"{site.prices[name].origin}: no GPU model is called {name!r}{meant}")
    return tuple(notes)
