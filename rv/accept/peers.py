"""Hold a number against what was measured alike on other GPUs of the model. Pure.

In the same run, by the median (`contract.stats`). Where the slow ones are half or more of all, the
median is theirs and cannot say which are at fault: two groups that lie apart are told as such, and
no GPU is blamed. Where a run has no others and no reference, by what other GPUs reached before.
"""

import itertools
import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Final

from rv.accept.measurements import SOUND, Measurement
from rv.accept.remarks import Remark
from rv.accept.results import Status
from rv.payloads.contract.stats import PEER_FAIL, PEER_WARN, PEERS, loss, peer_verdict

_MILDEST_FIRST: Final = (Status.PASS, Status.WARN, Status.FAIL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """Peers in two groups of which the slow one is half or more of them.

    `slow` are its values, `lost` how much worse their median is, as a fraction of the others'.
    """

    slow: frozenset[float]
    lost: float
    reason: str


def number(measured: Measurement) -> str:
    """Say whose number it is, what it is, and how much."""
    where = " ".join(filter(None, (measured.node, measured.device)))
    return f"{where}: {measured.metric} {measured.value:.4g} {measured.unit}".strip()


@dataclass(frozen=True, kw_only=True)
class PeerGroup:
    """All numbers that were measured alike in a run, at least one, better in the same direction.

    What they share is worked out once: a sweep has thousands of them.
    """

    measured: Sequence[Measurement]

    @cached_property
    def count(self) -> int:
        """How many devices were measured."""
        return len({(peer.node, peer.device) for peer in self.measured})

    @cached_property
    def values(self) -> Sequence[float]:
        """Their values, the best first."""
        return [peer.value for peer in self._best_first]

    @cached_property
    def median(self) -> float:
        """The median of their values."""
        return statistics.median(self.values)

    @cached_property
    def outliers(self) -> Mapping[float, Status]:
        """The values that are no PASS by the rule for peers, with their verdicts."""

        def severity(value: float) -> int:
            return _MILDEST_FIRST.index(Status(peer_verdict(value, self.values, self._direction)))

        # A worse value has no better verdict, so that a few verdicts tell those of all.
        warned, failed = (bisect_left(self.values, bad, key=severity) for bad in (1, 2))
        return {
            **dict.fromkeys(self.values[warned:failed], Status.WARN),
            **dict.fromkeys(self.values[failed:], Status.FAIL),
        }

    @cached_property
    def disagreement(self) -> Disagreement | None:
        """The two groups in which they lie, where the slow one is half or more; else None.

        They part at the widest gap between neighbours, in parts of the better value. A single fast
        one is no group.
        """
        at = self._begin_of_slow()
        fast, slow = self._best_first[:at], self._best_first[at:]
        if len(fast) < 2 or len(slow) < len(fast):
            return None
        low, high = (statistics.median([peer.value for peer in group]) for group in (slow, fast))
        lost = loss(low, high, self._direction)
        nodes = f" (on {_nodes(slow)}; {_nodes(fast)})"
        reason = (
            f"its peers disagree, {len(slow)} of {len(self.measured)} are {lost:.1%} worse than "
            f"the others, {low:.4g} beside {high:.4g}{nodes}; nothing says which are right"
        )
        return Disagreement(slow=frozenset(peer.value for peer in slow), lost=lost, reason=reason)

    @property
    def _direction(self) -> str:
        return self.measured[0].direction

    @cached_property
    def _best_first(self) -> Sequence[Measurement]:
        is_rate = self._direction == "higher"
        return sorted(self.measured, key=attrgetter("value"), reverse=is_rate)

    def _begin_of_slow(self) -> int:
        """Give the place behind the widest gap; where that is narrow, none are slow."""
        gaps = [
            loss(worse, better, self._direction)
            for better, worse in itertools.pairwise(self.values)
        ]
        widest = max(gaps, default=0.0)
        return gaps.index(widest) + 1 if widest > PEER_WARN else len(self.values)


def against_peers(measured: Measurement, peers: PeerGroup) -> Remark | None:
    """Judge a number by all that were measured alike in its run, itself among them."""
    if peers.count < PEERS:
        return None
    if (split := peers.disagreement) and measured.value in split.slow:
        status = Status.FAIL if split.lost > PEER_FAIL else Status.WARN
        reason = f"{number(measured)}: {split.reason}"
        return Remark(status=status, code="peers_disagree", reason=reason, lost=split.lost)
    status = peers.outliers.get(measured.value, Status.PASS)
    return _outlier(measured, status, peers.median, "peers")


def against_others(measured: Measurement, others: Sequence[Measurement]) -> Remark | None:
    """Judge a number by what other GPUs reached in earlier runs; of one alone it cannot tell."""
    levels = list(_levels(measured, others).values())
    if len(levels) + 1 >= PEERS:
        values = [measured.value, *levels]
        status = Status(peer_verdict(measured.value, values, measured.direction))
        median = statistics.median(values)
        return _outlier(measured, status, median, "model's other GPUs in earlier runs")
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


def _nodes(peers: Sequence[Measurement]) -> str:
    return ", ".join(sorted({peer.node for peer in peers})[:8])


def _levels(measured: Measurement, others: Sequence[Measurement]) -> dict[tuple[str, ...], float]:
    """Give what each other GPU reached, in its sound runs of the same software."""
    values: dict[tuple[str, ...], list[float]] = {}
    for other in others:
        alike = _likeness(other) == _likeness(measured)
        if alike and other.standing == SOUND and other.subject != measured.subject:
            values.setdefault(other.device_key, []).append(other.value)
    return {device: statistics.median(each) for device, each in values.items()}


def _likeness(measured: Measurement) -> tuple[tuple[str, ...], str, bool]:
    """Give what alike numbers share; of old ones of GPUs together nobody knows which these were."""
    return measured.key, measured.fingerprint, bool(measured.members)


def _outlier(measured: Measurement, status: Status, median: float, whose: str) -> Remark | None:
    if status is Status.PASS:
        return None
    lost = loss(measured.value, median, measured.direction)
    reason = f"{number(measured)} is {lost:.1%} worse than the median {median:.4g} of its {whose}"
    return Remark(status=status, code="peer_outlier", reason=reason, lost=lost)
