"""Collect one result for everything that was to report from the files that a job left. Pure.

Every node reports for a payload that runs once a node, every rank for one under torchrun. Each that
did not is an ERROR, with the reason as far as the node's own notes give one
(`rv.accept.payload_command`). A file of another job, of an earlier restart of this one, of another
node, rank or payload counts as none: by the token that a node noted and the result repeats, and
without one (of an older rv) by its time. A PASS that lacks part of what was planned is an ERROR.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from rv.accept.measurements import bare_uuid
from rv.accept.origin import SIGKILLED, Origin, without_its_end, without_what_a_kill_caused
from rv.accept.result_checks import lacking_gpus, refusal, shortfall, with_flaws
from rv.accept.result_files import parse
from rv.accept.results import ResultError, RunResult, Status, TestResult
from rv.payloads.contract.catalogue import EVERY_GPU, NODE, PAYLOADS
from rv.payloads.contract.codes import UNKNOWN
from rv.slurm.printable import printable

_CLOCK: Final = timedelta(minutes=15)
"""How far a node's clock may be behind, where no token tells whose a file is."""
_RANK_FILE: Final = re.compile(r"[^/]*\.ranks/rank-(\d{5,9})\.json", re.ASCII)
_NAMED_RANK: Final = re.compile(r"\brank (\d{1,6}) on\b", re.ASCII)
_OF_DECLINED: Final = "tell the administrators what the reason says of their node, or free the GPU"
_SKIPPED: Final = 77
_KILLED: Final = 137
_EXITS: Final = {
    2: ("usage", "the payload did not take its arguments"),
    75: ("preempted", "it was preempted and asks to be run again"),
    124: ("timeout", "it did not end in its time"),
    _KILLED: ("killed", f"it was {SIGKILLED}"),
}


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
    return without_twins(results)


def without_twins(results: Sequence[RunResult]) -> tuple[RunResult, ...]:
    """Make an ERROR of results that have a GPU on two nodes: one of them is another's."""
    nodes: dict[str, set[str]] = {}
    for result in results:
        for device in result.devices:
            node = device.host or result.hostname
            nodes.setdefault(bare_uuid(device.uuid), set()).add(node)
    twins = {uuid: sorted(names) for uuid, names in nodes.items() if uuid and len(names) > 1}
    return tuple(with_flaws(result, _twins_in(result, twins)) for result in results)


def _twins_in(result: RunResult, twins: Mapping[str, Sequence[str]]) -> list[str]:
    uuids = dict.fromkeys(uuid for d in result.devices if (uuid := bare_uuid(d.uuid)) in twins)
    if any(test.code == "result_invalid" for test in result.tests):
        return []
    return [f"GPU {uuid} is on {' and on '.join(twins[uuid])}" for uuid in uuids]


class _Collector:
    """The files of one payload, whose result is `<payload>_result.json`."""

    def __init__(self, payload: str, files: Mapping[str, bytes], origin: Origin) -> None:
        head = f"{payload}/"
        self.payload, self.origin = payload, origin
        self.nodes = origin.nodes or ("?",)
        self.files = {n.removeprefix(head): d for n, d in files.items() if n.startswith(head)}
        self.planned = [
            n.removeprefix(f"{payload} ") for n in origin.planned if n.startswith(f"{payload} ")
        ]
        self.starts = next((p.starts for p in PAYLOADS if p.name == payload), NODE)

    def results(self) -> Iterator[RunResult]:
        """Give the results; where a payload was killed that, in place of what it caused."""
        found = [without_its_end(result, self.origin) for result in self._results()]
        killed = [index for index in range(len(self.nodes)) if self._exit(index) == _KILLED]
        if killed:
            found = list(filter(None, map(without_what_a_kill_caused, found)))
        yield from found
        code, why = _EXITS[_KILLED]
        told = {result.hostname for result in found if result.code == code}
        for node in map(self._node, killed):
            if node not in told:
                yield self._error(node, code, f"not run to its end: {why}")

    def _results(self) -> Iterator[RunResult]:
        """Give what rank 0 wrote for all ranks, else what each rank wrote, else each node."""
        own = f"{self.payload}_result.json"
        ranks = sorted(name for name in self.files if _RANK_FILE.fullmatch(name))
        if own in self.files:
            merged = self._merged(own)
            yield from self._of_ranks([with_flaws(merged, list(self._unheard(merged, ranks)))])
        elif ranks:
            results = [self._whole(self._placed(self._read(name))) for name in ranks]
            lacking = lacking_gpus(results, self.origin.gpus) if self.planned else []
            yield from self._of_ranks([with_flaws(result, lacking) for result in results])
            yield from self._missing_ranks(results)
        else:
            for index in range(len(self.nodes)):
                yield from self._of_node(index, f"node{index}/{own}")

    def _of_ranks(self, results: list[RunResult]) -> Iterator[RunResult]:
        yield from results
        for index in range(len(self.nodes)):
            yield from self._crash(index, results)

    def _merged(self, name: str) -> RunResult:
        """Read what rank 0 wrote for all ranks, which lists them."""
        result = self._whole(self._placed(self._read(name)))
        is_listed = result.world_size == 1 or result.hosts
        return with_flaws(result, [] if is_listed else ["it lists no ranks"])

    def _unheard(self, merged: RunResult, ranks: Sequence[str]) -> Iterator[str]:
        """Name the ranks' own files that are none, or say worse than what rank 0 wrote for all."""
        if merged.status in (Status.FAIL, Status.ERROR):
            return
        for name in ranks:
            own = self._read(name)
            is_bad = own.status in (Status.FAIL, Status.ERROR)
            if is_bad and own.code != "result_stale":  # an earlier start of the job had more ranks
                yield f"beside it {name.rpartition('/')[2]} says {own.status}: {own.reason}"

    def _of_node(self, index: int, name: str) -> Iterator[RunResult]:
        begun = f"node{index}.begun" in self.files
        if name not in self.files or not begun:
            yield self._missing(self._node(index), self._exit(index), begun=begun)
            return
        node = self._node(index)
        result = self._read(name, node)
        tests = tuple(replace(test, host=node) for test in result.tests)
        result = self._whole(replace(result, hostname=node, tests=tests))
        yield result
        yield from self._crash(index, [result])

    def _missing_ranks(self, results: list[RunResult]) -> Iterator[RunResult]:
        """Rank 0 merged nothing: give an error for each rank that wrote nothing either."""
        world = max(result.world_size for result in results)
        for rank in sorted(set(range(world)) - {result.rank for result in results}):
            index = self._index_of(rank, world)
            missing = self._missing(self._node(index), self._exit(index), begun=True)
            yield replace(missing, rank=rank)

    def _crash(self, index: int, results: list[RunResult]) -> Iterator[RunResult]:
        """Give an error for a node whose payload said that all is well, and did not end well."""
        exit_code, said = self._exit(index), {result.status for result in results}
        # torchrun ends with 1 for any code of its ranks.
        ends = (0, 1, _SKIPPED) if Status.SKIP in said else (0,)
        if said & {Status.FAIL, Status.ERROR} or exit_code in ends:
            return
        code, how = self._end_of(exit_code)
        reason = f"said {results[0].status}, and then {how}"
        yield self._error(self._node(index), code, reason)

    def _end_of(self, exit_code: int | None) -> tuple[str, str]:
        """Name how a payload ended that had said its verdict."""
        if exit_code is None:
            if self.origin.cut_off:
                return self.origin.cut_off, self.origin.ended
            return "crashed", "wrote no exit code"
        return _EXITS.get(exit_code, ("crashed", f"ended with exit code {exit_code}"))

    def _placed(self, result: RunResult) -> RunResult:
        """Put a result, and each of its tests, on the node of the rank that it speaks of."""
        world = result.world_size
        tests = tuple(
            replace(test, host=self._node_of(_blamed(test), world)) for test in result.tests
        )
        listed = zip(result.ranks, result.hosts, strict=True)
        hosts = {host: self._node_of(rank, world) for rank, host in listed}
        devices = tuple(replace(d, host=hosts.get(d.host, d.host)) for d in result.devices)
        node = self._node_of(result.rank or 0, world)
        return replace(result, hostname=node, tests=tests, devices=devices)

    def _node_of(self, rank: int, world: int) -> str:
        return self._node(self._index_of(rank, world))

    def _index_of(self, rank: int, world: int) -> int:
        """The number of a rank's node: ranks are numbered node by node, as many on each."""
        index = rank * len(self.nodes) // max(1, world)
        return max(0, min(index, len(self.nodes) - 1))

    def _node(self, index: int) -> str:
        """What the node of this number called itself when it began, else what Slurm calls it."""
        return self._note(index)[0] or self.nodes[index]

    def _note(self, index: int) -> tuple[str, str]:
        """What the node of this number noted when it began: its name, and this run's token."""
        text = self.files.get(f"node{index}.begun", b"").decode("utf-8", errors="replace")
        lines = [printable(line).strip()[:255] for line in text.split("\n")]
        return lines[0], lines[1] if len(lines) > 1 else ""

    def _exit(self, index: int) -> int | None:
        """The exit code that a node noted; none of a kill that belonged to the end of the job."""
        text = self.files.get(f"node{index}.exit", b"").strip()
        code = int(text) if text.isdigit() and len(text) < 4 else None
        return None if code == _KILLED and self.origin.cut_off else code

    def _read(self, name: str, node: str = "") -> RunResult:
        try:
            result = parse(self.files[name], f"{self.payload}/{name}")
        except ResultError as error:
            return self._error(node, "result_unreadable", str(error))
        tokens, rank = self._tokens(result, name), _RANK_FILE.fullmatch(name)
        code, why = refusal(result, self.payload, node, tokens)
        if self.planned and not code:  # of a job of this rv, or one as new
            code, why = _not_as_new(result, tokens)
        if rank and result.rank != int(rank[1]):
            code, why = "result_foreign", f"is of rank {result.rank}"
        if stale := _stale(result, self.origin, is_told=all(tokens)):
            code, why = "result_stale", f"is {stale}"
        if not code:
            return result
        refused = self._error(node, code, f"no result reported: {name} {why}")
        if rank:
            refused = replace(refused, rank=int(rank[1]), world_size=result.world_size)
        return refused

    def _tokens(self, result: RunResult, name: str) -> list[str]:
        """The tokens that its nodes noted: of the rank that wrote a file, then of those listed."""
        ranks = [result.rank or 0, *result.ranks]
        if name.startswith("node"):
            index = int(name.partition("/")[0].removeprefix("node"))
            return [self._note(index)[1]] * len(ranks)
        return [self._note(self._index_of(rank, result.world_size))[1] for rank in ranks]

    def _whole(self, result: RunResult) -> RunResult:
        """Make an ERROR of a result that says PASS and lacks part of what was planned."""
        is_of_ranks = self.starts != NODE and self.planned
        world = max(self.origin.gpus, len(self.nodes)) if is_of_ranks else 0
        missing = shortfall(result, self.planned, self._gpus_of(result), world)
        if self.origin.gpus and result.status is Status.SKIP and result.code == "no_gpu":
            missing.append(f"it found no GPU, {self.origin.gpus} were planned")
        return with_flaws(result, missing)

    def _gpus_of(self, result: RunResult) -> int:
        """How many GPUs a result has to list, 0 where that is unknown: CUDA shows one MIG slice."""
        gpus = self.origin.gpus
        if any(device.mig for device in result.devices):
            return 0
        if self.payload in EVERY_GPU:
            return gpus // len(self.nodes)
        if self.starts == NODE or not self.planned or result.status is Status.SKIP:
            return 0
        is_of_all = bool(result.hosts) or result.world_size == 1
        return gpus if is_of_all else min(gpus, 1)

    def _missing(self, node: str, exit_code: int | None, *, begun: bool) -> RunResult:
        code, why = "no_result", self.origin.ended or "the node wrote no exit code either"
        if begun and exit_code in _EXITS:
            code, why = _EXITS[exit_code]
        elif begun and self.origin.cut_off:
            code = self.origin.cut_off
        elif begun and exit_code is not None:
            why = f"exit code {exit_code}"
        elif self.origin.has_completed:
            code, why = "results_lost", "there is none, though the job ran to its end"
        elif not begun:
            return self._not_begun(node)
        return self._error(node, code, f"no result reported: {why}")

    def _not_begun(self, node: str) -> RunResult:
        """Say how the job ended before the payload's turn."""
        code = self.origin.cut_off or "not_run"
        if not self.origin.job_id:
            code = "not_started"
        why = f"not begun, {self.origin.ended or 'the job ended before'}"
        missing = self._error(node, code, f"no result reported: {why}")
        if not self.origin.was_declined:
            return missing
        (test,) = missing.tests
        return replace(missing, tests=(replace(test, fault=UNKNOWN, action=_OF_DECLINED),))

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


def _not_as_new(result: RunResult, tokens: Sequence[str]) -> tuple[str, str]:
    """Say what a job whose tests are known did not write so, with its code; "" for nothing."""
    if result.is_legacy:
        return "result_invalid", "is of an older format than its job writes"
    if not all(tokens):
        return "result_foreign", "has no token that its node noted: the note of it is damaged"
    return "", ""


def _blamed(test: TestResult) -> int:
    """The rank that a test speaks of: one that it names, else the one that reported it."""
    missing = test.details.get("missing")
    if isinstance(missing, list) and missing and isinstance(missing[0], int):
        return missing[0]
    named = _NAMED_RANK.search(test.reason) if test.status is not Status.PASS else None
    return int(named[1]) if named else test.rank or 0


def _stale(result: RunResult, origin: Origin, *, is_told: bool) -> str:
    """Say what a file is left from; its time counts only where no token told whose it is."""
    if result.job_id and result.job_id != str(origin.job_id):
        return f"of job {result.job_id}, not {origin.job_id}"
    if result.job_id and result.restart_count != origin.restart:
        return f"of restart {result.restart_count} of the job, not {origin.restart}"
    began = datetime.fromtimestamp(origin.started_at, tz=UTC)
    if not is_told and result.timestamp and result.timestamp < began - _CLOCK:
        return f"of {result.timestamp:%Y-%m-%d %H:%M:%S}, before the job began"
    return ""
