"""The few settings rv's promises depend on, and Slurm's clock, from `scontrol show config`."""

import re
from datetime import datetime, timedelta
from typing import Final

from rv.models.snapshot import ClusterConfig
from rv.slurm import words

_DEFAULT: Final = ClusterConfig()
_AS_OF: Final = re.compile(r"^Configuration data as of (\S+)", re.MULTILINE)


def parse_config(text: str) -> ClusterConfig:
    """Read the settings; one that is missing has Slurm's default."""
    value: dict[str, str] = {}
    for line in text.split("\n"):
        key, _, rest = line.partition("=")
        value.setdefault(key.strip(), rest.strip())

    def of(key: str) -> str:
        return words.word(value.get(key, ""))

    def seconds(key: str, default: timedelta) -> timedelta:
        return words.configured_seconds(of(key)) or default

    enforced = of("AccountingStorageEnforce")
    return ClusterConfig(
        name=of("ClusterName"),
        version=of("SLURM_VERSION"),
        min_job_age=seconds("MinJobAge", _DEFAULT.min_job_age),
        message_timeout=seconds("MessageTimeout", _DEFAULT.message_timeout),
        slurmd_timeout=seconds("SlurmdTimeout", _DEFAULT.slurmd_timeout),
        accounting=of("AccountingStorageType") not in {"", "accounting_storage/none"},
        enforces=_listed(enforced) if "AccountingStorageEnforce" in value else None,
        priority_flags=frozenset(words.words(value.get("PriorityFlags", ""))),
        private_data=_listed(of("PrivateData")),
        preempt_type=value.get("PreemptType", "").rpartition("/")[2],
        preempt_mode=value.get("PreemptMode", ""),
        booted_at=words.time(of("BOOT_TIME")),
        max_memory_per_cpu_mib=words.memory_mib(of("MaxMemPerCPU")),
        max_memory_per_node_mib=words.memory_mib(of("MaxMemPerNode")),
    )


def _listed(text: str) -> frozenset[str]:
    return frozenset(words.words(text.lower()))


def parse_clock(text: str) -> datetime | None:
    """Return the controller's time of answering, which it prints above the settings."""
    match = _AS_OF.search(text)
    return words.time(match[1]) if match else None
