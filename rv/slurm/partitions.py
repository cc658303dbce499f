"""Partitions and their limits, from `scontrol -a show partition -o`."""

from rv.models.snapshot import Partition
from rv.slurm import tres, words
from rv.slurm.fields import fields, records
from rv.slurm.hostlist import Expander


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """Read every partition; a line that names none is left out."""
    lists = Expander()
    found = (_partition(fields(line), lists) for line in records(text, "PartitionName"))
    return tuple(partition for partition in found if partition.name)


def _partition(value: dict[str, str], lists: Expander) -> Partition:
    def of(key: str) -> str:
        return value.get(key, "")

    return Partition(
        name=of("PartitionName"),
        nodes=lists.expand(of("Nodes")),
        state=of("State") or "UP",
        is_default=of("Default") == "YES",
        hidden=of("Hidden") == "YES",
        root_only=of("RootOnly") == "YES",
        needs_reservation=of("ReqResv") == "YES",
        exclusive=value.get("OverSubscribe", of("Shared")) == "EXCLUSIVE",
        max_time=words.duration(of("MaxTime")),
        default_time=words.duration(of("DefaultTime")),
        max_nodes=words.number(of("MaxNodes")),
        min_nodes=words.number(of("MinNodes")) or 0,
        max_cpus_per_node=words.number(of("MaxCPUsPerNode")),
        max_memory_per_cpu_mib=words.memory_mib(of("MaxMemPerCPU")),
        max_memory_per_node_mib=words.memory_mib(of("MaxMemPerNode")),
        allow_accounts=words.allowed(of("AllowAccounts")),
        deny_accounts=frozenset(words.words(of("DenyAccounts"))),
        allow_qos=words.allowed(of("AllowQos")),
        deny_qos=frozenset(words.words(of("DenyQos"))),
        allow_groups=words.allowed(of("AllowGroups")),
        qos=words.word(of("QoS")),
        priority_tier=words.number(value.get("PriorityTier", "1")) or 0,
        priority_job_factor=words.number(value.get("PriorityJobFactor", "1")) or 0,
        preempt_mode=of("PreemptMode") or "OFF",
        billing_weights=tres.parse_weights(of("TRESBillingWeights")),
    )
