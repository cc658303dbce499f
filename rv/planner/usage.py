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
        for (qos, account, partition, is_mine), amounts in _sums(snapshot).items():
            owners = {f"QOS {qos}", f"account {account}"}
            for name in partition.split(","):
                if name in partition_qos:
                    owners.add(f"QOS {partition_qos[name]}")
            for owner in owners:
                self._add(owner, Whose.EVERYBODYS, amounts)
                if is_mine:
                    self._add(owner, Whose.MINE, amounts)

    def of(self, owner: str, whose: Whose) -> Amounts:
        """Return what is in use; amounts that are not listed are none."""
        return self._counts.get((owner, whose), Counter())

    def _add(self, owner: str, whose: Whose, amounts: Amounts) -> None:
        self._counts.setdefault((owner, whose), Counter()).update(amounts)


def _sums(snapshot: Snapshot) -> dict[tuple[str, str, str, bool], dict[str, int]]:
    """Add jobs up that count against the same owners: by QOS, account, partition, and if mine."""
    sums: dict[tuple[str, str, str, bool], dict[str, int]] = {}
    for job in snapshot.jobs:
        key = (job.qos, job.account, job.partition, job.user == snapshot.user)
        held = sums.setdefault(key, {})
        for name, count in _amounts(job):
            held[name] = held.get(name, 0) + count
    return sums


def _amounts(job: QueuedJob) -> tuple[tuple[str, int], ...]:
    if job.state.is_terminal:
        return ()
    if job.state not in _HOLDING:
        return (("submitted", 1),)
    held = (("submitted", 1), ("jobs", 1), ("cpu", job.cpus), ("node", len(job.nodes)))
    typed = ((f"gres/gpu:{job.gpu_type}", job.gpus),) if job.gpu_type else ()
    return (*held, ("gres/gpu", job.gpus), *typed)
