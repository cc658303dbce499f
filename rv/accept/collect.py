"""Collect one result for everything that was to report from the files that a job left. Pure.

Every node reports for a payload that runs once a node, every rank for one under torchrun. Each that
did not is an ERROR, with the reason as far as the node's own notes give one
(`rv.accept.payload_command`). A file of another job, of an earlier restart of this one, or written
before the command began is stale and counts as none.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from rv.accept.result_files import parse
from rv.accept.results import ResultError, RunResult, Status, TestResult
from rv.slurm.values import printable

_CLOCK: Final = timedelta(seconds=2)
_RANK_FILE: Final = re.compile(r"[^/]*\.ranks/rank-\d{5,9}\.json", re.ASCII)
_NAMED_RANK: Final = re.compile(r"\brank (\d{1,6}) on\b", re.ASCII)
_DONE: Final = (0, 77)
_EXITS: Final = {
    2: ("usage", "the payload did not take its arguments"),
    75: ("preempted", "it was preempted and asks to be run again"),
    124: ("timeout", "it did not end in its time"),
    137: ("timeout", "it was killed: past its time, or out of memory"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The job whose results count; `started_at` is when its command began.

    `ended` is how the race ended, in a sentence, for what was never begun.
    """

    job_id: int = 0
    restart: int = 0
    nodes: tuple[str, ...] = ()
    started_at: float = 0.0
    ended: str = ""


def result_patterns(payloads: Sequence[str], nodes: int) -> tuple[str, ...]:
    """Name what to fetch from the race's folder of results, for so many nodes.

    Only a last part has wildcards: folders that other nodes made are opened, not looked for.
    """
    patterns: list[str] = []
    for payload in payloads:
        folders = ("", f"{payload}_result.ranks/", *(f"node{i}/" for i in range(max(1, nodes))))
        patterns += [f"{payload}/{folder}*.json" for folder in folders]
        patterns += [f"{payload}/node*.begun", f"{payload}/node*.exit"]
    return tuple(patterns)


def collect(
    files: Mapping[str, bytes], payloads: Sequence[str], origin: Origin
) -> tuple[RunResult, ...]:
    """Give every result of the payloads, and an ERROR for each that is missing or unreadable."""
    collectors = [_Collector(payload, files, origin) for payload in payloads]
    return tuple(result for collector in collectors for result in collector.results())


class _Collector:
    """The files of one payload."""

    def __init__(self, payload: str, files: Mapping[str, bytes], origin: Origin) -> None:
        head = f"{payload}/"
        self.payload, self.origin = payload, origin
        self.nodes = origin.nodes or ("?",)
        self.files = {n.removeprefix(head): d for n, d in files.items() if n.startswith(head)}

    def results(self) -> Iterator[RunResult]:
        """Give what rank 0 wrote for all ranks, else what each rank wrote, else each node."""
        whole = self._read_all(name for name in self.files if "/" not in name)
        ranks = self._read_all(name for name in self.files if _RANK_FILE.fullmatch(name))
        if whole:
            yield from (self._placed(result) for result in whole)
            yield from self._crashed(whole)
        elif ranks:
            yield from self._of_ranks(ranks)
        else:
            for index, node in enumerate(self.nodes):
                yield from self._of_node(index, node)

    def _read_all(self, names: Iterable[str], node: str = "") -> list[RunResult]:
        """Read the file of the payload's own name; where there is none, what others are results.

        Payloads leave more JSON beside it: older names for the same, notes, logs.
        """
        paths = sorted(filter(_is_result, names))
        own = [path for path in paths if path.rpartition("/")[2] == f"{self.payload}_result.json"]
        results = [self._read(path, node) for path in own or paths]
        return results if own else _most_current(results)

    def _of_node(self, index: int, node: str) -> Iterator[RunResult]:
        node = self._named(index) or node
        below = f"node{index}/"
        names = (n for n in self.files if n.startswith(below) and n.count("/") == 1)
        results = self._read_all(names, node)
        for result in results:
            tests = tuple(replace(test, host=node) for test in result.tests)
            yield replace(result, tests=tests)
        exit_code = self._exit(index)
        if not results:
            yield self._missing(node, exit_code, begun=f"node{index}.begun" in self.files)
        elif fault := _contradiction(results, exit_code):
            yield self._error(node, "crashed", fault)

    def _of_ranks(self, results: list[RunResult]) -> Iterator[RunResult]:
        """Rank 0 merged nothing: give each rank's own, and an error for each that is missing."""
        yield from (self._placed(result) for result in results)
        world = max(result.world_size for result in results)
        reported = {result.rank for result in results}
        for rank in sorted(set(range(world)) - reported):
            missing = self._missing(self._node_at(rank, world), None, begun=True)
            yield replace(missing, rank=rank)
        yield from self._crashed(results)

    def _crashed(self, results: list[RunResult]) -> Iterator[RunResult]:
        for index, node in enumerate(self.nodes):
            if fault := _contradiction(results, self._exit(index)):
                yield self._error(self._named(index) or node, "crashed", fault)

    def _placed(self, result: RunResult) -> RunResult:
        """Put a result, and each of its tests, on the node of the rank that it speaks of."""
        world = result.world_size
        tests = tuple(
            replace(test, host=self._node_at(_blamed(test), world)) for test in result.tests
        )
        ranks = len(result.hosts)
        hosts = {host: self._node_at(rank, ranks) for rank, host in enumerate(result.hosts)}
        devices = tuple(replace(d, host=hosts.get(d.host, d.host)) for d in result.devices)
        node = self._node_at(result.rank or 0, world)
        return replace(result, hostname=node, tests=tests, devices=devices)

    def _node_at(self, rank: int, world: int) -> str:
        """The node of a rank: they are numbered node by node, as many on each."""
        index = rank * len(self.nodes) // max(1, world)
        index = max(0, min(index, len(self.nodes) - 1))
        return self._named(index) or self.nodes[index]

    def _named(self, index: int) -> str:
        """What the node of this number called itself when it began."""
        text = self.files.get(f"node{index}.begun", b"").decode("utf-8", errors="replace")
        return printable(text).strip()[:255]

    def _exit(self, index: int) -> int | None:
        text = self.files.get(f"node{index}.exit", b"").strip()
        return int(text) if text.isdigit() and len(text) < 4 else None

    def _read(self, name: str, node: str) -> RunResult:
        try:
            result = parse(self.files[name], f"{self.payload}/{name}")
        except ResultError as error:
            return self._error(node, "result_unreadable", str(error))
        if stale := _stale(result, self.origin):
            return self._error(node, "result_stale", f"no result reported: {name} is {stale}")
        return replace(result, test_type=self.payload, hostname=node or result.hostname)

    def _missing(self, node: str, exit_code: int | None, *, begun: bool) -> RunResult:
        if not begun:
            why = self.origin.ended or "the job ended before"
            return self._error(node, "not_run", f"no result reported: not begun, {why}")
        if exit_code is None:
            why = self.origin.ended or "the node wrote no exit code either"
            return self._error(node, "no_result", f"no result reported: {why}")
        code, why = _EXITS.get(exit_code, ("no_result", f"exit code {exit_code}"))
        return self._error(node, code, f"no result reported: {why}")

    def _error(self, node: str, code: str, reason: str) -> RunResult:
        test = TestResult(name=self.payload, status=Status.ERROR, code=code, reason=reason)
        return RunResult(
            test_type=self.payload,
            status=Status.ERROR,
            hostname=node,
            job_id=str(self.origin.job_id),
            restart_count=self.origin.restart,
            tests=(test,),
            source=self.payload,
        )


def _most_current(results: list[RunResult]) -> list[RunResult]:
    """Choose the results of `rv.accept/1`, else those of legacy formats, else the first fault."""
    readable = [result for result in results if result.code != "result_unreadable"]
    current = [result for result in readable if not result.is_legacy]
    return current or readable or results[:1]


def _is_result(name: str) -> bool:
    file = name.rpartition("/")[2]
    return file.endswith(".json") and not file.startswith(".")


def _blamed(test: TestResult) -> int:
    """The rank that a test speaks of: one that it names, else the one that reported it."""
    missing = test.details.get("missing")
    if isinstance(missing, list) and missing and isinstance(missing[0], int):
        return missing[0]
    named = _NAMED_RANK.search(test.reason) if test.status is not Status.PASS else None
    return int(named[1]) if named else test.rank or 0


def _contradiction(results: Sequence[RunResult], exit_code: int | None) -> str:
    """A payload that said that all is well, and then did not end well."""
    if exit_code is None or exit_code in _DONE:
        return ""
    if any(r.status in (Status.FAIL, Status.ERROR, Status.SKIP) for r in results):
        return ""  # torchrun ends with 1 for any code of its ranks
    return f"said {results[0].status}, and then ended with exit code {exit_code}"


def _stale(result: RunResult, origin: Origin) -> str:
    if result.job_id and result.job_id != str(origin.job_id):
        return f"of job {result.job_id}, not {origin.job_id}"
    if result.job_id and result.restart_count != origin.restart:
        return f"of restart {result.restart_count} of the job, not {origin.restart}"
    began = datetime.fromtimestamp(origin.started_at, tz=UTC)
    if result.timestamp and result.timestamp < began - _CLOCK:
        return f"of {result.timestamp:%Y-%m-%d %H:%M:%S}, before the job began"
    return ""
