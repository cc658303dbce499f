"""What a report shows; the HTML page and the Markdown text are made of it. Pure.

Details of results are untrusted: what is not of the shape that a payload writes is passed over.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final

from rv.accept.report.charts import Chart
from rv.accept.report.expected import Compared, compared
from rv.accept.report.gpus import GpuRow, gpu_rows, key_of
from rv.accept.report.heat import HeatRow, heat_rows, payloads_of
from rv.accept.report.links import Matrix, matrices
from rv.accept.report.places import place_of
from rv.accept.report.trend_rows import TrendRow
from rv.accept.results import WORST_FIRST, RunResult, Status, TestResult, worst

_BAD: Final = (Status.FAIL, Status.ERROR, Status.WARN)
_VERSIONS: Final = ("torch", "cuda", "nccl", "cudnn", "driver", "python", "os")


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole report of some runs, which are judged; `about` says in a line what they were."""

    title: str
    when: datetime
    runs: Sequence[RunResult]
    about: str = ""
    charts: Sequence[Chart] = ()
    trends: Sequence[TrendRow] = field(default=())

    @property
    def verdict(self) -> Status:
        """The worst verdict of all runs."""
        return worst([run.status for run in self.runs])

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many nodes have each verdict."""
        statuses = [row.status for row in self.nodes]
        return {status: statuses.count(status) for status in WORST_FIRST}

    @cached_property
    def findings(self) -> list[tuple[RunResult, TestResult]]:
        """Each test that did not pass, once, and each bad run without such a test; worst first."""
        findings = dict[tuple[str, ...], tuple[RunResult, TestResult]]()
        for run in self.runs:
            tests = [test for test in run.tests if test.status in _BAD]
            if run.status in _BAD and not tests:
                tests = [TestResult(name="", status=run.status, reason="it gave no reason")]
            for test in tests:
                what = (test.status, place_of(run, test), run.test_type, test.name, test.code)
                findings.setdefault((*what, test.reason), (run, test))
        return sorted(findings.values(), key=lambda finding: WORST_FIRST.index(finding[1].status))

    @property
    def cautions(self) -> Sequence[str]:
        """What a reader has to know before the verdict: that GPUs, or faults, were made up."""
        is_sandbox = any(test.code == "fake_gpu" for run in self.runs for test in run.tests)
        faults = dict.fromkeys(itertools.chain.from_iterable(map(_injected, self.runs)))
        said = ["A sandbox's GPUs are made up: no GPU was tested."] if is_sandbox else []
        return said + [f"A fault was made on purpose: --inject {fault}." for fault in faults]

    @property
    def payloads(self) -> Sequence[str]:
        """The payloads that ran."""
        return payloads_of(self.runs)

    @cached_property
    def numbers(self) -> Sequence[Compared]:
        """Every number with what is expected of it."""
        return compared(self.runs)

    @cached_property
    def nodes(self) -> Sequence[HeatRow]:
        """Each node with a cell for each payload, the outliers first."""
        return heat_rows(self.runs, self.numbers)

    @cached_property
    def gpus(self) -> Sequence[GpuRow]:
        """Each GPU once, the worst first."""
        return gpu_rows(self.runs, self.numbers)

    @cached_property
    def matrices(self) -> Sequence[Matrix]:
        """The links between nodes, and between the GPUs of a node."""
        return matrices(self.runs)

    @property
    def environment(self) -> Mapping[str, str]:
        """The GPUs by model, and the versions of the software."""
        gpus: dict[str, set[str]] = {}
        for run in self.runs:
            for device in run.devices:
                gpus.setdefault(device.name, set()).add(key_of(run, device))
        counts = [f"{len(keys)} x {name}" for name, keys in sorted(gpus.items())]
        rows = {"GPUs": ", ".join(counts)}
        for name in _VERSIONS:
            versions = {str(run.env[name]) for run in self.runs if run.env.get(name)}
            rows[name] = ", ".join(sorted(versions))
        return {name: value for name, value in rows.items() if value}


def _injected(run: RunResult) -> Iterator[str]:
    """Give the faults that a run was told to make."""
    for flag, fault in itertools.pairwise(run.argv):
        if flag == "--inject":
            yield fault
