"""The few settings rv's promises depend on, and Slurm's clock, from `scontrol show config`."""

import re
from datetime import datetime
from typing import Final

from rv.cluster import words
from rv.models.snapshot import ClusterConfig

_DEFAULT: Final = ClusterConfig()
_AS_OF: Final = re.compile(r"^Configuration data as of (\S+)", re.MULTILINE)


def parse_config(text: str) -> ClusterConfig:
    """Read the settings; one that is missing has Slurm's default."""
    value: dict[str, str] = {}
    for line in text.split("\n"):
        key, _, rest = line.partition("=")
        value.setdefault(key.strip(), rest.strip())
    storage = words.word(value.get("AccountingStorageType", ""))
    return ClusterConfig(
        name=words.word(value.get("ClusterName", "")),
        version=words.word(value.get("SLURM_VERSION", "")),
        min_job_age=words.configured_seconds(value.get("MinJobAge", "")) or _DEFAULT.min_job_age,
        message_timeout=words.configured_seconds(value.get("MessageTimeout", ""))
        or _DEFAULT.message_timeout,
        accounting=storage not in {"", "accounting_storage/none"},
        priority_flags=frozenset(words.words(value.get("PriorityFlags", ""))),
        private_data=frozenset(words.words(value.get("PrivateData", ""))),
    )


def parse_clock(text: str) -> datetime | None:
    """Return the controller's time of answering, which it prints above the settings."""
    match = _AS_OF.search(text)
    return words.time(match[1]) if match else None
