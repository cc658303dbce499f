"""What the jobs in the queue use of each QOS and account now, counted once."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from rv.models.job import JobState
from rv.models.snapshot import QueuedJob, Snapshot

_HOLDING = frozenset({JobState.RUNNING, JobState.CONFIGURING, JobState.SUSPENDED})

Amounts = Mapping[str, int]
"""Amounts by TRES name; `jobs` counts running jobs, `submitted` all of them."""


class Whose(StrEnum):
    """Whose jobs a limit counts."""

    MINE = "mine"
    EVERYBODYS = "everybody's"


class Usage:
    """The use of each owner of limits ("QOS h200", "account lab"), by whose jobs it is."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._counts: dict[tuple[str, Whose], Counter[str]] = {}
        partition_qos = {p.name: p.qos for p in snapshot.partitions if p.qos}
        for job in snapshot.jobs:
            owners = {f"QOS {job.qos}", f"account {job.account}"}
            for name in job.partition.split(","):
                if name in partition_qos:
                    owners.add(f"QOS {partition_qos[name]}")
            amounts = _amounts(job)
            for owner in owners:
                self._add(owner, Whose.EVERYBODYS, amounts)
                if job.user == snapshot.user:
                    self._add(owner, Whose.MINE, amounts)

    def of(self, owner: str, whose: Whose) -> Amounts:
        """Return what is in use; amounts that are not listed are none."""
        return self._counts.get((owner, whose), Counter())

    def _add(self, owner: str, whose: Whose, amounts: Counter[str]) -> None:
        self._counts.setdefault((owner, whose), Counter()).update(amounts)


def _amounts(job: QueuedJob) -> Counter[str]:
    if job.state.is_terminal:
        return Counter()
    if job.state not in _HOLDING:
        return Counter({"submitted": 1})
    amounts = Counter({"submitted": 1, "jobs": 1, "cpu": job.cpus, "node": len(job.nodes)})
    amounts["gres/gpu"] = job.gpus
    if job.gpu_type:
        amounts[f"gres/gpu:{job.gpu_type}"] = job.gpus
    return amounts
