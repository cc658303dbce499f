"""Under which account and QOS a user may use a partition, if at all."""

from collections.abc import Iterator
from dataclasses import dataclass

from rv.models.request import Request
from rv.models.snapshot import Association, Partition, Snapshot
from rv.planner.limits import Owner, owners
from rv.planner.reasons import Unfit

_USUAL_QOS = "normal"
"""The QOS that Slurm gives a user to whom nobody gave another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Charge:
    """An account and a QOS to ask for, "" for the default, and whose limits then count."""

    account: str
    qos: str
    order: tuple[Owner, ...]
    qos_flags: frozenset[str] = frozenset()


class Access:
    """What the snapshot's user may use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._qos = {qos.name: qos for qos in snapshot.qos}
        self._contested = _contested(snapshot)

    def check_partition(self, partition: Partition, request: Request) -> None:
        """Raise `Unfit` where the partition takes no job of this user, whatever its size."""
        name = partition.name
        asked_for = name in request.partitions
        reserved = any(key == "reservation" for key, _ in request.sbatch)
        groups, is_root = self._snapshot.groups, self._snapshot.user == "root"
        if partition.state.upper() != "UP":
            raise Unfit(f"partition {name} is {partition.state.upper()}", by_limit=True)
        if partition.needs_reservation and not reserved:
            raise Unfit(f"partition {name} takes jobs in a reservation only", by_limit=True)
        if partition.root_only and not is_root:
            raise Unfit(f"partition {name} is for root only", by_limit=True)
        if partition.hidden and not asked_for:
            raise Unfit(f"partition {name} is hidden; -p {name} asks for it", by_limit=True)
        if partition.allow_groups and groups and not (is_root or groups & partition.allow_groups):
            allowed = ", ".join(sorted(partition.allow_groups))
            raise Unfit(f"partition {name} is for the groups {allowed}", by_limit=True)
        if name in self._contested and not asked_for:
            mode = partition.preempt_mode
            raise Unfit(f"jobs there are preempted ({mode}); -p {name} asks for it", by_limit=True)

    def charges(self, partition: Partition, request: Request) -> tuple[Charge, ...]:
        """Return the ways to charge a job there, the user's defaults first.

        Raises `Unfit` where there is none.
        """
        found = list(self._charges(partition, request))
        if found:
            return tuple(found)
        raise Unfit(self._refusal(partition, request), by_limit=True)

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
        granted = association.qos if association else ()
        default = _default_qos(association)
        name = request.qos or default
        if request.qos and granted and request.qos not in granted:
            return
        asked = request.qos
        if not _qos_allowed(partition, name):
            others = sorted(set(granted or partition.allow_qos) - {name})
            usable = [other for other in others if _qos_allowed(partition, other)]
            if request.qos or not usable:
                return
            name = asked = usable[0]
        job_qos = self._qos.get(name)
        order = owners(
            self._qos.get(partition.qos),
            job_qos,
            (association.account, association.limits) if association else None,
        )
        flags = job_qos.flags if job_qos else frozenset[str]()
        yield Charge(account=account, qos=asked, order=order, qos_flags=flags)

    def _refusal(self, partition: Partition, request: Request) -> str:
        name = partition.name
        if request.qos and not _qos_allowed(partition, request.qos):
            return f"partition {name} does not allow QOS {request.qos}"
        accounts = [found.account for found in self._associations(partition)]
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


def _qos_allowed(partition: Partition, qos: str) -> bool:
    if partition.allow_qos:
        return qos in partition.allow_qos
    return qos not in partition.deny_qos


def _default_qos(association: Association | None) -> str:
    if association is None:
        return _USUAL_QOS
    if association.default_qos:
        return association.default_qos
    return association.qos[0] if len(association.qos) == 1 else _USUAL_QOS


def _contested(snapshot: Snapshot) -> frozenset[str]:
    """Name the preemptible partitions: lower in tier than another on one of their nodes."""
    highest: dict[str, int] = {}
    for partition in snapshot.partitions:
        for node in partition.nodes:
            highest[node] = max(highest.get(node, 0), partition.priority_tier)
    return frozenset(
        partition.name
        for partition in snapshot.partitions
        if set(partition.preempt_mode.upper().split(",")) - {"OFF", "GANG", "", "WITHIN"}
        and any(highest[node] > partition.priority_tier for node in partition.nodes)
    )
