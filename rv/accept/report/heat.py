"""Nodes and payloads as a map: how each did, the outliers first. Pure."""

from collections.abc import Iterator, Sequence

from rv.accept.report.expected import Compared
from rv.accept.report.places import BETWEEN, host_of
from rv.accept.results import WORST_FIRST, RunResult, Status, worst
from rv.dataclass import dataclass

SILENT = "sweep"
"""The payload that a node of a sweep has which reported nothing."""
_WARM, _HOT = 0.97, 0.85
"""Shares between which a cell that passed changes its colour."""
_GOOD = (Status.PASS, Status.WARN)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatCell:
    """One payload on one node: its worst verdict, "" where it did not run.

    `share` is the least part of what was expected that a rate of a GPU reached, None for none;
    `why` says of which number it is.
    """

    status: Status | str = ""
    share: float | None = None
    why: str = ""

    @property
    def text(self) -> str:
        """What the cell shows: a verdict that is bad, else how much was reached."""
        if self.status == Status.PASS and self.share is not None:
            return f"{self.share:.0%}"
        return self.status or "-"

    @property
    def heat(self) -> float:
        """How far a rate that passed is from what was expected: 0 is all of it, 1 the least."""
        share = _WARM if self.share is None else self.share
        return min(1.0, max(0.0, (_WARM - share) / (_WARM - _HOT)))


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatRow:
    """One node with a cell for each payload, in the order of the columns."""

    node: str
    status: Status
    cells: Sequence[HeatCell]

    @property
    def share(self) -> float:
        """The least share of its cells; 1 where there is none."""
        return min((cell.share for cell in self.cells if cell.share is not None), default=1.0)


def payloads_of(runs: Sequence[RunResult]) -> list[str]:
    """Name the payloads that ran."""
    return [name for name in dict.fromkeys(run.test_type for run in runs) if name != SILENT]


def heat_rows(runs: Sequence[RunResult], numbers: Sequence[Compared]) -> list[HeatRow]:
    """Give a row for each node: the worst verdicts first, then those that reached the least.

    What is between nodes, as a sweep over pairs has it, is no node.
    """
    statuses: dict[str, dict[str, list[Status]]] = {}
    for run in runs:
        if host_of(run) == BETWEEN:
            continue
        for node, status in _by_node(run):
            statuses.setdefault(node, {}).setdefault(run.test_type, []).append(status)
    least = _least_shares(numbers)
    payloads = payloads_of(runs)
    rows = [
        HeatRow(
            node=node,
            status=worst([status for many in found.values() for status in many]),
            cells=[_cell(found.get(name), least.get((node, name))) for name in payloads],
        )
        for node, found in statuses.items()
    ]
    return sorted(rows, key=lambda row: (WORST_FIRST.index(row.status), row.share, row.node))


def _by_node(run: RunResult) -> Iterator[tuple[str, Status]]:
    """Pair nodes with statuses; a verdict that no test has is the reporting node's.

    Nodes that took part in a run that is good, and that no test speaks of, share its verdict.
    """
    statuses = [(test.host or host_of(run), test.status) for test in run.tests]
    yield from statuses
    if run.status not in {status for _, status in statuses}:
        yield host_of(run), run.status
    if run.status in _GOOD:
        for host in sorted({*run.hosts} - {host for host, _ in statuses} - {""}):
            yield host, Status.PASS


def _least_shares(numbers: Sequence[Compared]) -> dict[tuple[str, str], Compared]:
    """Give the number that reached the least of what was expected, by node and payload."""
    least: dict[tuple[str, str], Compared] = {}
    for each in numbers:
        share, place = each.share, (each.measured.node, each.measured.payload)
        if share is None or not each.measured.is_of_gpus:
            continue
        if place not in least or share < (least[place].share or 0.0):
            least[place] = each
    return least


def _cell(statuses: Sequence[Status] | None, least: Compared | None) -> HeatCell:
    if not statuses:
        return HeatCell()
    if least is None:
        return HeatCell(status=worst(statuses))
    where = " ".join(filter(None, (least.test.name, least.metric.name, least.measured.device)))
    value, expected = least.measured.value, least.expected
    why = f"{where}: {value:.4g} of {expected:.4g} {least.metric.unit}, {least.basis}"
    return HeatCell(status=worst(statuses), share=least.share, why=why)
