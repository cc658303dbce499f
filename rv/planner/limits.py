"""The limits of QOS and associations: which one counts, and whether a job is within it.

Slurm takes each limit from the first that sets it of partition QOS, job QOS and association
(slurm.schedmd.com/resource_limits.html, "Hierarchy"); a job QOS with the flag OverPartQOS is first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from rv.models.quantities import short_duration
from rv.models.snapshot import Account, Limits, Qos
from rv.planner.reasons import Unfit, amount
from rv.planner.usage import Amounts, Usage, Whose

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
    """Raise `Unfit` where no job of this size may ever run, however empty the cluster."""
    for kind, pick in _KINDS.items():
        for owner, tres, limit in _effective(order, pick):
            asked = _one_job(demand).get(tres, 0)
            if kind is Kind.PER_NODE:
                asked = -(-asked // max(1, demand.get("node", 1)))
            if asked > limit and tres in _JOBS:
                raise Unfit(f"{owner.name} allows no jobs", by_limit=True)
            if asked > limit:
                allowed = f"{owner.name} allows {amount(tres, limit)} {kind}"
                raise Unfit(f"{allowed}, {asked_of(tres, asked)}", by_limit=True)
    for owner, tres, limit in _effective(order, _least):
        asked = demand.get(tres, 0)
        if asked < limit:
            reason = f"{owner.name} takes jobs of {amount(tres, limit)} or more only"
            raise Unfit(f"{reason}, {asked_of(tres, asked)}", by_limit=True)


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
