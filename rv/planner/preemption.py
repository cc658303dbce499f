"""Whose jobs others may preempt: by partition or by QOS, as the cluster has it."""

from rv.models.snapshot import Snapshot

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
