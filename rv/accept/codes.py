"""Whose fault a test's outcome is, and what to do about it. Pure."""

from enum import StrEnum

from rv.accept.results import TestResult
from rv.payloads.contract import codes
from rv.payloads.contract.codes import CODES, meaning


class Action(StrEnum):
    """Actions, as reports show them."""

    EXCLUDE = codes.EXCLUDE
    LOOK = codes.LOOK
    RETRY = codes.RETRY


def known_codes() -> frozenset[str]:
    """Every code that has a meaning."""
    return frozenset(CODES)


def blame(test: TestResult) -> tuple[str, str]:
    """Whose fault a test's outcome is and what to do: as the payload says, else as its code."""
    known = meaning(test.code)
    return test.fault or known.fault, test.action or known.action
