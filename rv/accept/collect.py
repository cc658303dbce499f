"""Collect one result for everything that was to report from the files that a job left. Pure.

Every node reports for a payload that runs once a node, every rank for one under torchrun. Each that
did not is an ERROR, with the reason as far as the node's own notes give one
(`rv.accept.payload_command`). A file of another job, of an earlier restart of this one, or written
before the command began is stale and counts as none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
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
    results: list[RunResult] = []
    for payload in payloads:
        results += _Collector(payload, files, origin).results()
    return tuple(results)


class _Collector:
    """The files of one payload, whose result is `<payload>_result.json`."""

    def __init__(self, payload: str, files: Mapping[str, bytes], origin: Origin) -> None:
        head = f"{payload}/"
        self.payload, self.origin = payload, origin
        self.nodes = origin.nodes or ("?",)
        self.files = {n.removeprefix(head): d for n, d in files.items() if n.startswith(head)}

    def results(self) -> Iterator[RunResult]:
        """Give what rank 0 wrote for all ranks, else what each rank wrote, else each node."""
        own = f"{self.payload}_result.json"
        ranks = sorted(name for name in self.files if _RANK_FILE.fullmatch(name))
        if own in self.files or ranks:
            names = [own] if own in self.files else ranks
            results = [self._read(name) for name in names]
            yield from map(self._placed, results)
            if own not in self.files:
                yield from self._missing_ranks(results)
            for index in range(len(self.nodes)):
                yield from self._crash(index, results)
            return
        for index in range(len(self.nodes)):
            yield from self._of_node(index, f"node{index}/{own}")

    def _of_node(self, index: int, name: str) -> Iterator[RunResult]:
        if name not in self.files:
            begun = f"node{index}.begun" in self.files
            yield self._missing(self._node(index), self._exit(index), begun=begun)
            return
        node = self._node(index)
        result = self._read(name, node)
        tests = tuple(replace(test, host=node) for test in result.tests)
        yield replace(result, hostname=node, tests=tests)
        yield from self._crash(index, [result])

    def _missing_ranks(self, results: list[RunResult]) -> Iterator[RunResult]:
        """Rank 0 merged nothing: give an error for each rank that wrote nothing either."""
        world = max(result.world_size for result in results)
        for rank in sorted(set(range(world)) - {result.rank for result in results}):
            missing = self._missing(self._node_of(rank, world), None, begun=True)
            yield replace(missing, rank=rank)

    def _crash(self, index: int, results: list[RunResult]) -> Iterator[RunResult]:
        """Give an error for a node whose payload said that all is well, and did not end well."""
        exit_code = self._exit(index)
        # torchrun ends with 1 for any code of its ranks.
        explained = any(r.status in (Status.FAIL, Status.ERROR, Status.SKIP) for r in results)
        if exit_code is not None and exit_code not in _DONE and not explained:
            reason = f"said {results[0].status}, and then ended with exit code {exit_code}"
            yield self._error(self._node(index), "crashed", reason)

    def _placed(self, result: RunResult) -> RunResult:
        """Put a result, and each of its tests, on the node of the rank that it speaks of."""
        world, ranks = result.world_size, len(result.hosts)
        tests = tuple(
            replace(test, host=self._node_of(_blamed(test), world)) for test in result.tests
        )
        hosts = {host: self._node_of(rank, ranks) for rank, host in enumerate(result.hosts)}
        devices = tuple(replace(d, host=hosts.get(d.host, d.host)) for d in result.devices)
        node = self._node_of(result.rank or 0, world)
        return replace(result, hostname=node, tests=tests, devices=devices)

    def _node_of(self, rank: int, world: int) -> str:
        """The node of a rank: they are numbered node by node, as many on each."""
        index = rank * len(self.nodes) // max(1, world)
        return self._node(max(0, min(index, len(self.nodes) - 1)))

    def _node(self, index: int) -> str:
        """What the node of this number called itself when it began, else what Slurm calls it."""
        text = self.files.get(f"node{index}.begun", b"").decode("utf-8", errors="replace")
        return printable(text).strip()[:255] or self.nodes[index]

    def _exit(self, index: int) -> int | None:
        text = self.files.get(f"node{index}.exit", b"").strip()
        return int(text) if text.isdigit() and len(text) < 4 else None

    def _read(self, name: str, node: str = "") -> RunResult:
        try:
            result = parse(self.files[name], f"{self.payload}/{name}")
        except ResultError as error:
            return self._error(node, "result_unreadable", str(error))
        if stale := _stale(result, self.origin):
            return self._error(node, "result_stale", f"no result reported: {name} is {stale}")
        return replace(result, test_type=self.payload)

    def _missing(self, node: str, exit_code: int | None, *, begun: bool) -> RunResult:
        code, why = "no_result", self.origin.ended or "the node wrote no exit code either"
        if not begun:
            code, why = "not_run", f"not begun, {self.origin.ended or 'the job ended before'}"
        elif exit_code is not None:
            code, why = _EXITS.get(exit_code, (code, f"exit code {exit_code}"))
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


def _blamed(test: TestResult) -> int:
    """The rank that a test speaks of: one that it names, else the one that reported it."""
    missing = test.details.get("missing")
    if isinstance(missing, list) and missing and isinstance(missing[0], int):
        return missing[0]
    named = _NAMED_RANK.search(test.reason) if test.status is not Status.PASS else None
    return int(named[1]) if named else test.rank or 0


def _stale(result: RunResult, origin: Origin) -> str:
    if result.job_id and result.job_id != str(origin.job_id):
        return f"of job {result.job_id}, not {origin.job_id}"
    if result.job_id and result.restart_count != origin.restart:
        return f"of restart {result.restart_count} of the job, not {origin.restart}"
    began = datetime.fromtimestamp(origin.started_at, tz=UTC)
    if result.timestamp and result.timestamp < began - _CLOCK:
        return f"of {result.timestamp:%Y-%m-%d %H:%M:%S}, before the job began"
    return ""
