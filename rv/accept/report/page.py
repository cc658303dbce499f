"""What a report shows, as one frozen value; the HTML page and the Markdown text are made of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rv.accept.report.charts import Chart


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is not as it should be: where, what was seen, and what to do."""

    status: str
    where: str
    test: str
    code: str
    reason: str
    action: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRow:
    """What each payload said of one node, in the order of the page's payloads; "" where not run."""

    node: str
    verdicts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuRow:
    """One GPU, its worst verdict, and its figures in the order of the page's columns."""

    node: str
    index: int
    name: str
    uuid: str
    status: str
    figures: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """One run of a payload, with every test's outcome and figures."""

    payload: str
    where: str
    status: str
    when: str
    seconds: float
    tests: tuple[tuple[str, str, str, str], ...]
    """Name, status, figures, reason of each test."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A whole report."""

    title: str
    verdict: str
    when: str
    counts: Mapping[str, int]
    findings: Sequence[Finding]
    payloads: Sequence[str]
    nodes: Sequence[NodeRow]
    figures: Sequence[str]
    gpus: Sequence[GpuRow]
    charts: Sequence[Chart]
    runs: Sequence[RunRow]
    environment: Sequence[tuple[str, str]]
