"""Under which account and QOS a user may use a partition, if at all, and for how long."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from rv.models.request import Request
from rv.models.site import Site
from rv.models.snapshot import Association, Partition, Qos, Snapshot
from rv.planner.limits import Infeasible, Owner, amount, lineage, max_wall, owners, wall_reason

_USUAL_QOS = "normal"
"""The QOS that Slurm gives a user to whom nobody gave another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Charge:
    """An account and a QOS to ask for, "" for the default, and whose limits then count."""

    account: str
    qos: str
    order: tuple[Owner, ...]
    qos_flags: frozenset[str] = frozenset()
    preemptible: bool = False

    def has_flag(self, name: str) -> bool:
        """Whether the QOS has a flag, in whatever case sites write it."""
        return name.lower() in {flag.lower() for flag in self.qos_flags}


class Access:
    """What the snapshot's user may use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._qos = {qos.name: qos for qos in snapshot.qos}
        self._accounts = {account.name: account for account in snapshot.accounts}
        self._above = {account.name: account.parent for account in snapshot.accounts}
        self._preemption = Preemption(snapshot)
        enforced = snapshot.config.enforces
        self._limits_hold = enforced is None or bool(enforced & {"limits", "safe"})
        self._grants_hold = enforced is None or "qos" in enforced

    def check_partition(self, partition: Partition, request: Request) -> None:
        """Raise `Infeasible` where the partition takes no job of this user, whatever its size."""
        name = partition.name
        asked_for = name in request.partitions
        groups, is_root = self._snapshot.groups, self._snapshot.user == "root"
        if partition.state.upper() != "UP":
            raise Infeasible(f"partition {name} is {partition.state.upper()}", by_limit=True)
        if partition.needs_reservation and not request.reservations:
            raise Infeasible(f"partition {name} takes jobs in a reservation only", by_limit=True)
        if partition.root_only and not is_root:
            raise Infeasible(f"partition {name} is for root only", by_limit=True)
        if partition.hidden and not asked_for:
            raise Infeasible(f"partition {name} is hidden; -p {name} asks for it", by_limit=True)
        if partition.allow_groups and groups and not (is_root or groups & partition.allow_groups):
            allowed = ", ".join(sorted(partition.allow_groups))
            raise Infeasible(f"partition {name} is for the groups {allowed}", by_limit=True)
        mode = self._preemption.of_partition(name)
        if mode and not (asked_for or request.bears_preemption):
            remedy = f"--preemptible or -p {name} asks for it"
            raise Infeasible(f"jobs there are preempted ({mode}); {remedy}", by_limit=True)

    def charges(self, partition: Partition, request: Request) -> tuple[Charge, ...]:
        """Return the ways to charge a job there, the user's defaults first.

        Raises `Infeasible` where there is none.
        """
        found = list(self._charges(partition, request))
        if found:
            # What is preempted comes last, whichever account it is of.
            return tuple(sorted(found, key=lambda charge: charge.preemptible))
        raise Infeasible(self._refusal(partition, request), by_limit=True)

    def _charges(self, partition: Partition, request: Request) -> Iterator[Charge]:
        associations = self._associations(partition)
        if not associations and self._snapshot.associations:
            return
        if not associations:
            if not request.account or _account_allowed(partition, request.account):
                yield from self._of_association(partition, request, None, account=request.account)
            return
        for association in _in_order(associations, request.account):
            if not _account_allowed(partition, association.account):
                continue
            is_default = association.is_default or len(associations) == 1
            account = association.account if request.account or not is_default else ""
            yield from self._of_association(partition, request, association, account=account)

    def _associations(self, partition: Partition) -> tuple[Association, ...]:
        """Return the user's associations that count there; one of the partition's own wins."""
        found: dict[str, Association] = {}
        for association in self._snapshot.associations or ():
            if association.partition == partition.name:
                found[association.account] = association
            elif not association.partition:
                found.setdefault(association.account, association)
        return tuple(found.values())

    def _of_association(
        self,
        partition: Partition,
        request: Request,
        association: Association | None,
        *,
        account: str,
    ) -> Iterator[Charge]:
        default = _default_qos(association)
        in_partition = self._preemption.of_partition(partition.name)
        for name in self._qos_names(partition, request, association):
            job_qos = self._qos.get(name)
            mode = in_partition or self._preemption.of_qos(name)
            yield Charge(
                account=account,
                qos="" if name == default and not request.qos else name,
                order=self._owners(partition, job_qos, association),
                qos_flags=job_qos.flags if job_qos else frozenset[str](),
                preemptible=bool(mode),
            )

    def _qos_names(
        self, partition: Partition, request: Request, association: Association | None
    ) -> list[str]:
        """Return the QOS that a job may have there, the default first.

        One that costs more than usual, or is preempted, is only taken where the user says so.
        """
        granted = association.qos if association and self._grants_hold else ()
        default = _default_qos(association)
        if request.qos:
            is_mine = not granted or request.qos in granted
            allowed = is_mine and self._qos_allowed(partition, request.qos, request)
            return [request.qos] if allowed else []
        others = sorted(set(granted or partition.allow_qos) - {default})
        return [
            name
            for name in (default, *others)
            if self._qos_allowed(partition, name, request)
            and (request.bears_preemption or not self._preemption.of_qos(name))
            and (name == default or self._is_usual(name))
        ]

    def _is_usual(self, name: str) -> bool:
        return name not in self._qos or self._qos[name].usage_factor <= 1

    def _qos_allowed(self, partition: Partition, name: str, request: Request) -> bool:
        flags = self._qos[name].flags if name in self._qos else frozenset[str]()
        if "requiresreservation" in {flag.lower() for flag in flags} and not request.reservations:
            return False
        if partition.allow_qos:
            return name in partition.allow_qos
        return name not in partition.deny_qos

    def _owners(
        self, partition: Partition, job_qos: Qos | None, association: Association | None
    ) -> tuple[Owner, ...]:
        if not self._limits_hold:
            return ()
        names = lineage(association.account, self._above) if association else ()
        return owners(
            self._qos.get(partition.qos),
            job_qos,
            (association.account, association.limits) if association else None,
            [self._accounts[name] for name in names if name in self._accounts],
        )

    def _refusal(self, partition: Partition, request: Request) -> str:
        name = partition.name
        if request.qos and not self._qos_allowed(partition, request.qos, request):
            return f"partition {name} does not allow QOS {request.qos}"
        associations = self._associations(partition)
        accounts = [found.account for found in associations]
        if request.account and accounts and request.account not in accounts:
            return f"account {request.account} may not use partition {name}"
        mine = [request.account] if request.account else sorted(set(accounts))
        if not mine and self._snapshot.associations:
            return f"none of your accounts may use partition {name}"
        if mine and not any(_account_allowed(partition, account) for account in mine):
            allowed = ", ".join(sorted(partition.allow_accounts)) or "none of yours"
            return f"partition {name} allows the accounts {allowed}; yours: {', '.join(mine)}"
        if request.qos:
            return f"QOS {request.qos} is not yours to use in partition {name}"
        default = _default_qos(associations[0] if associations else None)
        mode = self._preemption.of_qos(default)
        if mode and self._qos_allowed(partition, default, request):
            remedy = f"--preemptible or --qos {default} asks for it"
            return f"jobs under QOS {default} are preempted ({mode}); {remedy}"
        granted = {name for found in associations for name in found.qos}
        dear = sorted(qos for qos in partition.allow_qos & granted if not self._is_usual(qos))
        if dear:
            factor = f"{self._qos[dear[0]].usage_factor:g} times the usual"
            return f"QOS {dear[0]} costs {factor}; --qos {dear[0]} asks for it"
        allowed = ", ".join(sorted(partition.allow_qos)) or "none of yours"
        return f"partition {name} allows the QOS {allowed}"


def _in_order(associations: tuple[Association, ...], account: str) -> list[Association]:
    wanted = [found for found in associations if not account or found.account == account]
    return sorted(wanted, key=lambda found: (not found.is_default, found.account))


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


_BY_QOS = "qos"
_BY_PARTITION = "partition_prio"


class Preemption:
    """The preemptible partitions and QOS of a snapshot, each with what happens to its jobs."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._partitions: dict[str, str] = {}
        self._qos: dict[str, str] = {}
        # A snapshot that does not say how is read by its partitions, which then say so themselves.
        kind = snapshot.config.preempt_type or _BY_PARTITION
        if kind == _BY_PARTITION:
            self._partitions = _partitions(snapshot)
        elif kind == _BY_QOS:
            self._qos = _qos(snapshot)

    def of_partition(self, name: str) -> str:
        """Say what happens to jobs there ("REQUEUE"); "" where nobody preempts them."""
        return self._partitions.get(name, "")

    def of_qos(self, name: str) -> str:
        """Say what happens to jobs under that QOS; "" where nobody preempts them."""
        return self._qos.get(name, "")


def _partitions(snapshot: Snapshot) -> dict[str, str]:
    """Return those with a lower tier than another partition on one of their nodes."""
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


def _qos(snapshot: Snapshot) -> dict[str, str]:
    """Return those that another QOS may preempt."""
    victims = {name for qos in snapshot.qos for name in qos.preempts}
    modes = {qos.name: qos.preempt_mode or snapshot.config.preempt_mode for qos in snapshot.qos}
    return {name: modes[name] for name in victims if _preempts(modes.get(name, ""))}


def _preempts(mode: str) -> bool:
    return bool(set(mode.upper().split(",")) - {"OFF", "GANG", "", "WITHIN"})


def check_not_skipped(partition: Partition, request: Request, site: Site) -> None:
    """Raise `Infeasible` for a partition that a file leaves out, unless the request names it."""
    name = partition.name
    if name in site.skipped and name not in request.partitions:
        reason = f"partition {name} is skipped by {site.skipped[name]}; -p {name} asks for it"
        raise Infeasible(reason, by_limit=True)


def check_node_count(partition: Partition, charge: Charge, nodes: int) -> None:
    most, least = partition.max_nodes, partition.min_nodes
    if most is not None and nodes > most and not charge.has_flag("PartitionMaxNodes"):
        allowed = f"partition {partition.name} allows {amount('node', most)} a job"
        raise Infeasible(f"{allowed}, {nodes} asked", by_limit=True)
    if nodes < least and not charge.has_flag("PartitionMinNodes"):
        reason = f"partition {partition.name} takes jobs of {amount('node', least)} or more only"
        raise Infeasible(reason, by_limit=True)


def walltime(partition: Partition, charge: Charge, request: Request) -> timedelta:
    """Return the time to ask for: the user's, else the default capped by what is allowed.

    Raises `Infeasible` where the user gave more than that.
    """
    limits: list[tuple[str, timedelta]] = []
    if partition.max_time is not None and not charge.has_flag("PartitionTimeLimit"):
        limits.append((f"MaxTime of partition {partition.name}:", partition.max_time))
    wall = max_wall(charge.order)
    if wall:
        limits.append((f"MaxWall of {wall[0]}:", wall[1]))
    if not request.walltime_given or request.checkpoint:  # what is longer runs in segments
        return min([request.walltime, *(limit for _, limit in limits)])
    for whose, limit in limits:
        if request.walltime > limit:
            raise Infeasible(wall_reason(request.walltime, limit, whose), by_limit=True)
    return request.walltime
