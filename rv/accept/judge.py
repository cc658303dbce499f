"""Judge what payloads measured: against references, peers, history and its own spread. Pure.

The payload's own verdict stands; judging can only make it worse. The limits: against a reference
below 0.90 is WARN and below 0.80 FAIL; against the median of at least three peers of one run below
0.95 and below 0.90, or with six an outlier by modified z-score; against the history see
`rv.accept.trends`.
"""

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rv.accept.baselines import ABOVE_PEAK, GOLDEN, Baseline, Baselines
from rv.accept.measurements import Measurement, Point, device_of, measurements
from rv.accept.results import Metric, Reference, RunResult, Status, TestResult, worst
from rv.accept.trends import regression
from rv.payloads.contract.codes import CONTENTION, FREE, OF_SPEED
from rv.payloads.contract.rates import code_of_loss, has_references
from rv.payloads.contract.stats import PEERS, loss, peer_verdict

JITTER_CV: Final = 0.05
JITTER_RATIO: Final = 1.5
JITTER_LEAST: Final = 20
_WIDTH_OF_45: Final = 1.645
"""From the 5th percentile of normal values to their median, in standard deviations."""

Past = Callable[[Measurement], Sequence[Point]]
"""Earlier values of the same device, measured in the same way, oldest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """What is wrong with one number."""

    status: Status
    code: str
    reason: str


Peers = Mapping[tuple[str, ...], Sequence[Measurement]]
"""What was measured alike on one model of GPU, by the model and the measurement's key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judge:
    """Everything that numbers are compared with; `time_s` is seconds since the epoch."""

    baselines: Baselines
    past: Past
    run: str = ""
    cluster: str = ""
    time_s: float = 0.0

    def judge(self, results: Sequence[RunResult]) -> tuple[RunResult, ...]:
        """Give the results with every metric's reference and verdict, and the tests' made worse."""
        peers: dict[tuple[str, ...], list[Measurement]] = {}
        measured = [
            list(measurements(result, self.run, self.cluster, self.time_s)) for result in results
        ]
        for each in itertools.chain.from_iterable(measured):
            peers.setdefault(_peer_key(each), []).append(each)
        pairs = zip(results, measured, strict=True)
        return tuple(self._result(result, numbers, peers) for result, numbers in pairs)

    def _result(
        self, result: RunResult, measured: Sequence[Measurement], peers: Peers
    ) -> RunResult:
        left = iter(measured)
        tests = [self._test(test, result, left, peers) for test in result.tests]
        tests += [*self._missing(result, measured), *self._unknown(result, measured)]
        tests = explained(tests)
        status = worst([result.status, *(test.status for test in tests)])
        return replace(result, tests=tuple(tests), status=status)

    def _test(
        self, test: TestResult, result: RunResult, left: Iterator[Measurement], peers: Peers
    ) -> TestResult:
        device = device_of(test, result)
        metrics, remarks = list[Metric](), list[Remark]()
        for metric in test.metrics:
            if metric.value is None or not metric.direction:
                metrics.append(metric)
                continue
            measured = next(left)
            reference = self.baselines.find(measured, device)
            about = list(self._remarks(measured, metric, reference, peers[_peer_key(measured)]))
            verdict = worst([remark.status for remark in about]) if about else Status.PASS
            judged = verdict if measured.gpu else None
            metrics.append(replace(metric, reference=reference, verdict=judged))
            remarks.extend(about)
        return _worsened(replace(test, metrics=tuple(metrics)), remarks)

    def _remarks(
        self,
        measured: Measurement,
        metric: Metric,
        reference: Reference | None,
        peers: Sequence[Measurement],
    ) -> Iterator[Remark]:
        """Judge one number of a GPU: on a CPU there is nothing to expect."""
        if not measured.gpu:
            return
        if reference is not None:
            yield from _against_reference(measured, reference)
        peak = self.baselines.peak(measured)
        if peak and measured.value > ABOVE_PEAK * peak:
            reason = f"{_number(measured)} is above the peak of {peak:g}: wrong type or timing"
            yield Remark(status=Status.FAIL, code="above_peak", reason=reason)
        if measured.is_of_gpus:
            yield from _against_peers(measured, peers)
            yield from _spread(measured, metric)
        # A run over several nodes has others each time.
        if measured.is_of_gpus and measured.nodes == 1:
            yield from self._against_history(measured)

    def _against_history(self, measured: Measurement) -> Iterator[Remark]:
        earlier = [point for point in self.past(measured) if point.time < measured.time]
        slower = regression([*earlier, measured], measured.direction)
        if slower:
            reason = (
                f"{_number(measured)} is {slower.loss:.1%} worse than the median "
                f"{slower.median:.4g} of {slower.runs} earlier runs (z {slower.z:.1f})"
            )
            yield Remark(status=slower.status, code="regression", reason=reason)

    def _missing(self, result: RunResult, measured: Sequence[Measurement]) -> Iterator[TestResult]:
        """Give an ERROR for each number with a reference that a passed test did not report."""
        passed = {t.name for t in result.tests if t.status in (Status.PASS, Status.WARN)}
        reported = {(m.test, m.metric) for m in measured}
        for test, metric in self._expected(result):
            if test in passed and (test, metric) not in reported:
                reason = f"{test} passed and reported no {metric}, which has a reference"
                yield TestResult(
                    name=test,
                    status=Status.ERROR,
                    code="metric_missing",
                    reason=reason,
                    host=result.hostname,
                )

    def _unknown(self, result: RunResult, measured: Sequence[Measurement]) -> Iterator[TestResult]:
        """Warn where nothing that was measured of a model of GPUs on a node has a reference."""
        rates: dict[str, bool] = {}
        for each in measured if has_references(result.test_type) and result.nnodes == 1 else ():
            if each.is_of_gpus:
                known = self.baselines.find(each, None) is not None
                rates[each.gpu] = rates.get(each.gpu, False) or known
        for product in (gpu for gpu, known in rates.items() if not known and self.baselines.values):
            yield TestResult(
                name="speed",
                status=Status.WARN,
                code="no_reference",
                reason=f"no reference for {product}: speed not judged",
                host=result.hostname,
            )

    def _expected(self, result: RunResult) -> Iterable[tuple[str, str]]:
        """List the tests and metrics that have a reference for a GPU of this run."""
        names = dict[tuple[str, str], None]()
        for product in dict.fromkeys(device.name for device in result.devices):
            values = self.baselines.of_payload(result.test_type, product, result.method_version)
            names |= {(v.test, v.metric): None for v in values if _is_expected(v, result)}
        return names


def _is_expected(value: Baseline, result: RunResult) -> bool:
    """Whether every such run measures what the baseline is of: no pattern, no certain size."""
    if "*" in value.metric or value.shape or value.world not in (0, result.world_size):
        return False
    # Golden values were measured in full runs, at sizes that a quick run does not have.
    return value.kind != GOLDEN or not result.quick


def _peer_key(measured: Measurement) -> tuple[str, ...]:
    return (measured.gpu, *measured.key)


def _against_reference(measured: Measurement, reference: Reference) -> Iterator[Remark]:
    if not reference.value:
        return
    lost = loss(measured.value, reference.value, measured.direction)
    share = f"{1 - lost:.2f} of the {reference.kind} reference {reference.value:.4g}"
    reason = f"{_number(measured)} is {share} ({reference.source})"
    is_failure = reference.lower is not None and lost > -reference.lower
    if is_failure or (reference.warn is not None and lost > -reference.warn):
        status = Status.FAIL if is_failure else Status.WARN
        code = code_of_loss(measured.payload, is_failure=is_failure)
        yield Remark(status=status, code=code, reason=reason)


def _against_peers(measured: Measurement, peers: Sequence[Measurement]) -> Iterator[Remark]:
    if len({(peer.node, peer.device) for peer in peers}) < PEERS:
        return
    values = [peer.value for peer in peers]
    status = Status(peer_verdict(measured.value, values, measured.direction))
    if status is Status.PASS:
        return
    median = statistics.median(values)
    lost = loss(measured.value, median, measured.direction)
    reason = f"{_number(measured)} is {lost:.1%} worse than the median {median:.4g} of its peers"
    yield Remark(status=status, code="peer_outlier", reason=reason)


def _spread(measured: Measurement, metric: Metric) -> Iterator[Remark]:
    """Warn of a rate that varies, by the slower half of its iterations without the slowest 5 %.

    A single iteration that the host delayed says nothing of a GPU, and a cool GPU is somewhat
    faster at first; a GPU that was much faster before was slowed by something.
    """
    if measured.quick or (metric.n or 0) < JITTER_LEAST:
        return
    if not (metric.median and metric.p05 and metric.p95):
        return
    cv = (metric.median - metric.p05) / (_WIDTH_OF_45 * metric.median)
    slow, fast = metric.median / metric.p05, metric.p95 / metric.median
    if cv > JITTER_CV or max(slow, fast) > JITTER_RATIO:
        times = f"{slow:.2f} times as slow as half of it, 5 % {fast:.2f} times as fast"
        reason = f"{measured.metric} varies: cv of the slower half {cv:.1%}, 5 % {times}"
        yield Remark(status=Status.WARN, code="jitter", reason=reason)


def explained(tests: Sequence[TestResult]) -> list[TestResult]:
    """Give tests, those of speed on a GPU that others use with that as class and action.

    One without a device is of all of them, as in `contract.schema`, which a payload has of this.
    """
    shared = {(t.host, t.device) for t in tests if t.fault_class == CONTENTION}
    return [
        replace(test, fault=CONTENTION, action=FREE)
        if test.code in OF_SPEED
        and shared
        and (not test.device or (test.host, test.device) in shared)
        else test
        for test in tests
    ]


def _worsened(test: TestResult, remarks: Sequence[Remark]) -> TestResult:
    """Make a test as bad as its worst remark; its own reason is kept behind the remark's."""
    if not remarks:
        return test
    status = worst([test.status, *(remark.status for remark in remarks)])
    if status is test.status:
        return test
    first = next(remark for remark in remarks if remark.status is status)
    more = f" (and {len(remarks) - 1} more)" if len(remarks) > 1 else ""
    reason = "; ".join(filter(None, (f"{first.reason}{more}", test.reason)))
    if test.fault_class == CONTENTION:  # others on the GPU explain it
        return replace(test, status=status, reason=reason)
    return replace(test, status=status, code=first.code, reason=reason, fault="", action="")


def _number(measured: Measurement) -> str:
    where = " ".join(filter(None, (measured.node, measured.device)))
    return f"{where}: {measured.metric} {measured.value:.4g} {measured.unit}".strip()
