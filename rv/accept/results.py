"""What a payload reported: the results of `rv.accept/1` as frozen values.

`rv.accept.result_files` reads them. Text is bounded and printable; a field of the wrong type
counts as absent; a number that is not finite is None. Times are aware datetimes in UTC.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from rv.dataclass import dataclass
from rv.payloads.contract import codes, verdicts


class ResultError(Exception):
    """A file that is no result, in one printable line that names it and says why."""


class Status(StrEnum):
    """A verdict. FAIL: what was tested is bad; ERROR: it could not be tested; SKIP: no need to."""

    PASS = verdicts.PASS
    WARN = verdicts.WARN
    FAIL = verdicts.FAIL
    SKIP = verdicts.SKIP
    ERROR = verdicts.ERROR


WORST_FIRST: Final = tuple(Status(name) for name in verdicts.WORST_FIRST)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """What a value is compared with.

    `lower` and `warn` are fractions of `value`: -0.25 is a quarter below it; None is no bound.
    `kind` is builtin, golden, site, user or scaled; `source` says where it is from.
    """

    value: float
    lower: float | None = None
    warn: float | None = None
    kind: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One measured number; `value` is None where the payload wrote none that is finite.

    `direction` is `higher` or `lower`, whichever is better; "" for one without. `claimed` is the
    reference that the file itself has. `reference`, `verdict` and `standing` (what the value counts
    for in later runs) are what judging adds. `more` has the fields that are not named here.
    """

    name: str
    value: float | None = None
    unit: str = ""
    direction: str = ""
    n: int | None = None
    median: float | None = None
    p05: float | None = None
    p95: float | None = None
    claimed: float | None = None
    reference: Reference | None = None
    verdict: Status | None = None
    standing: str = "sound"
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class TestResult:
    """One test on one device or rank. `details` is plain JSON, whatever the payload put there.

    `host` is the node that the test speaks of, `fault` the class of what went wrong (HARDWARE,
    FABRIC, STORAGE, SOFTWARE, CONFIG) and `action` what to do; "" where the file says none.
    """

    __test__ = False  # for pytest, whose tests are named so too

    name: str
    status: Status
    code: str = ""
    reason: str = ""
    device: str = ""
    rank: int | None = None
    host: str = ""
    fault: str = ""
    action: str = ""
    timing_ms: float | None = None
    timestamp: datetime | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()

    @property
    def fault_class(self) -> str:
        """Whose fault the outcome is: as the payload says, else as its code does."""
        return self.fault or codes.meaning(self.code).fault

    @property
    def advice(self) -> str:
        """What to do about the outcome: as the payload says, else as its code does."""
        return self.action or codes.meaning(self.code).action

    def metric(self, name: str) -> Metric | None:
        """Find a metric by name."""
        return next((metric for metric in self.metrics if metric.name == name), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One GPU, or slice of one (`mig` is its profile), as the driver reports it.

    `more` has the other fields: serial number, power limit, clocks, PCIe, ECC, remapped rows.
    """

    index: int
    name: str = ""
    uuid: str = ""
    mig: str = ""
    host: str = ""
    memory_bytes: int | None = None
    sm_count: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """One result file: what one payload's one process (or its rank 0, for all) reported.

    `test_type` is the payload; `rank` None where one file speaks for all ranks, which it lists:
    their numbers are `ranks`, and in the same order `hosts` are their nodes. `status` is the worst
    of the file's own summary and its tests. `env` is plain JSON. `is_legacy` says that it was
    written before `rv.accept/1`.

    `node` is what the node called itself, `token` the word that the job gave this run of the
    payload (`tokens` those of all ranks), `exit_code` what it meant to end with. `began` is
    when its job began, 0 where that is not known; `timestamp` is by the node's own clock.
    """

    test_type: str
    status: Status
    hostname: str = ""
    timestamp: datetime | None = None
    began: float = 0.0
    rank: int | None = None
    method_version: int = 0
    argv: tuple[str, ...] = ()
    duration_s: float | None = None
    quick: bool = False
    job_id: str = ""
    nodelist: str = ""
    restart_count: int = 0
    world_size: int = 1
    nnodes: int = 1
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    node: str = ""
    token: str = ""
    tokens: tuple[str, ...] = ()
    exit_code: int | None = None
    backend: str = ""
    env: Mapping[str, Any] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    tests: tuple[TestResult, ...] = ()
    is_legacy: bool = False
    source: str = ""

    @property
    def reason(self) -> str:
        """Why the status is what it is: the first test's reason; what a PASS could not test."""
        if self.status is not Status.PASS:
            return next((test.reason for test in self._with(self.status) if test.reason), "")
        for test in self._with(Status.SKIP):
            if test.reason and test.code != "not_asked":
                return f"without {test.name}: {test.reason}"
        return ""

    @property
    def code(self) -> str:
        """The stable code of the first test that has the run's status."""
        return next((test.code for test in self._with(self.status) if test.code), "")

    def _with(self, status: Status) -> list[TestResult]:
        """List its tests of that status; those interrupted for another's failure come last."""
        tests = [test for test in self.tests if test.status is status]
        return sorted(tests, key=lambda test: test.code == "interrupted")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobTimes:
    """When a job was submitted, and when it was known to be over; 0 where that is not known.

    This machine's clock says it. When a job began its node says, whose clock may be wrong.
    """

    submitted_at: float = 0.0
    over_at: float = 0.0


Jobs = Mapping[str, JobTimes]
"""The jobs of a run by their ids."""


def worst(statuses: Collection[Status]) -> Status:
    """Return the verdict that wins; ERROR where there is none, as nothing was tested."""
    return Status(verdicts.worst(statuses))


def verdict(results: Sequence[RunResult]) -> Status:
    """Return the worst status of all results of a run."""
    return worst([result.status for result in results])


def exit_code(results: Sequence[RunResult], *, strict: bool, skip: int) -> int:
    """Return the exit code of a run.

    0 for PASS and WARN (1 for WARN where `strict`), 1 for FAIL, `skip` where all was skipped. ERROR
    is 99, or 124 or 75 where every error is a payload out of time, or preempted, to be run again.
    """
    errors = {result.code for result in results if result.status is Status.ERROR}
    return verdicts.exit_code(verdict(results), strict=strict, skip=skip, error_codes=errors)
