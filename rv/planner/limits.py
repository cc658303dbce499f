"""The limits of QOS and associations: which one counts, and whether a job is within it.

Slurm takes each limit from the first that sets it of partition QOS, job QOS and association
(slurm.schedmd.com/resource_limits.html, "Hierarchy"); a job QOS with the flag OverPartQOS is first.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from rv.models.quantities import short_duration
from rv.models.snapshot import Limits, Qos
from rv.planner.reasons import Unfit, amount
from rv.planner.usage import Usage, Whose

Demand = Mapping[str, int]
"""What one job asks for in all, by TRES name; memory in MiB."""

_Amounts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A QOS or association that limits a job, by the name that reasons use ("QOS h200").

    `group_is_mine`: an association's GrpTRES counts the user's own jobs, a QOS's everybody's.
    """

    name: str
    limits: Limits
    group_is_mine: bool = False


def owners(
    partition_qos: Qos | None, job_qos: Qos | None, association: tuple[str, Limits] | None
) -> tuple[Owner, ...]:
    """Return the owners of limits in the order in which Slurm takes them."""
    qos = [part for part in (partition_qos, job_qos) if part]
    if job_qos and "overpartqos" in {flag.lower() for flag in job_qos.flags}:
        qos.reverse()
    found = [Owner(name=f"QOS {one.name}", limits=one.limits) for one in qos]
    if association:
        account, limits = association
        found.append(Owner(name=f"account {account}", limits=limits, group_is_mine=True))
    return tuple(dict.fromkeys(found))


def check_size(order: tuple[Owner, ...], demand: Demand) -> None:
    """Raise `Unfit` where no job of this size may ever run."""
    for kind, pick in _KINDS:
        for owner, tres, limit in _effective(order, pick):
            asked = demand.get(tres, 0)
            if asked > limit:
                reason = (
                    f"{owner.name} allows {amount(tres, limit)} {kind}, {asked_of(tres, asked)}"
                )
                raise Unfit(reason, by_limit=True)
    for owner in order:
        if 0 in (owner.limits.max_jobs_per_user, owner.limits.max_submit_per_user):
            raise Unfit(f"{owner.name} allows no jobs", by_limit=True)


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


def has_room(order: tuple[Owner, ...], demand: Demand, usage: Usage) -> bool:
    """Whether the job could start beside what runs now, as far as these limits go."""
    for pick in (_per_user, _group):
        for owner, tres, limit in _effective(order, pick):
            shared = pick is _group and not owner.group_is_mine
            whose = Whose.EVERYBODYS if shared else Whose.MINE
            if usage.of(owner.name, whose).get(tres, 0) + demand.get(tres, 0) > limit:
                return False
    return all(
        owner.limits.max_jobs_per_user is None
        or usage.of(owner.name, Whose.MINE).get("jobs", 0) < owner.limits.max_jobs_per_user
        for owner in order
    )


def submit_room(owner: Owner, usage: Usage) -> int | None:
    """Return how many more jobs the user may submit there; None where nothing limits it."""
    limit = owner.limits.max_submit_per_user
    if limit is None:
        return None
    return max(0, limit - usage.of(owner.name, Whose.MINE).get("submitted", 0))


def _per_job(limits: Limits) -> _Amounts:
    return limits.per_job


def _per_user(limits: Limits) -> _Amounts:
    return limits.per_user


def _group(limits: Limits) -> _Amounts:
    return limits.group


_KINDS = (("per job", _per_job), ("per user", _per_user), ("in all", _group))


def _effective(
    order: tuple[Owner, ...], pick: Callable[[Limits], _Amounts]
) -> Iterator[tuple[Owner, str, int]]:
    seen: set[str] = set()
    for owner in order:
        for tres, limit in pick(owner.limits):
            if tres not in seen:
                seen.add(tres)
                yield owner, tres, limit
