"""What limits of QOS, associations and accounts allow, and what of them is in use.

Slurm takes each limit from the first that sets it of partition QOS, job QOS and association
(slurm.schedmd.com/resource_limits.html, "Hierarchy"); a job QOS with the flag OverPartQOS is first.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from rv.models.job import JobState
from rv.models.quantities import short_duration, short_memory
from rv.models.snapshot import Account, Limits, Qos, QueuedJob, Snapshot


class Infeasible(Exception):  # noqa: N818 - no error: the ordinary way to leave something out of a plan
    """Carries one sentence; `by_limit` where the site's limits speak, not its machines."""

    def __init__(self, reason: str, *, by_limit: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.by_limit = by_limit


_NOUNS = {"cpu": "CPU", "node": "node", "gres/gpu": "GPU", "jobs": "running job"}


def amount(tres: str, count: int) -> str:
    """Write an amount of a TRES for people: `4 GPUs`, `1 CPU`, `16G of memory`."""
    if tres == "mem":
        return f"{short_memory(count)} of memory"
    noun = _NOUNS.get(tres) or f"{tres.removeprefix('gres/gpu:')} GPU"
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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


Demand = Mapping[str, int]
"""What one job asks for in all, by TRES name; memory in MiB."""

_Amounts = tuple[tuple[str, int], ...]
_Pick = Callable[[Limits], _Amounts]
_RUNNING: Final = "jobs"
_SUBMITTED: Final = "submitted"
_JOBS: Final = (_RUNNING, _SUBMITTED)


class Kind(StrEnum):
    """What a limit is of, as reasons say it."""

    PER_JOB = "per job"
    PER_NODE = "per node"
    PER_USER = "per user"
    PER_ACCOUNT = "per account"
    IN_ALL = "in all"


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A QOS, association or account that limits a job, by the name that reasons use ("QOS h200").

    `group` says whose jobs its group limits count. Of associations and the accounts above them
    each one's group limits hold (`nested`); of a QOS's and theirs the first that sets one.
    `account` is the job's.
    """

    name: str
    limits: Limits
    group: Whose = Whose.EVERYBODYS
    nested: bool = False
    account: str = ""


def owners(
    partition_qos: Qos | None,
    job_qos: Qos | None,
    association: tuple[str, Limits] | None,
    accounts: Sequence[Account] = (),
) -> tuple[Owner, ...]:
    """Return the owners of limits in the order in which Slurm takes them.

    `accounts` are the association's own and those above it, nearest first.
    """
    account, limits = association or ("", None)
    qos = [part for part in (partition_qos, job_qos) if part]
    if job_qos and "overpartqos" in {flag.lower() for flag in job_qos.flags}:
        qos.reverse()
    found = [Owner(name=f"QOS {one.name}", limits=one.limits, account=account) for one in qos]
    if limits is not None:
        found.append(Owner(name=f"account {account}", limits=limits, group=Whose.MINE, nested=True))
    found.extend(
        Owner(name=f"account {one.name}", limits=one.limits, group=Whose.BELOW, nested=True)
        for one in accounts
        if one.limits != Limits()
    )
    return tuple(dict.fromkeys(found))


def check_size(order: tuple[Owner, ...], demand: Demand) -> None:
    """Raise `Infeasible` where no job of this size may ever run, however empty the cluster."""
    for kind, pick in _KINDS.items():
        for owner, tres, limit in _effective(order, pick):
            asked = _one_job(demand).get(tres, 0)
            if kind is Kind.PER_NODE:
                asked = -(-asked // max(1, demand.get("node", 1)))
            if asked > limit and tres in _JOBS:
                raise Infeasible(f"{owner.name} allows no jobs", by_limit=True)
            if asked > limit:
                allowed = f"{owner.name} allows {amount(tres, limit)} {kind}"
                raise Infeasible(f"{allowed}, {asked_of(tres, asked)}", by_limit=True)
    for owner, tres, limit in _effective(order, _least):
        asked = demand.get(tres, 0)
        if asked < limit:
            reason = f"{owner.name} takes jobs of {amount(tres, limit)} or more only"
            raise Infeasible(f"{reason}, {asked_of(tres, asked)}", by_limit=True)


def asked_of(tres: str, count: int) -> str:
    """Say what was asked, without repeating the unit where it is plain."""
    return f"{amount(tres, count)} asked" if tres == "mem" else f"{count} asked"


def max_wall(order: tuple[Owner, ...]) -> tuple[str, timedelta] | None:
    """Return whose MaxWall counts, and what it is."""
    for owner in order:
        if owner.limits.max_wall is not None:
            return owner.name, owner.limits.max_wall
    return None


def wall_reason(asked: timedelta, limit: timedelta, whose: str) -> str:
    """Say that a walltime is above a limit."""
    return f"{short_duration(asked)} is above {whose} {short_duration(limit)}"


def no_room(order: tuple[Owner, ...], demand: Demand, usage: Usage) -> str:
    """Say which limit keeps the job from starting beside what runs now; "" where none does."""
    for kind, pick in _SHARED.items():
        for owner, tres, limit in _effective(order, pick):
            held = _used(owner, kind, usage).get(tres, 0)
            if tres != _SUBMITTED and held + _one_job(demand).get(tres, 0) > limit:
                used = amount(tres, held) if tres == "mem" else held
                return f"{owner.name} allows {amount(tres, limit)} {kind}, {used} in use"
    return ""


def submit_room(owner: Owner, usage: Usage) -> int | None:
    """Return how many more jobs the user may submit there; None where nothing limits it."""
    left = [
        limit - _used(owner, kind, usage).get(tres, 0)
        for kind, pick in _SHARED.items()
        for tres, limit in pick(owner.limits)
        if tres == _SUBMITTED
    ]
    return max(0, min(left)) if left else None


def _used(owner: Owner, kind: Kind, usage: Usage) -> Amounts:
    if kind is Kind.PER_ACCOUNT:
        return usage.of(owner.name, Whose.ACCOUNTS, owner.account)
    return usage.of(owner.name, owner.group if kind is Kind.IN_ALL else Whose.MINE)


def _one_job(demand: Demand) -> Demand:
    return {**demand, _RUNNING: 1, _SUBMITTED: 1}


def _effective(order: tuple[Owner, ...], pick: _Pick) -> Iterator[tuple[Owner, str, int]]:
    """Return each limit that holds, with who sets it."""
    seen: set[str] = set()
    for owner in order:
        found = [(tres, limit) for tres, limit in pick(owner.limits) if tres not in seen]
        for tres, limit in found:
            yield owner, tres, limit
        if not owner.nested:
            seen.update(tres for tres, _ in found)


def _jobs(running: int | None, submitted: int | None) -> _Amounts:
    counts = ((_RUNNING, running), (_SUBMITTED, submitted))
    return tuple((name, count) for name, count in counts if count is not None)


def _per_job(limits: Limits) -> _Amounts:
    return limits.per_job


def _per_node(limits: Limits) -> _Amounts:
    return limits.per_node


def _least(limits: Limits) -> _Amounts:
    return limits.least_per_job


def _per_user(limits: Limits) -> _Amounts:
    return *limits.per_user, *_jobs(limits.max_jobs_per_user, limits.max_submit_per_user)


def _per_account(limits: Limits) -> _Amounts:
    return *limits.per_account, *_jobs(limits.max_jobs_per_account, limits.max_submit_per_account)


def _in_all(limits: Limits) -> _Amounts:
    return *limits.group, *_jobs(limits.group_jobs, limits.group_submit)


_SHARED: Final[Mapping[Kind, _Pick]] = {
    Kind.PER_USER: _per_user,
    Kind.PER_ACCOUNT: _per_account,
    Kind.IN_ALL: _in_all,
}
_KINDS: Final[Mapping[Kind, _Pick]] = {
    Kind.PER_JOB: _per_job,
    Kind.PER_NODE: _per_node,
    **_SHARED,
}
