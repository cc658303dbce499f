"""Hold a number against what was measured alike on other GPUs of the model. Pure.

In the same run, by the median (`contract.stats`). Where the slow ones are half or more of all, the
median is theirs and cannot say which are at fault: two groups that lie apart are told as such, and
no GPU is blamed. Where a run has no others and no reference, by what other GPUs reached before.
"""

import itertools
import statistics
from collections.abc import Sequence

from rv.accept.measurements import SOUND, Measurement
from rv.accept.remarks import Remark
from rv.accept.results import Status
from rv.payloads.contract.stats import PEER_FAIL, PEER_WARN, PEERS, loss, peer_verdict


def number(measured: Measurement) -> str:
    """Say whose number it is, what it is, and how much."""
    where = " ".join(filter(None, (measured.node, measured.device)))
    return f"{where}: {measured.metric} {measured.value:.4g} {measured.unit}".strip()


def against_peers(measured: Measurement, peers: Sequence[Measurement]) -> Remark | None:
    """Judge a number by all that were measured alike in its run, itself among them."""
    if count(peers) < PEERS:
        return None
    if split := disagreement(measured, peers):
        return split
    values = [peer.value for peer in peers]
    return _outlier(measured, values, "peers")


def against_others(measured: Measurement, others: Sequence[Measurement]) -> Remark | None:
    """Judge a number by what other GPUs reached in earlier runs; of one alone it cannot tell."""
    levels = list(_levels(measured, others).values())
    if len(levels) + 1 >= PEERS:
        return _outlier(measured, [measured.value, *levels], "model's other GPUs in earlier runs")
    if levels and (lost := loss(measured.value, levels[0], measured.direction)) > PEER_FAIL:
        reason = (
            f"{number(measured)} is {lost:.1%} worse than {levels[0]:.4g} of the only other GPU of "
            "its model: they disagree, and nothing says which is right"
        )
        return Remark(status=Status.WARN, code="peers_disagree", reason=reason, lost=lost)
    return None


def has_others(measured: Measurement, others: Sequence[Measurement]) -> bool:
    """Whether any other GPU was measured so before."""
    return bool(_levels(measured, others))


def count(peers: Sequence[Measurement]) -> int:
    """Count the devices that were measured."""
    return len({(peer.node, peer.device) for peer in peers})


def disagreement(measured: Measurement, peers: Sequence[Measurement]) -> Remark | None:
    """Say that peers lie in two groups of which the slow one is half or more of them.

    The groups part at the widest gap between neighbours, in parts of the better value. A single
    fast one is no group.
    """
    fast, slow = _groups(peers)
    if len(fast) < 2 or len(slow) < len(fast) or measured not in slow:
        return None
    low, high = (statistics.median([peer.value for peer in group]) for group in (slow, fast))
    lost = loss(low, high, measured.direction)
    nodes = f" (on {_nodes(slow)}; {_nodes(fast)})"
    reason = (
        f"{number(measured)}: its peers disagree, {len(slow)} of {len(peers)} are {lost:.1%} "
        f"worse than the others, {low:.4g} beside {high:.4g}{nodes}; nothing says which are right"
    )
    status = Status.FAIL if lost > PEER_FAIL else Status.WARN
    return Remark(status=status, code="peers_disagree", reason=reason, lost=lost)


def _groups(
    peers: Sequence[Measurement],
) -> tuple[Sequence[Measurement], Sequence[Measurement]]:
    """Part the fast from the slow at the widest gap; where it is narrow, none are slow."""
    ordered = sorted(peers, key=lambda peer: loss(peer.value, 1.0, peer.direction))
    gaps = [
        loss(worse.value, better.value, worse.direction)
        for better, worse in itertools.pairwise(ordered)
    ]
    widest = max(gaps)
    at = gaps.index(widest) + 1 if widest > PEER_WARN else len(ordered)
    return ordered[:at], ordered[at:]


def _nodes(peers: Sequence[Measurement]) -> str:
    return ", ".join(sorted({peer.node for peer in peers})[:8])


def _levels(measured: Measurement, others: Sequence[Measurement]) -> dict[tuple[str, ...], float]:
    """Give what each other GPU reached, in its sound runs of the same software."""
    values: dict[tuple[str, ...], list[float]] = {}
    for other in others:
        alike = _likeness(other) == _likeness(measured)
        if alike and other.standing == SOUND and other.subject != measured.subject:
            values.setdefault((*other.subject, other.device), []).append(other.value)
    return {subject: statistics.median(each) for subject, each in values.items()}


def _likeness(measured: Measurement) -> tuple[tuple[str, ...], str, bool]:
    """Give what alike numbers share; of old ones of GPUs together nobody knows which these were."""
    return measured.key, measured.fingerprint, bool(measured.members)


def _outlier(measured: Measurement, values: Sequence[float], whose: str) -> Remark | None:
    status = Status(peer_verdict(measured.value, values, measured.direction))
    if status is Status.PASS:
        return None
    median = statistics.median(values)
    lost = loss(measured.value, median, measured.direction)
    reason = f"{number(measured)} is {lost:.1%} worse than the median {median:.4g} of its {whose}"
    return Remark(status=status, code="peer_outlier", reason=reason, lost=lost)
