"""The nodes that a run found bad or good again, and a text for their administrators. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from rv.accept.measurements import FAULTY, bare_uuid, device_of, node_of
from rv.accept.results import Jobs, JobTimes, RunResult, Status, TestResult
from rv.avoided_nodes import DAY_S, MOST_DAYS, ON_PURPOSE, AvoidedNode, FailedTest
from rv.payloads.contract.codes import EXCLUDE, HARDWARE, OF_SPEED
from rv.payloads.contract.rates import RATE_UNITS
from rv.payloads.contract.schema import SURROUNDINGS

_ONLY_IN_FAILURES: Final = (
    "ranks",
    "membw.patterns",
    "alloc.stress",
    "alloc.launch",
    "nccl_tests.all_reduce",
    "dataload.files",
)
"""Tests, beside one of the payload's own name, that a result has where they fail and never where
they pass: they say in what part of the payload a program or the driver gave up."""
_OF_ALL_GPUS: Final = ("matmul.peers", "membw.peers_alike", "stress.peers", "inference.peers")
"""Tests that name the GPUs that are slower than the others; where some are, no other is named."""
_NOT_LOOKED: Final = (
    "telemetry_unreadable",
    "nvml_unavailable",
    "dcgm_unavailable",
    "underloaded",
)
"""What a test warns of that could not look at what it is to look at."""


_UNKNOWN: Final[Jobs] = MappingProxyType({})


def bad_nodes(
    results: Sequence[RunResult],
    run: str,
    now_s: float,
    days: int,
    repairs: Mapping[str, float] | None = None,
    jobs: Jobs = _UNKNOWN,
) -> tuple[AvoidedNode, ...]:
    """Return the nodes whose own hardware failed, to be avoided for so many days from `now_s`.

    An ERROR says nothing about a node, nor does a fault of the fabric or of software, nor one of a
    job that began before the node was repaired.
    """
    repaired = repairs or {}
    bad: dict[str, AvoidedNode] = {}
    until = now_s + min(days, MOST_DAYS) * DAY_S
    for result in results:
        since = result.began or now_s
        over_at = _times_of(result, jobs).over_at
        for test in filter(is_of_hardware, result.tests):
            node = node_of(test, result)
            if not node or since <= repaired.get(node, -math.inf):
                continue
            new = AvoidedNode(
                node=node, since=since, until=until, run=run, was_quick=True, is_injected=True
            )
            entry = _found_in(result, bad.get(node, new), since, over_at)
            bad[node] = _accused(entry, test, result)
    return tuple(bad.values())


def _found_in(result: RunResult, entry: AvoidedNode, since: float, over_at: float) -> AvoidedNode:
    return replace(
        entry,
        since=max(since, entry.since),
        over_at=max(over_at, entry.over_at),
        was_quick=entry.was_quick and result.quick,
        is_injected=entry.is_injected and "--inject" in result.argv,
    )


def _accused(entry: AvoidedNode, test: TestResult, result: RunResult) -> AvoidedNode:
    """Add a failed test, and the GPUs that it may be the fault of, to what is known of its node."""
    evidence = f"{result.test_type} {test.name} {test.code}: {test.reason}"
    suspects = _suspects(test, result)
    if len(suspects) > 1:
        evidence = f"{evidence} (which of {len(suspects)} GPUs it was is not known)"
    if "--inject" in result.argv:
        evidence += ON_PURPOSE
    return replace(
        entry,
        evidence=(*entry.evidence, evidence),
        uuids=tuple(dict.fromkeys((*entry.uuids, *suspects))),
        failed=tuple(dict.fromkeys((*entry.failed, to_pass(test, result)))),
    )


def to_pass(test: TestResult, result: RunResult) -> FailedTest:
    """Say what has to pass, and on which GPUs, before a failed test counts no more."""
    is_told = test.name not in (result.test_type, *_ONLY_IN_FAILURES)
    return FailedTest(
        payload=result.test_type,
        test=_base(test) if is_told else "",
        uuids=tuple(_suspects(test, result)),
        is_of_speed=test.code in OF_SPEED,
    )


def _base(test: TestResult) -> str:
    """Return a test's name on the first rank: which rank a GPU has differs from job to job."""
    return test.name.removesuffix(".rank")


def _suspects(test: TestResult, result: RunResult) -> list[str]:
    """Name the GPU that a test was on; where nobody knows, all that the run had of its node."""
    device = device_of(test, result)
    if device and device.uuid:
        return [device.uuid]
    node = node_of(test, result)
    return [each.uuid for each in result.devices if each.host in ("", node) and each.uuid]


def cleared(results: Sequence[RunResult]) -> frozenset[str]:
    """Return the nodes where every payload ended, none failed, and no GPU is slower than before.

    One that was slow is good again when it has been at its old level for three runs.
    """
    fine = {r.hostname for r in results if r.status in (Status.PASS, Status.WARN)}
    other = {r.hostname for r in results if r.status in (Status.FAIL, Status.ERROR)}
    blamed = {
        test.host or result.hostname for result in results for test in result.tests if _is_bad(test)
    }
    return frozenset(fine - other - blamed)


def _is_bad(test: TestResult) -> bool:
    """Whether a test failed, or a value of it is slower than before or than others."""
    slower = any(metric.standing == FAULTY for metric in test.metrics)
    return slower or test.status is Status.FAIL or test.code == "regression"


def still_accused(
    before: Sequence[AvoidedNode], results: Sequence[RunResult], jobs: Jobs = _UNKNOWN
) -> frozenset[str]:
    """Return the avoided nodes where not all that failed was tried again, by a newer job.

    Storage that is fast says nothing of a GPU that computes wrong, nor does another GPU, nor a
    quick run of what a long one found, nor a test that could not look. A job is newer where it was
    submitted when the one that failed was known to be over: clocks of nodes may be wrong.
    """
    return frozenset(entry.node for entry in before if not _is_answered(entry, results, jobs))


def _is_answered(entry: AvoidedNode, results: Sequence[RunResult], jobs: Jobs) -> bool:
    """Whether all that accuses a node passed since, on all GPUs that are accused."""
    later = [result for result in results if _may_answer(result, entry, jobs)]
    accusers = entry.accusers
    return bool(accusers) and all(has_passed(failed, later, entry.node) for failed in accusers)


def _may_answer(result: RunResult, entry: AvoidedNode, jobs: Jobs) -> bool:
    is_fine = result.status in (Status.PASS, Status.WARN)
    is_thorough = entry.was_quick or not result.quick
    is_newer = _is_newer(result, entry, _times_of(result, jobs))
    return is_fine and is_thorough and is_newer and result.hostname == entry.node


def _is_newer(result: RunResult, entry: AvoidedNode, job: JobTimes) -> bool:
    """Whether a result's job certainly began after those that failed; else the failure counts.

    Where this machine's clock says nothing of either, as of an older rv's, that of nodes has to do.
    """
    if job.over_at and entry.over_at:
        return job.submitted_at >= entry.over_at
    return result.began > entry.since


def _times_of(result: RunResult, jobs: Jobs) -> JobTimes:
    """Give the times of a result's job; of one that names none, as of pairs, those of them all."""
    own = [jobs[result.job_id]] if result.job_id in jobs else jobs.values()
    return JobTimes(
        submitted_at=min((job.submitted_at for job in own), default=0.0),
        over_at=max((job.over_at for job in own), default=0.0),
    )


def has_passed(failed: FailedTest, later: Sequence[RunResult], node: str) -> bool:
    """Whether what failed passed in these results of its node, on each GPU in one at least."""
    own = (result for result in later if result.test_type == failed.payload)
    tried = [gpus for gpus in (_tried(failed, each, node) for each in own) if gpus is not None]
    return bool(tried) and set(map(bare_uuid, failed.uuids)) <= set[str]().union(*tried)


def _tried(failed: FailedTest, result: RunResult, node: str) -> set[str] | None:
    """Give the GPUs of a node on which a result says that what failed is fine; None for nothing."""
    if not failed.test:
        return None if _was_skipped(result) else _gpus_of("", result, node)
    looked, blind = _looked_and_blind(failed, result, node)
    if not looked or not all(test.device for test in blind):
        return None
    return _seen_by(looked, result, node) - _seen_by(blind, result, node)


def _looked_and_blind(
    failed: FailedTest, result: RunResult, node: str
) -> tuple[list[TestResult], list[TestResult]]:
    """Give a node's tests of the name that failed: those that passed, and those without a look."""
    looked, blind = list[TestResult](), list[TestResult]()
    for test in result.tests:
        if _base(test) != failed.test or node_of(test, result) != node:
            continue
        if _is_blind(test, failed):
            blind.append(test)
        elif test.status in (Status.PASS, Status.WARN):
            looked.append(test)
    return looked, blind


def _seen_by(tests: Sequence[TestResult], result: RunResult, node: str) -> set[str]:
    """Give the GPUs of some tests; one that holds GPUs against each other is of them all."""
    devices = ["" if test.name in _OF_ALL_GPUS else test.device for test in tests]
    return set[str]().union(*(_gpus_of(device, result, node) for device in devices))


def _is_blind(test: TestResult, failed: FailedTest) -> bool:
    """Whether a test warns that it could not look: it takes from what others of its name saw.

    A rate that is not to be judged, as the GPU waited for its process, says nothing of its speed.
    """
    if test.status is not Status.WARN:
        return False
    rates = [metric for metric in test.metrics if metric.unit in RATE_UNITS]
    is_unjudged = bool(rates) and not any(metric.direction for metric in rates)
    is_unfed = test.code == "jitter" and failed.is_of_speed and is_unjudged
    return test.code in _NOT_LOOKED or is_unfed


def _gpus_of(device: str, result: RunResult, node: str) -> set[str]:
    """Give the bare UUIDs of a test's devices ("cuda:0,cuda:1") on a node; "" is all of them."""
    here = [each for each in result.devices if each.host in ("", node)]
    names = set(device.split(","))
    is_only_one = names == {"cuda"} and len(here) == 1
    return {
        bare_uuid(each.uuid)
        for each in here
        if not device or is_only_one or names & {f"cuda:{each.index}", each.uuid}
    }


def _was_skipped(result: RunResult) -> bool:
    """Whether the payload itself was skipped, and only what is around it looked at."""
    own = [test.status for test in result.tests if test.name not in SURROUNDINGS]
    return bool(own) and set(own) == {Status.SKIP}


def admin_text(avoided: Sequence[AvoidedNode], cluster: str) -> str:
    """Write a text for the administrators: what failed, on which GPU, and how to reproduce it.

    Nodes where faults were made on purpose (`--inject`) are not called bad, and told apart.
    """
    bad = [entry for entry in avoided if not entry.is_injected]
    injected = [entry for entry in avoided if entry.is_injected]
    if not bad:
        return "\n".join(["no node is known to be bad", *_of_injected(injected)])
    lines = [f"Acceptance tests found {len(bad)} bad node(s) on {cluster}.", ""]
    for entry in bad:
        lines += [*_of_bad(entry), ""]
    lines.append(f"As a list for sbatch: --exclude={','.join(entry.node for entry in bad)}")
    return "\n".join([*lines, *_of_injected(injected)])


def _of_bad(entry: AvoidedNode) -> Iterator[str]:
    when = f"{datetime.fromtimestamp(entry.since, tz=UTC):%Y-%m-%d %H:%M} UTC"
    yield f"{entry.node}, seen {when} (run {entry.run}):"
    yield from (f"  {evidence}" for evidence in entry.evidence[:10])
    if entry.uuids:
        yield f"  GPU: {', '.join(entry.uuids)}"
    by_pairs = any(evidence.startswith("pairs ") for evidence in entry.evidence)
    how = "--pairs" if by_pairs else f"--nodes {entry.node}"
    yield f"  to see it again: rv accept sweep {how} --no-avoid"


def _of_injected(injected: Sequence[AvoidedNode]) -> Iterator[str]:
    for entry in injected:
        until = f"{datetime.fromtimestamp(entry.until, tz=UTC):%Y-%m-%d}"
        what = f"a fault made on purpose (--inject, run {entry.run})"
        end = f"rv accept avoid --forget {entry.node} ends it"
        yield f"{entry.node} is avoided until {until} for {what}: nothing is to be repaired, {end}"


def is_of_hardware(test: TestResult) -> bool:
    """Whether a failure is one to leave the node out for: the hardware's, by code or action."""
    if test.status is not Status.FAIL:
        return False
    return test.fault_class == HARDWARE or test.advice == EXCLUDE
