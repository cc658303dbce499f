"""Links between nodes, or between the GPUs of one, as a matrix; the slow are named. Pure."""

import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rv.accept.report.places import host_of
from rv.accept.results import RunResult, Status, TestResult
from rv.accept.untrusted import list_of, number_of, object_of, text_of
from rv.dataclass import dataclass
from rv.payloads.contract.stats import PEER_FAIL, PEER_WARN, PEERS

Links = Mapping[tuple[str, str], float]
"""Rates in GB/s by pairs of names: from the first to the second."""
_MOST: Final = 64
"""Ends of one matrix: the page has room for no more."""
_MOST_SLOW: Final = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One link of a matrix, None GB/s where it was not measured.

    `status` holds it to the median of all. It is how the link is shown and no verdict: the payload
    and rv's judging have those.
    """

    source: str
    target: str
    rate: float | None = None
    share: float | None = None
    status: Status | str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """All links between some ends: `rows` in the order of `ends`.

    `blamed` are ends most of whose links are slow, as (end, slow links, links); `slow` the worst of
    the other links.

    One that `is_folded` is not seen at once.
    """

    title: str
    ends: Sequence[str]
    rows: Sequence[Sequence[Link]]
    slow: Sequence[Link]
    blamed: Sequence[tuple[str, int, int]]
    median: float
    left_out: int = 0
    is_folded: bool = False

    @property
    def least(self) -> float:
        """The least share of a slow link; 1 where none is slow."""
        links = [link for row in self.rows for link in row]
        slow = [link.share or 0.0 for link in links if link.status not in (Status.PASS, "")]
        return min(slow, default=1.0)


def matrix(title: str, links: Links) -> Matrix:
    """Make the matrix of at least one link, the ends in the order of their names."""
    names = sorted({end for pair in links for end in pair})
    ends, median = names[:_MOST], statistics.median(links.values())
    judged = {pair: _link(pair, rate, median, len(links)) for pair, rate in links.items()}
    blamed = list(_blamed(judged.values()))
    return Matrix(
        title=title,
        ends=ends,
        rows=[
            [judged.get((source, target), Link(source=source, target=target)) for target in ends]
            for source in ends
        ],
        slow=_slow_but_of({end for end, _, _ in blamed}, judged.values())[:_MOST_SLOW],
        blamed=blamed,
        median=median,
        left_out=len(names) - len(ends),
    )


def _slow_but_of(blamed: Collection[str], links: Iterable[Link]) -> list[Link]:
    """List the slow links, the slowest first, without those of ends that are blamed."""
    slow = [link for link in links if link.status != Status.PASS]
    others = [link for link in _once(slow) if not {link.source, link.target} & {*blamed}]
    return sorted(others, key=lambda link: link.share or 0.0)


def both_ways(links: Links) -> Links:
    """Give links without a direction as two each, one either way."""
    return {**{(target, source): rate for (source, target), rate in links.items()}, **links}


def _blamed(links: Iterable[Link]) -> Iterator[tuple[str, int, int]]:
    """Name the ends of which more than half of the links to others are slow, three at least."""
    slow: dict[str, dict[str, bool]] = {}
    for link in links:
        for end, other in ((link.source, link.target), (link.target, link.source)):
            own = slow.setdefault(end, {})
            own[other] = own.get(other, False) or link.status != Status.PASS
    for end, others in sorted(slow.items()):
        count = sum(others.values())
        if count >= PEERS and 2 * count > len(others):
            yield end, count, len(others)


def _once(links: Sequence[Link]) -> Sequence[Link]:
    """Leave out what is the other way of a link with the same rate."""
    kept: dict[tuple[str, str], Link] = {}
    for link in sorted(links, key=lambda each: (each.source, each.target)):
        other = kept.get((link.target, link.source))
        if other is None or other.rate != link.rate:
            kept[link.source, link.target] = link
    return list(kept.values())


def _link(pair: tuple[str, str], rate: float, median: float, count: int) -> Link:
    share = rate / median if median > 0 else None
    status = Status.PASS
    if share is not None and count >= PEERS:
        lost = 1 - share
        status = Status.FAIL if lost > PEER_FAIL else Status.WARN if lost > PEER_WARN else status
    return Link(source=pair[0], target=pair[1], rate=rate, share=share, status=status)


def between_nodes(runs: Sequence[RunResult]) -> Links:
    """Give the best bus bandwidth that a collective reached between each two nodes."""
    links: dict[tuple[str, str], float] = {}
    for run in runs:
        ends = sorted({*run.hosts} - {""})
        rates = [rate for test in run.tests for rate in _bus_bandwidths(test)]
        if run.nnodes == 2 and len(ends) == 2 and rates:
            pair = (ends[0], ends[1])
            links[pair] = max([*rates, links.get(pair, 0.0)])
    return links


def _bus_bandwidths(test: TestResult) -> list[float]:
    found = [m for m in test.metrics if m.unit == "GB/s" and m.name.startswith("busbw")]
    return [metric.value for metric in found if metric.value]


def within_nodes(runs: Sequence[RunResult]) -> Mapping[str, Links]:
    """Give the one-way rates between the GPUs of each node."""
    nodes: dict[str, dict[tuple[str, str], float]] = {}
    for run in runs:
        for test in run.tests:
            for row in map(object_of, list_of(test.details.get("links"))):
                rate = number_of(row.get("one_way"))
                ends = text_of(row.get("source")), text_of(row.get("target"))
                if rate is not None and all(ends):
                    nodes.setdefault(test.host or host_of(run), {})[ends] = rate
    return nodes


def matrices(runs: Sequence[RunResult]) -> list[Matrix]:
    """Give the matrix of nodes where pairs were measured, and one for each node's GPUs.

    Of several nodes those without a slow link are folded, and the worst come first.
    """
    found = []
    if links := between_nodes(runs):
        found.append(matrix("Between nodes, bus bandwidth", both_ways(links)))
    nodes = within_nodes(runs)
    inner = [matrix(f"Between the GPUs of {node}, one way", nodes[node]) for node in sorted(nodes)]
    folded = [replace(each, is_folded=len(inner) > 1 and each.least == 1) for each in inner]
    return found + sorted(folded, key=lambda each: each.least)
