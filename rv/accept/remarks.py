"""What is wrong with single numbers, and what that makes of the tests that have them. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from rv.accept.measurements import bare_uuid, device_of, node_of
from rv.accept.results import RunResult, Status, TestResult, worst
from rv.dataclass import dataclass
from rv.payloads.contract.codes import CONTENTION, FREE, OF_SPEED

_BAD: Final = (Status.FAIL, Status.ERROR)
_ABOUT_ITSELF: Final = ("regression", "peer_outlier", "peers_disagree")
"""Remarks that make a value no reference for later ones, though they may only warn."""

_SEEN: Final = ("gpu_busy", "memory_held")
"""Codes of who saw another user; `contended` only tells a rate that somebody may take a part of."""

Gpu = tuple[str, str]
"""A GPU as `gpu_key` names it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """What is wrong with one number.

    `lost` is by how much it is worse than what it is held against, a fraction of that. With
    `is_of_place` sound GPUs differ so too, by where they are in a node, or how they are linked.
    """

    status: Status
    code: str
    reason: str
    lost: float = 0.0
    is_of_place: bool = False

    @property
    def is_spoiling(self) -> bool:
        """Whether it makes its value no reference for later ones."""
        return self.status in _BAD or self._is_about_itself

    @property
    def is_telling(self) -> bool:
        """Whether its code goes before others of its status.

        Behind another warning nobody would see that the GPU is slower than it was. Of a failure the
        other code says better whose fault it is.
        """
        return self.status is Status.WARN and self._is_about_itself

    @property
    def _is_about_itself(self) -> bool:
        return self.code in _ABOUT_ITSELF and not self.is_of_place


def softened(remark: Remark) -> Remark:
    """Make a warning of a remark on what sound GPUs may differ in by their place in a node."""
    reason = f"{remark.reason}; so may sound ones, by where they are in a node"
    return replace(remark, status=Status.WARN, reason=reason, is_of_place=True)


def gpu_key(node: str, device: str, uuid: str) -> Gpu:
    """Name a GPU by its UUID, as each payload numbers its own; else by its node and number."""
    return ("", bare_uuid(uuid)) if uuid else (node, device)


def seen_shared(results: Sequence[RunResult]) -> frozenset[Gpu]:
    """Give the GPUs on which any payload of a run saw another user."""
    return frozenset(
        _gpu_of(test, result)
        for result in results
        for test in _beside_others(result)
        if test.device and test.code in _SEEN
    )


def shared_gpus(result: RunResult, seen: Collection[Gpu]) -> frozenset[Gpu]:
    """Give the GPUs that somebody else used beside a result, as it says, or as was seen in its run.

    What was slow between nodes beside others' traffic is told without a device.
    """
    own = {_gpu_of(test, result) for test in _beside_others(result) if test.device}
    return frozenset(own.union(seen))


def is_of_shared(result: RunResult, shared: Collection[Gpu]) -> bool:
    """Whether what is told without a device is of a shared GPU: it is of all of its result's."""
    nodes = {node_of(test, result) for test in result.tests}
    own = {gpu_key(each.host or result.hostname, "", each.uuid) for each in result.devices}
    is_near = any(gpu in own if not gpu[0] else gpu[0] in nodes for gpu in shared)
    return is_near or any(True for _ in _beside_others(result))


def explained(results: Sequence[RunResult]) -> list[RunResult]:
    """Give a run's results, tests of speed with what explains them as class and action.

    That is who else uses the GPU, which another payload may have seen there, or the transport that
    NCCL took.
    """
    seen = seen_shared(results)
    shared = [_beside_shared(result, shared_gpus(result, seen)) for result in results]
    return [_over_wrong_transport(result) for result in shared]


def _over_wrong_transport(result: RunResult) -> RunResult:
    """Tell a wrong transport before the collectives that are slow over it, which it explains."""
    causes = [test for test in result.tests if _is_wrong_transport(test)]
    if not causes:
        return result
    fault, action = causes[0].fault_class, causes[0].advice
    others = [
        replace(test, fault=fault, action=action)
        if test.code == "slow_fabric" and test.fault_class != CONTENTION
        else test
        for test in result.tests
        if not _is_wrong_transport(test)
    ]
    return replace(result, tests=(*causes, *others))


def _is_wrong_transport(test: TestResult) -> bool:
    return test.code == "wrong_transport" and test.status is Status.FAIL


def _beside_shared(result: RunResult, shared: Collection[Gpu]) -> RunResult:
    is_near = is_of_shared(result, shared)
    tests = tuple(
        replace(test, fault=CONTENTION, action=FREE)
        if test.code in OF_SPEED and (_gpu_of(test, result) in shared if test.device else is_near)
        else test
        for test in result.tests
    )
    return replace(result, tests=tests)


def _beside_others(result: RunResult) -> Iterator[TestResult]:
    for test in result.tests:
        if test.status in (Status.WARN, Status.FAIL) and test.fault_class == CONTENTION:
            yield test


def _gpu_of(test: TestResult, result: RunResult) -> Gpu:
    device = device_of(test, result)
    return gpu_key(node_of(test, result), test.device, device.uuid if device else "")


def worsened(test: TestResult, remarks: Sequence[Remark]) -> TestResult:
    """Make a test as bad as its worst remark, and keep both reasons, that of the code first."""
    status = worst([test.status, *(remark.status for remark in remarks)])
    first = _first(test, status, remarks)
    if first is None:
        return test
    more = f" (and {len(remarks) - 1} more)" if len(remarks) > 1 else ""
    reasons = [f"{first.reason}{more}", test.reason]
    if status is test.status and not first.is_telling:
        return replace(test, reason="; ".join(filter(None, reversed(reasons))))
    reason = "; ".join(filter(None, reasons))
    if test.fault_class == CONTENTION:  # others on the GPU explain it
        return replace(test, status=status, reason=reason)
    return replace(test, status=status, code=first.code, reason=reason, fault="", action="")


def _first(test: TestResult, status: Status, remarks: Sequence[Remark]) -> Remark | None:
    """Choose the remark of this status to tell; None where the test says as much itself."""
    own = test.code if status is test.status else ""
    found = [each for each in remarks if each.status is status and each.code != own]
    return min(found, key=lambda each: not each.is_telling, default=None)
