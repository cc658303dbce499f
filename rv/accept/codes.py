"""What the codes stand for that are given on this side: whose fault, and what to do. Pure.

A payload tells the class and the action of its own codes in its result; these are the codes of
judging and collecting, and of results older than that.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rv.accept.results import TestResult


class FaultClass(StrEnum):
    """Whose fault a failure is."""

    HARDWARE = "HARDWARE"
    FABRIC = "FABRIC"
    SOFTWARE = "SOFTWARE"
    CONFIG = "CONFIG"
    UNKNOWN = "UNKNOWN"


class Action(StrEnum):
    """What to do about a failure, the strongest first."""

    EXCLUDE = "leave this node out and tell its administrators"
    RETRY = "run it again; if it stays, leave this node out and tell its administrators"
    LOOK = "look at the details; nothing is proven broken"
    FIX = "look at the reason, and fix what it names"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Meaning:
    """The class and the action of a code."""

    fault: FaultClass
    action: Action


_UNKNOWN: Final = Meaning(FaultClass.UNKNOWN, Action.RETRY)
_CODES: Final = {
    FaultClass.HARDWARE: {
        Action.EXCLUDE: "wrong_result peer_outlier throttled_thermal too_hot",
        Action.RETRY: "below_floor regression",
        Action.LOOK: "below_reference jitter",
    },
    FaultClass.SOFTWARE: {
        Action.FIX: "above_peak no_progress failed exit_code",
        Action.RETRY: "crashed no_result result_unreadable result_stale metric_missing timeout",
    },
    FaultClass.CONFIG: {
        Action.EXCLUDE: "gpu_mismatch",
        Action.FIX: "usage",
        Action.RETRY: "preempted not_run",
        Action.NONE: "no_gpu",
    },
}
_MEANINGS: Final = {
    code: Meaning(fault, action)
    for fault, actions in _CODES.items()
    for action, words in actions.items()
    for code in words.split()
}


def meaning(code: str) -> Meaning:
    """Look a code up; one that nobody knows is UNKNOWN, to be run again."""
    return _MEANINGS.get(code, _UNKNOWN)


def blame(test: TestResult) -> tuple[str, str]:
    """Whose fault a test's outcome is and what to do: the payload's word, else the code's."""
    known = meaning(test.code)
    return test.fault or known.fault, test.action or known.action


def known_codes() -> frozenset[str]:
    """Every code that has a meaning."""
    return frozenset(_MEANINGS)
