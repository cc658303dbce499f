"""Under which account and QOS a user may use a partition, if at all, and for how long."""

from collections.abc import Iterable, Iterator
from datetime import timedelta

from rv.dataclass import dataclass
from rv.models.quantities import short_duration
from rv.models.request import Request
from rv.models.site import Site
from rv.models.snapshot import Association, Partition, Qos, Snapshot
from rv.planner.limits import (
    Infeasible,
    Sources,
    amount,
    has_flag,
    limit_sources,
    lineage,
    wall_limit,
)

_USUAL_QOS = "normal"
"""The QOS of a user whose association names no default (Slurm's own default)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Charge:
    """An account and a QOS to ask for, "" for the default, and what then limits the job."""

    account: str
    qos: str
    sources: Sources
    qos_flags: frozenset[str] = frozenset()
    preemptible: bool = False

    def has_flag(self, name: str) -> bool:
        """Whether the QOS has a flag, in whatever case the site writes it."""
        return has_flag(self.qos_flags, name)


class Access:
    """What the snapshot's user may use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._qos = {qos.name: qos for qos in snapshot.qos}
        self._accounts = {account.name: account for account in snapshot.accounts}
        self._parents = {account.name: account.parent for account in snapshot.accounts}
        self._preempted_partitions = _preempted_partitions(snapshot)
        self._preempted_qos = _preempted_qos(snapshot)
        enforced = snapshot.config.enforces
        self._limits_enforced = enforced is None or bool(enforced & {"limits", "safe"})
        self._qos_enforced = enforced is None or "qos" in enforced

    def check_partition(self, partition: Partition, request: Request) -> None:
        """Raise `Infeasible` where the partition takes no job of this user, whatever its size."""
        name = partition.name
        named = name in request.partitions
        is_root = self._snapshot.user == "root"
        preempted = self._preempted_partitions.get(name, "")
        rules = (
            (partition.state.upper() != "UP", f"partition {name} is {partition.state.upper()}"),
            (
                partition.needs_reservation and not request.reservations,
                f"partition {name} takes jobs in a reservation only",
            ),
            (partition.root_only and not is_root, f"partition {name} is for root only"),
            (partition.hidden and not named, f"partition {name} is hidden; -p {name} asks for it"),
            (
                not is_root and self._is_outside_groups(partition),
                f"partition {name} is for the groups {', '.join(sorted(partition.allow_groups))}",
            ),
            (
                preempted and not named and not request.accepts_preemption,
                f"jobs there are preempted ({preempted}); --preemptible or -p {name} asks for it",
            ),
        )
        for refused, reason in rules:
            if refused:
                raise Infeasible(reason, by_limit=True)

    def _is_outside_groups(self, partition: Partition) -> bool:
        allowed, groups = partition.allow_groups, self._snapshot.groups
        return bool(allowed and groups and not groups & allowed)

    def charges(self, partition: Partition, request: Request) -> tuple[Charge, ...]:
        """Return the ways to charge a job there, the user's defaults first.

        Raises `Infeasible` where there is none.
        """
        charges = list(self._charges(partition, request))
        if not charges:
            raise Infeasible(self._refusal(partition, request), by_limit=True)
        # What is preempted comes last, whichever account it is of.
        return tuple(sorted(charges, key=lambda charge: charge.preemptible))

    def _charges(self, partition: Partition, request: Request) -> Iterator[Charge]:
        if not self._snapshot.associations:
            if not request.account or _account_allowed(partition, request.account):
                yield from self._with_each_qos(partition, request, None, account=request.account)
            return
        associations = self._associations(partition)
        for association in _defaults_first(associations, request.account):
            if not _account_allowed(partition, association.account):
                continue
            is_default = association.is_default or len(associations) == 1
            account = association.account if request.account or not is_default else ""
            yield from self._with_each_qos(partition, request, association, account=account)

    def _associations(self, partition: Partition) -> tuple[Association, ...]:
        """Return the user's associations that count there; one of the partition's own wins."""
        by_account: dict[str, Association] = {}
        for association in self._snapshot.associations or ():
            if association.partition == partition.name:
                by_account[association.account] = association
            elif not association.partition:
                by_account.setdefault(association.account, association)
        return tuple(by_account.values())

    def _with_each_qos(
        self,
        partition: Partition,
        request: Request,
        association: Association | None,
        *,
        account: str,
    ) -> Iterator[Charge]:
        default = _default_qos(association)
        partition_preempted = self._preempted_partitions.get(partition.name)
        for name in self._qos_names(partition, request, association):
            qos = self._qos.get(name)
            yield Charge(
                account=account,
                qos="" if name == default and not request.qos else name,
                sources=self._sources(partition, qos, association),
                qos_flags=qos.flags if qos else frozenset[str](),
                preemptible=bool(partition_preempted or self._preempted_qos.get(name)),
            )

    def _qos_names(
        self, partition: Partition, request: Request, association: Association | None
    ) -> list[str]:
        """Return the QOS that a job may have there, the default first.

        One that costs more than usual, or is preempted, is only taken where the user asks for it.
        """
        granted = association.qos if association and self._qos_enforced else ()
        if request.qos:
            refused = granted and request.qos not in granted
            names = [] if refused else [request.qos]
        else:
            names = self._default_qos_names(granted or partition.allow_qos, association, request)
        return [name for name in names if self._qos_allowed(partition, name, request)]

    def _default_qos_names(
        self, offered: Iterable[str], association: Association | None, request: Request
    ) -> list[str]:
        default = _default_qos(association)
        others = sorted(set(offered) - {default})
        names = [default, *(name for name in others if not self._is_expensive(name))]
        if request.accepts_preemption:
            return names
        return [name for name in names if name not in self._preempted_qos]

    def _is_expensive(self, qos: str) -> bool:
        return qos in self._qos and self._qos[qos].usage_factor > 1

    def _qos_allowed(self, partition: Partition, name: str, request: Request) -> bool:
        flags = self._qos[name].flags if name in self._qos else frozenset[str]()
        if has_flag(flags, "RequiresReservation") and not request.reservations:
            return False
        if partition.allow_qos:
            return name in partition.allow_qos
        return name not in partition.deny_qos

    def _sources(
        self, partition: Partition, qos: Qos | None, association: Association | None
    ) -> Sources:
        if not self._limits_enforced:
            return ()
        names = lineage(association.account, self._parents) if association else ()
        return limit_sources(
            self._qos.get(partition.qos),
            qos,
            (association.account, association.limits) if association else None,
            [self._accounts[name] for name in names if name in self._accounts],
        )

    def _refusal(self, partition: Partition, request: Request) -> str:
        """Say why there is no way to charge a job: the first of these reasons that holds."""
        name = partition.name
        if request.qos and not self._qos_allowed(partition, request.qos, request):
            return f"partition {name} does not allow QOS {request.qos}"
        account = self._refused_account(partition, request)
        if account:
            return account
        if request.qos:
            return f"QOS {request.qos} is not yours to use in partition {name}"
        return (
            self._preempted_default(partition, request)
            or self._expensive_qos(partition)
            or f"partition {name} allows the QOS {_listed(partition.allow_qos)}"
        )

    def _refused_account(self, partition: Partition, request: Request) -> str:
        name = partition.name
        accounts = sorted(one.account for one in self._associations(partition))
        own = [request.account] if request.account else accounts
        if accounts and not set(own) <= set(accounts):
            return f"account {request.account} may not use partition {name}"
        if not own and self._snapshot.associations:
            return f"none of your accounts may use partition {name}"
        if not own or any(_account_allowed(partition, account) for account in own):
            return ""
        allowed = _listed(partition.allow_accounts)
        return f"partition {name} allows the accounts {allowed}; yours: {', '.join(own)}"

    def _preempted_default(self, partition: Partition, request: Request) -> str:
        associations = self._associations(partition)
        default = _default_qos(associations[0] if associations else None)
        mode = self._preempted_qos.get(default)
        if not mode or not self._qos_allowed(partition, default, request):
            return ""
        remedy = f"--preemptible or --qos {default} asks for it"
        return f"jobs under QOS {default} are preempted ({mode}); {remedy}"

    def _expensive_qos(self, partition: Partition) -> str:
        granted = {qos for association in self._associations(partition) for qos in association.qos}
        names = sorted(qos for qos in partition.allow_qos & granted if self._is_expensive(qos))
        if not names:
            return ""
        factor = f"{self._qos[names[0]].usage_factor:g} times the usual"
        return f"QOS {names[0]} costs {factor}; --qos {names[0]} asks for it"


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none of yours"


def _defaults_first(associations: tuple[Association, ...], account: str) -> list[Association]:
    usable = [one for one in associations if not account or one.account == account]
    return sorted(usable, key=lambda one: (not one.is_default, one.account))


def _account_allowed(partition: Partition, account: str) -> bool:
    # Slurm ignores DenyAccounts where AllowAccounts is set (slurm.conf(5)).
    if partition.allow_accounts:
        return account in partition.allow_accounts
    return account not in partition.deny_accounts


def _default_qos(association: Association | None) -> str:
    if association is None:
        return _USUAL_QOS
    if association.default_qos:
        return association.default_qos
    return association.qos[0] if len(association.qos) == 1 else _USUAL_QOS


def _preempted_partitions(snapshot: Snapshot) -> dict[str, str]:
    """Return what happens to jobs ("REQUEUE") in each partition where others preempt them.

    It has a lower tier than another partition on one of its nodes. A snapshot that does not say
    how jobs are preempted is read by its partitions, which then say so themselves.
    """
    if snapshot.config.preempt_type not in ("", "partition_prio"):
        return {}
    highest: dict[str, int] = {}
    for partition in snapshot.partitions:
        for node in partition.nodes:
            highest[node] = max(highest.get(node, 0), partition.priority_tier)
    return {
        partition.name: partition.preempt_mode
        for partition in snapshot.partitions
        if _preempts(partition.preempt_mode)
        and any(highest[node] > partition.priority_tier for node in partition.nodes)
    }


def _preempted_qos(snapshot: Snapshot) -> dict[str, str]:
    """Return what happens to jobs under each QOS that another QOS may preempt."""
    if snapshot.config.preempt_type != "qos":
        return {}
    victims = {name for qos in snapshot.qos for name in qos.preempts}
    modes = {qos.name: qos.preempt_mode or snapshot.config.preempt_mode for qos in snapshot.qos}
    return {name: modes[name] for name in victims if _preempts(modes.get(name, ""))}


def _preempts(mode: str) -> bool:
    return bool(set(mode.upper().split(",")) - {"OFF", "GANG", "", "WITHIN"})


def check_not_skipped(partition: Partition, request: Request, site: Site) -> None:
    """Raise `Infeasible` for a partition that a configuration file skips, unless it is named."""
    name = partition.name
    if name in site.skipped and name not in request.partitions:
        reason = f"partition {name} is skipped by {site.skipped[name]}; -p {name} asks for it"
        raise Infeasible(reason, by_limit=True)


def check_node_count(partition: Partition, charge: Charge, nodes: int) -> None:
    """Raise `Infeasible` where the partition takes no job of so many nodes."""
    most, least = partition.max_nodes, partition.min_nodes
    if most is not None and nodes > most and not charge.has_flag("PartitionMaxNodes"):
        allowed = f"partition {partition.name} allows {amount('node', most)} a job"
        raise Infeasible(f"{allowed}, {nodes} asked", by_limit=True)
    if nodes < least and not charge.has_flag("PartitionMinNodes"):
        reason = f"partition {partition.name} takes jobs of {amount('node', least)} or more only"
        raise Infeasible(reason, by_limit=True)


def allowed_walltime(partition: Partition, charge: Charge, request: Request) -> timedelta:
    """Return the time to ask for: the user's, else the default capped by what is allowed.

    Of a time that the user gave only what is spare is cut off; more raises `Infeasible`.
    """
    limits: list[tuple[str, timedelta]] = []
    if partition.max_time is not None and not charge.has_flag("PartitionTimeLimit"):
        limits.append((f"MaxTime of partition {partition.name}:", partition.max_time))
    wall = wall_limit(charge.sources)
    if wall:
        limits.append((f"MaxWall of {wall[0]}:", wall[1]))
    if not request.walltime_given or request.checkpoint:  # what is longer runs in segments
        return min([request.walltime, *(limit for _, limit in limits)])
    for whose, limit in limits:
        if request.walltime - request.spare > limit:
            asked = short_duration(request.walltime)
            raise Infeasible(f"{asked} is above {whose} {short_duration(limit)}", by_limit=True)
    return min([request.walltime, *(limit for _, limit in limits)])
