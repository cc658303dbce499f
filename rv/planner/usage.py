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
    ACCOUNTS = "the account's"
    BELOW = "the account's and those below it"


class Usage:
    """The use of each owner of limits ("QOS h200", "account lab"), by whose jobs it is."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._counts: dict[tuple[str, Whose, str], Counter[str]] = {}
        above = {account.name: account.parent for account in snapshot.accounts}
        partition_qos = {p.name: p.qos for p in snapshot.partitions if p.qos}
        for (qos, account, partitions, is_mine), amounts in _sums(snapshot).items():
            owners = {f"QOS {qos}", f"account {account}"}
            for name in partitions.split(","):
                if name in partition_qos:
                    owners.add(f"QOS {partition_qos[name]}")
            for owner in owners:
                self._add((owner, Whose.EVERYBODYS, ""), amounts)
                self._add((owner, Whose.ACCOUNTS, account), amounts)
                if is_mine:
                    self._add((owner, Whose.MINE, ""), amounts)
            for name in lineage(account, above):
                self._add((f"account {name}", Whose.BELOW, ""), amounts)

    def of(self, owner: str, whose: Whose, account: str = "") -> Amounts:
        """Return what is in use; amounts that are not listed are none.

        `account` is whose jobs count, where `whose` is one account's.
        """
        return self._counts.get((owner, whose, account), Counter())

    def _add(self, key: tuple[str, Whose, str], amounts: Amounts) -> None:
        held = self._counts.get(key)
        if held is None:
            held = self._counts[key] = Counter()
        # Counter.update takes four times as long for so few amounts, and there are many keys.
        for name, count in amounts.items():
            held[name] += count


def lineage(account: str, above: Mapping[str, str]) -> tuple[str, ...]:
    """Return an account and those above it, nearest first; `above` names each one's parent."""
    found: list[str] = []
    while account and account not in found:
        found.append(account)
        account = above.get(account, "")
    return tuple(found)


def unseen_notes(snapshot: Snapshot) -> tuple[str, ...]:
    """Say what PrivateData keeps from this user, where it does."""
    hidden = "jobs" in snapshot.config.private_data and snapshot.user != "root"
    if not hidden or any(job.user != snapshot.user for job in snapshot.jobs):
        return ()
    return ("other people's jobs are hidden here (PrivateData): who waits ahead is not known",)


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
    held = (("submitted", 1), ("jobs", 1), ("cpu", job.cpus), ("mem", job.memory_mib))
    typed = ((f"gres/gpu:{job.gpu_type}", job.gpus),) if job.gpu_type else ()
    return (*held, ("node", len(job.nodes)), ("gres/gpu", job.gpus), *typed)
