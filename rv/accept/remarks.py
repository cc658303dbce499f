"""What is wrong with single numbers, and what that makes of the tests that have them. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rv.accept.results import Status, TestResult, worst
from rv.dataclass import dataclass
from rv.payloads.contract.codes import CONTENTION, FREE, OF_SPEED

_BAD: Final = (Status.FAIL, Status.ERROR)
_ABOUT_ITSELF: Final = ("regression", "peer_outlier", "peers_disagree")
"""Remarks that make a value no reference for later ones, though they may only warn."""


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


def explained(tests: Sequence[TestResult]) -> list[TestResult]:
    """Give tests, those of speed on a GPU that others use with that as class and action.

    One without a device is of all of them, as in `contract.schema`, which a payload has of this.
    """
    shared = {(t.host, t.device) for t in tests if t.fault_class == CONTENTION}
    return [
        replace(test, fault=CONTENTION, action=FREE)
        if test.code in OF_SPEED
        and shared
        and (not test.device or (test.host, test.device) in shared)
        else test
        for test in tests
    ]


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
