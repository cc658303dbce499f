"""What a job costs by its partition's TRESBillingWeights, in the site's own unit."""

from rv.models.snapshot import Node, Partition

_SECONDS_PER_HOUR = 3600


def price(
    partition: Partition, gres_type: str, amounts: dict[str, int], seconds: float
) -> float | None:
    """Return billing units times hours, or None where the partition has no weights.

    Slurm's default is the sum of weight times amount (slurm.conf(5), TRESBillingWeights). Weights
    of `mem` are per MiB here. A typed weight counts where the job names that type.
    """
    if not partition.billing_weights:
        return None
    typed = f"gres/gpu:{gres_type}".lower()
    known = {**amounts, typed: amounts.get("gres/gpu", 0)} if gres_type else amounts
    billing = sum(known.get(name, 0) * weight for name, weight in partition.billing_weights)
    return round(billing * seconds / _SECONDS_PER_HOUR, 2)


def whole_nodes(nodes: tuple[Node, ...]) -> dict[str, int]:
    """Count all that the nodes have: an exclusive partition gives and bills whole nodes."""
    return {
        "node": len(nodes),
        "cpu": sum(node.cpus for node in nodes),
        "mem": sum(node.memory_mib for node in nodes),
        "gres/gpu": sum(group.total for node in nodes for group in node.gpus),
    }
