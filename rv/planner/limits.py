"""What limits of QOS, associations and accounts allow, and what of them is in use.

Slurm takes each limit from the first that sets it of partition QOS, job QOS and association
(slurm.schedmd.com/resource_limits.html, "Hierarchy"); a job QOS with the flag OverPartQOS is first.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum, auto
from functools import cache
from typing import Final

from rv.dataclass import dataclass
from rv.models.job import JobState
from rv.models.quantities import short_memory
from rv.models.snapshot import Account, Limits, Qos, QueuedJob, Snapshot

Amounts = Mapping[str, int]
"""Amounts by TRES name, memory in MiB; `jobs` counts running jobs, `submitted` all of them."""

Sources = tuple["LimitSource", ...]
_LimitList = tuple[tuple[str, int], ...]
_LimitsOf = Callable[[Limits], _LimitList]
_RUNNING: Final = "jobs"
_SUBMITTED: Final = "submitted"
_HOLDING: Final = frozenset({JobState.RUNNING, JobState.CONFIGURING, JobState.SUSPENDED})
_NOUNS: Final = {"cpu": "CPU", "node": "node", "gres/gpu": "GPU", _RUNNING: "running job"}


class Infeasible(Exception):  # noqa: N818 - the ordinary way to exclude something from a plan
    """One sentence that says why something cannot serve a request.

    `by_limit`: a limit of the site is in the way, not its machines.
    """

    def __init__(self, reason: str, *, by_limit: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.by_limit = by_limit


class CountedJobs(StrEnum):
    """Whose jobs a limit counts: the user's, everybody's, an account's, or those below it too."""

    USER = auto()
    EVERYBODY = auto()
    ACCOUNT = auto()
    ACCOUNT_TREE = auto()


class LimitScope(StrEnum):
    """What a limit applies to, as reasons say it; checked in this order."""

    PER_JOB = "per job"
    PER_NODE = "per node"
    PER_USER = "per user"
    PER_ACCOUNT = "per account"
    IN_ALL = "in all"


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitSource:
    """A QOS, association or account that limits a job, by the name in reasons ("QOS h200").

    `counted` says whose jobs its group limits count. Of associations and the accounts above them
    each one's group limits hold (`nested`); of a QOS's and theirs the first that sets one.
    `account` is the job's.
    """

    name: str
    limits: Limits
    counted: CountedJobs = CountedJobs.EVERYBODY
    nested: bool = False
    account: str = ""


def limit_sources(
    partition_qos: Qos | None,
    job_qos: Qos | None,
    association: tuple[str, Limits] | None,
    accounts: Sequence[Account] = (),
) -> Sources:
    """Return what limits a job, in the order in which Slurm takes limits.

    `accounts` are the association's own and those above it, nearest first.
    """
    account, limits = association or ("", None)
    every_qos = [qos for qos in (partition_qos, job_qos) if qos]
    if job_qos and has_flag(job_qos.flags, "OverPartQOS"):
        every_qos.reverse()
    sources = [
        LimitSource(name=f"QOS {qos.name}", limits=qos.limits, account=account) for qos in every_qos
    ]
    if limits is not None:
        sources.append(_account_source(account, limits, CountedJobs.USER))
    sources.extend(
        _account_source(above.name, above.limits, CountedJobs.ACCOUNT_TREE)
        for above in accounts
        if above.limits != Limits()
    )
    return tuple(dict.fromkeys(sources))


def _account_source(account: str, limits: Limits, counted: CountedJobs) -> LimitSource:
    return LimitSource(name=f"account {account}", limits=limits, counted=counted, nested=True)


def has_flag(flags: frozenset[str], name: str) -> bool:
    """Whether a QOS has a flag, in whatever case the site writes it."""
    return name.lower() in {flag.lower() for flag in flags}


def check_job_size(sources: Sources, demand: Amounts) -> None:
    """Raise `Infeasible` where no job of this size may ever run, however empty the cluster."""
    job = _as_one_job(demand)
    for scope, limits_of in _LIMITS.items():
        for source, tres, most in _effective(sources, limits_of):
            asked = job.get(tres, 0)
            if scope is LimitScope.PER_NODE:
                asked = -(-asked // max(1, demand.get("node", 1)))
            if asked > most:
                raise Infeasible(_too_large(source, scope, tres, most, asked), by_limit=True)
    for source, tres, least in _effective(sources, lambda limits: limits.least_per_job):
        asked = demand.get(tres, 0)
        if asked < least:
            needed = f"{source.name} takes jobs of {amount(tres, least)} or more only"
            raise Infeasible(f"{needed}, {_asked(tres, asked)}", by_limit=True)


def _too_large(source: LimitSource, scope: LimitScope, tres: str, most: int, asked: int) -> str:
    if tres in (_RUNNING, _SUBMITTED):
        return f"{source.name} allows no jobs"
    return f"{source.name} allows {amount(tres, most)} {scope}, {_asked(tres, asked)}"


def _asked(tres: str, count: int) -> str:
    """Say what was asked, without repeating the unit where it is plain."""
    return f"{amount(tres, count)} asked" if tres == "mem" else f"{count} asked"


def amount(tres: str, count: int) -> str:
    """Write an amount of a TRES for people: `4 GPUs`, `1 CPU`, `16G of memory`."""
    if tres == "mem":
        return f"{short_memory(count)} of memory"
    noun = _NOUNS.get(tres) or f"{tres.removeprefix('gres/gpu:')} GPU"
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def wall_limit(sources: Sources) -> tuple[str, timedelta] | None:
    """Return whose MaxWall counts, and what it is."""
    for source in sources:
        if source.limits.max_wall is not None:
            return source.name, source.limits.max_wall
    return None


def blocking_limit(sources: Sources, demand: Amounts, usage: "Usage") -> str:
    """Say which limit keeps the job from starting beside what runs now; "" where none does."""
    job = _as_one_job(demand)
    for scope, limits_of in _SHARED_LIMITS.items():
        for source, tres, limit in _effective(sources, limits_of):
            held = _in_use(source, scope, usage).get(tres, 0)
            if tres != _SUBMITTED and held + job.get(tres, 0) > limit:
                used = amount(tres, held) if tres == "mem" else held
                return f"{source.name} allows {amount(tres, limit)} {scope}, {used} in use"
    return ""


def gpu_limits(sources: Sources, usage: "Usage") -> Iterator[str]:
    """Say how many GPUs the limits allow, and what is in use of those that several jobs share.

    A limit of jobs is named where it is used up.
    """
    for scope, words in _SCOPE_WORDS.items():
        for source, tres, limit in _effective(sources, _LIMITS[scope]):
            name, _, model = tres.partition(":")
            in_use = _in_use(source, scope, usage).get(tres, 0) if scope in _SHARED_LIMITS else 0
            if tres in (_RUNNING, _SUBMITTED) and in_use >= limit:
                kind = "running" if tres == _RUNNING else "submitted"
                yield f"{limit} {kind} jobs {words} ({in_use} in use)"
            if name == "gres/gpu":
                allowed = " ".join(filter(None, (str(limit), model, words)))
                yield f"{allowed} ({in_use} in use)" if in_use else allowed


def gpus_left(sources: Sources, usage: "Usage", gres_type: str) -> int | None:
    """Return how many GPUs of a type the user may still get there; None where nothing limits it.

    It is 0 where no more job may be submitted, or run.
    """
    left = []
    for scope, limits_of in _SHARED_LIMITS.items():
        for source, tres, limit in _effective(sources, limits_of):
            in_use = _in_use(source, scope, usage).get(tres, 0)
            if tres in _of_gpus(gres_type):
                left.append(limit - in_use)
            elif tres in (_RUNNING, _SUBMITTED) and in_use >= limit:
                left.append(0)
    return max(0, min(left)) if left else None


def gpus_a_job(sources: Sources, gres_type: str) -> int | None:
    """Return how many GPUs of a type a job may have at most; None where nothing limits it."""
    limits = _effective(sources, _LIMITS[LimitScope.PER_JOB])
    return min((limit for _, tres, limit in limits if tres in _of_gpus(gres_type)), default=None)


def _of_gpus(gres_type: str) -> tuple[str, str]:
    return "gres/gpu", f"gres/gpu:{gres_type}"


def submissions_left(source: LimitSource, usage: "Usage") -> int | None:
    """Return how many more jobs the user may submit there; None where nothing limits it."""
    left = [
        limit - _in_use(source, scope, usage).get(tres, 0)
        for scope, limits_of in _SHARED_LIMITS.items()
        for tres, limit in limits_of(source.limits)
        if tres == _SUBMITTED
    ]
    return max(0, min(left)) if left else None


def has_room(sources: Sources, usage: "Usage") -> bool:
    """Whether Slurm takes another job of the user's, by all that limits their number."""
    return all(submissions_left(source, usage) != 0 for source in sources)


def _in_use(source: LimitSource, scope: LimitScope, usage: "Usage") -> Amounts:
    if scope is LimitScope.PER_ACCOUNT:
        return usage.of(source.name, CountedJobs.ACCOUNT, source.account)
    return usage.of(source.name, source.counted if scope is LimitScope.IN_ALL else CountedJobs.USER)


def _as_one_job(demand: Amounts) -> Amounts:
    return {**demand, _RUNNING: 1, _SUBMITTED: 1}


def _effective(sources: Sources, limits_of: _LimitsOf) -> Iterator[tuple[LimitSource, str, int]]:
    """Yield each limit that holds, with who sets it."""
    settled: set[str] = set()
    for source in sources:
        limits = [(tres, limit) for tres, limit in limits_of(source.limits) if tres not in settled]
        for tres, limit in limits:
            yield source, tres, limit
        if not source.nested:
            settled.update(tres for tres, _ in limits)


def _job_counts(running: int | None, submitted: int | None) -> _LimitList:
    counts = ((_RUNNING, running), (_SUBMITTED, submitted))
    return tuple((name, count) for name, count in counts if count is not None)


_SHARED_LIMITS: Final[Mapping[LimitScope, _LimitsOf]] = {
    LimitScope.PER_USER: lambda limits: (
        *limits.per_user,
        *_job_counts(limits.max_jobs_per_user, limits.max_submit_per_user),
    ),
    LimitScope.PER_ACCOUNT: lambda limits: (
        *limits.per_account,
        *_job_counts(limits.max_jobs_per_account, limits.max_submit_per_account),
    ),
    LimitScope.IN_ALL: lambda limits: (
        *limits.group,
        *_job_counts(limits.group_jobs, limits.group_submit),
    ),
}
"""Limits that several jobs share."""

_LIMITS: Final[Mapping[LimitScope, _LimitsOf]] = {
    LimitScope.PER_JOB: lambda limits: limits.per_job,
    LimitScope.PER_NODE: lambda limits: limits.per_node,
    **_SHARED_LIMITS,
}


_SCOPE_WORDS: Final[Mapping[LimitScope, str]] = {
    LimitScope.PER_JOB: "a job",
    LimitScope.PER_USER: "a user",
    LimitScope.PER_ACCOUNT: "an account",
    LimitScope.IN_ALL: "in all",
}


class Usage:
    """What the jobs in the queue use now of each limit source ("QOS h200", "account lab")."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._amounts: dict[tuple[str, CountedJobs, str], Counter[str]] = {}
        parents = {account.name: account.parent for account in snapshot.accounts}
        for (qos, account, partition_qos, is_users), amounts in _sums(snapshot).items():
            sources = {f"QOS {qos}", f"account {account}"}
            sources.update(f"QOS {name}" for name in partition_qos)
            for source in sources:
                self._add((source, CountedJobs.EVERYBODY, ""), amounts)
                self._add((source, CountedJobs.ACCOUNT, account), amounts)
                if is_users:
                    self._add((source, CountedJobs.USER, ""), amounts)
            for name in lineage(account, parents):
                self._add((f"account {name}", CountedJobs.ACCOUNT_TREE, ""), amounts)

    def of(self, source: str, counted: CountedJobs, account: str = "") -> Amounts:
        """Return what is in use; amounts that are not listed are none.

        `account` is whose jobs count, where one account's are counted.
        """
        return self._amounts.get((source, counted, account), Counter())

    def _add(self, key: tuple[str, CountedJobs, str], amounts: Amounts) -> None:
        held = self._amounts.get(key)
        if held is None:
            held = self._amounts[key] = Counter()
        # Counter.update takes four times as long for so few amounts, and there are many keys.
        for name, count in amounts.items():
            held[name] += count


def lineage(account: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    """Return an account and those above it, nearest first."""
    names: list[str] = []
    while account and account not in names:
        names.append(account)
        account = parents.get(account, "")
    return tuple(names)


def hidden_jobs_notes(snapshot: Snapshot) -> tuple[str, ...]:
    """Say what PrivateData keeps from this user, where it does."""
    if not snapshot.hides_jobs or any(job.user != snapshot.user for job in snapshot.jobs):
        return ()
    return ("other people's jobs are hidden here (PrivateData): who waits ahead is not known",)


def _sums(snapshot: Snapshot) -> dict[tuple[str, str, frozenset[str], bool], dict[str, int]]:
    """Add up jobs that count against the same: QOS, account, QOS of partitions, is the user's."""
    sums: dict[tuple[str, str, frozenset[str], bool], dict[str, int]] = {}
    user, partition_qos = snapshot.user, _partition_qos(snapshot)
    for job in snapshot.jobs:
        key = (job.qos, job.account, partition_qos(job.partition), job.user == user)
        held = sums.get(key)
        if held is None:
            held = sums[key] = {}
        if job.state in _HOLDING:
            for name, count in _held_by(job):
                held[name] = held.get(name, 0) + count
        elif not job.state.is_terminal and job.state is not JobState.COMPLETING:
            held[_SUBMITTED] = held.get(_SUBMITTED, 0) + 1
    return sums


def _partition_qos(snapshot: Snapshot) -> Callable[[str], frozenset[str]]:
    """Return what says which QOS the partitions of a job's list have."""
    qos_of = {part.name: part.qos for part in snapshot.partitions if part.qos}

    @cache
    def of(partitions: str) -> frozenset[str]:
        return frozenset(qos_of[name] for name in partitions.split(",") if name in qos_of)

    return of


def _held_by(job: QueuedJob) -> _LimitList:
    held = ((_SUBMITTED, 1), (_RUNNING, 1), ("cpu", job.cpus), ("mem", job.memory_mib))
    typed = ((f"gres/gpu:{job.gpu_type}", job.gpus),) if job.gpu_type else ()
    return (*held, ("node", len(job.nodes)), ("gres/gpu", job.gpus), *typed)
