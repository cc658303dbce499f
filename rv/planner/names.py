"""Check that the partitions, accounts, QOS, nodes and features of a request are there."""

from collections.abc import Iterable

from rv.errors import ErrorKind, RvError
from rv.models.request import Request
from rv.models.snapshot import Partition, Snapshot
from rv.planner.constraints import choices, names
from rv.planner.documents import nearest


def check_names(request: Request, snapshot: Snapshot) -> None:
    """Raise `RvError(USAGE)` for the first name that the cluster does not have.

    What the snapshot could not read (QOS and accounts without slurmdbd) is not judged.
    """
    if request.gpus < 0:
        raise RvError(
            ErrorKind.USAGE, f"{request.gpus} is no number of GPUs", hint="use --gpu 0 or more"
        )
    for name in request.partitions:
        _check("partition", name, (partition.name for partition in snapshot.partitions))
    if request.qos and snapshot.qos:
        _check("QOS", request.qos, (qos.name for qos in snapshot.qos))
    if request.account and snapshot.associations:
        mine = (association.account for association in snapshot.associations)
        _check("account of yours", request.account, mine)
    named = (*request.exclude_nodes, *request.only_nodes)
    nodes = {node.name for node in snapshot.nodes} if named else set()
    for name in named:
        _check("node", name, nodes)
    for name in request.reservations:
        _check("reservation", name, (r.name for r in snapshot.reservations))
    if request.constraint:
        choices(request.constraint)
        known = frozenset(feature for node in snapshot.nodes for feature in node.features)
        for name in names(request.constraint):
            _check("node feature", name, known)


def chosen_partitions(request: Request, snapshot: Snapshot) -> tuple[Partition, ...]:
    """Return the partitions the request names, or all of them."""
    wanted = frozenset(request.partitions)
    return tuple(p for p in snapshot.partitions if not wanted or p.name in wanted)


def _check(kind: str, name: str, known: Iterable[str]) -> None:
    names = sorted(set(known))
    if name in names:
        return
    near = nearest(name, names)
    named = f", nearest: {near}" if near else ""
    hint = f"here: {', '.join(names[:20])}" if names else ""
    raise RvError(ErrorKind.USAGE, f"there is no {kind} {name!r}{named}", hint=hint)
