"""The job whose results count, and what its end did to them. Pure."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rv.accept.results import RunResult, Status, TestResult, worst
from rv.dataclass import dataclass
from rv.models.race import RaceState
from rv.payloads.contract.codes import CAUSED_BY_A_KILL, CONFIG

_MORE_TIME: Final = "give the job more time with --time"
_CUT_OFF: Final[Mapping[str, str]] = {
    RaceState.CANCELLED: "interrupted",
    RaceState.TIMEOUT: "timeout",
    RaceState.DEADLINE: "timeout",
    RaceState.PREEMPTED: "preempted",
    RaceState.LOST: "no_result",
}
_ENDED_BY_SIGTERM: Final = re.compile(r"\bcode -15\b")
_ENDED_BY_SIGKILL: Final = re.compile(r"\bby itself with code -9\b")
SIGKILLED: Final = "killed (SIGKILL), as the kernel does where memory runs out"


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The job whose results count; `started_at` is when its command began.

    `ended` is how the race ended, in a sentence, for what was never begun, and `state` its state,
    "" in records of an older rv. `gpus` are those of the
    whole job, 0 for none. `planned` are the tests that its results have to have, each as
    "payload test"; both are empty in records of an older rv.
    """

    job_id: int = 0
    restart: int = 0
    nodes: tuple[str, ...] = ()
    started_at: float = 0.0
    ended: str = ""
    state: str = ""
    gpus: int = 0
    planned: tuple[str, ...] = ()

    @property
    def has_completed(self) -> bool:
        """Whether the job's command, which runs every payload, ran to its end."""
        return self.state == RaceState.COMPLETED

    @property
    def was_declined(self) -> bool:
        """Whether every node failed the check that goes before the command."""
        return self.state == RaceState.DECLINED

    @property
    def cut_off(self) -> str:
        """The code of what the job's end cut off, "" where the job ended by itself."""
        return _CUT_OFF.get(self.state, "")


def without_what_a_kill_caused(result: RunResult) -> RunResult | None:
    """Leave out what the SIGKILL of a rank caused on others; None where nothing else is left."""
    tests = tuple(test for test in result.tests if test.code not in CAUSED_BY_A_KILL)
    if len(tests) == len(result.tests):
        return result
    return replace(result, tests=tests, status=worst([t.status for t in tests])) if tests else None


def without_its_end(result: RunResult, origin: Origin) -> RunResult:
    """Let nothing count against a node that the end of its job caused, or the kernel.

    Slurm's SIGTERM reaches a payload's workers too, and one may be found ended before the payload
    hears of it. How the job ended is the reason why a test was interrupted.
    """
    tests = tuple(map(_killed, result.tests))
    if origin.cut_off:
        tests = tuple(_cut_off(test, origin) for test in tests)
    if tests == result.tests:
        return result
    return replace(result, tests=tests, status=worst([test.status for test in tests]))


def _killed(test: TestResult) -> TestResult:
    """Tell of a worker that was killed: no GPU and no driver sends SIGKILL."""
    if test.code != "worker_failed" or not _ENDED_BY_SIGKILL.search(test.reason):
        return test
    reason = f"{test.reason}: {SIGKILLED}"
    return replace(test, status=Status.ERROR, code="killed", reason=reason, fault="", action="")


def _cut_off(test: TestResult, origin: Origin) -> TestResult:
    is_ended = test.code == "worker_failed" and _ENDED_BY_SIGTERM.search(test.reason)
    is_told = test.code == origin.cut_off and origin.ended in test.reason
    if not (is_ended or is_told or test.code == "interrupted"):
        return test
    reason = test.reason if is_told else f"{test.reason}: {origin.ended}"
    cut_off = replace(test, status=Status.ERROR, code=origin.cut_off, reason=reason)
    if origin.cut_off == "timeout":
        return replace(cut_off, fault=CONFIG, action=_MORE_TIME)
    return replace(cut_off, fault="", action="")
