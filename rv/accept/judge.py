"""Judge what payloads measured: against references, peers, history and its own spread. Pure.

The payload's own verdict stands; judging can only make it worse. The limits: against a reference
below 0.90 is WARN, at 0.80 and below FAIL; for peers see `rv.accept.peers`, for the history, which
is judged for all numbers of a run together, `rv.accept.regressions`.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rv.accept.baselines import ABOVE_PEAK, GOLDEN, Baseline, Baselines
from rv.accept.measurements import (
    FAULTY,
    LANES_LOST,
    SHIFTED,
    SOUND,
    Measurement,
    Point,
    measurements,
)
from rv.accept.peers import PeerGroup, against_others, against_peers, has_others, number
from rv.accept.regressions import Regression, series_of, standing, together
from rv.accept.remarks import Remark, explained, softened, worsened
from rv.accept.results import Device, Metric, Reference, RunResult, Status, TestResult, worst
from rv.dataclass import dataclass
from rv.payloads.contract.rates import code_of_loss, has_references
from rv.payloads.contract.stats import PEERS, loss

_ROUNDING: Final = 1e-9
_ANEW: Final = "rv accept repaired --anew NODES takes the new speed for the usual one"
JITTER_CV: Final = 0.05
JITTER_RATIO: Final = 1.5
JITTER_LEAST: Final = 20
_WIDTH_OF_45: Final = 1.645
"""From the 5th percentile of normal values to their median, in standard deviations."""

Past = Callable[[Measurement], Sequence[Point]]
"""Earlier values of the same device, measured in the same way, oldest first."""


Others = Callable[[Measurement], Sequence[Measurement]]
"""Values of all devices of a model, of the same payload, in other runs, earlier or later."""

Peers = Mapping[tuple[str, ...], PeerGroup]
"""What was measured alike on one model of GPU, by the model and the measurement's key."""


def _none(_: Measurement) -> Sequence[Measurement]:
    """No other device is known."""
    return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Judge:
    """Everything that numbers are compared with; `time_s` is seconds since the epoch."""

    baselines: Baselines
    past: Past
    others: Others = _none
    run: str = ""
    cluster: str = ""
    time_s: float = 0.0

    def judge(self, results: Sequence[RunResult]) -> tuple[RunResult, ...]:
        """Give the results with every metric's reference and verdict, and the tests' made worse."""
        measured = [
            list(measurements(result, self.run, self.cluster, self.time_s)) for result in results
        ]
        every = list(itertools.chain.from_iterable(measured))
        alike: dict[tuple[str, ...], list[Measurement]] = {}
        for each in every:
            alike.setdefault(_peer_key(each), []).append(each)
        peers = {key: PeerGroup(measured=group) for key, group in alike.items()}
        slower = self._regressions(every)
        found, at = [], 0
        for result, numbers in zip(results, measured, strict=True):
            own = slower[at : at + len(numbers)]
            found.append(self._result(result, numbers, own, peers))
            at += len(numbers)
        return _with_shifts(explained(found), every, slower)

    def _regressions(self, every: Sequence[Measurement]) -> list[Regression | None]:
        """Judge a run's rates by their own histories, all together."""
        places = [place for place, each in enumerate(every) if each.has_own_level]
        series = []
        for place in places:
            each = every[place]
            earlier = [point for point in self.past(each) if point.time < each.time]
            series.append(series_of([*earlier, each], each))
        found: list[Regression | None] = [None] * len(every)
        for place, regression in zip(places, together(series), strict=True):
            found[place] = regression
        return found

    def _result(
        self,
        result: RunResult,
        measured: Sequence[Measurement],
        slower: Sequence[Regression | None],
        peers: Peers,
    ) -> RunResult:
        left = zip(measured, slower, strict=True)
        tests = [self._test(test, result, left, peers) for test in result.tests]
        tests += [*self._missing(result, measured), *self._unjudged(result, measured, peers)]
        status = worst([result.status, *(test.status for test in tests)])
        return replace(result, tests=tuple(tests), status=status)

    def _test(
        self,
        test: TestResult,
        result: RunResult,
        left: Iterator[tuple[Measurement, Regression | None]],
        peers: Peers,
    ) -> TestResult:
        metrics, remarks = list[Metric](), list[Remark]()
        for metric in test.metrics:
            if metric.value is None or not metric.direction:
                metrics.append(metric)
                continue
            measured, slower = next(left)
            reference = self.baselines.find(measured, _gpu_of(measured, result))
            about = list(self._remarks(measured, metric, reference, peers[_peer_key(measured)]))
            about += _of_history(measured, slower)
            verdict = worst([remark.status for remark in about]) if about else Status.PASS
            judged = verdict if measured.gpu else None
            counts = _standing(about, slower)
            metrics.append(replace(metric, reference=reference, verdict=judged, standing=counts))
            remarks.extend(about)
        return worsened(replace(test, metrics=tuple(metrics)), remarks)

    def _remarks(
        self,
        measured: Measurement,
        metric: Metric,
        reference: Reference | None,
        peers: PeerGroup,
    ) -> Iterator[Remark]:
        """Judge one number of a GPU, but for its history: on a CPU there is nothing to expect."""
        yield from _claim(measured, metric, reference)
        if not measured.gpu:
            return
        if reference is not None:
            yield from _against_reference(measured, reference)
        peak = self.baselines.peak(measured)
        if peak and measured.value > ABOVE_PEAK * peak:
            reason = f"{number(measured)} is above the peak of {peak:g}: wrong type or timing"
            yield Remark(status=Status.FAIL, code="above_peak", reason=reason)
        if not measured.is_of_gpus:
            return
        # Over several nodes a number is of all of them: its own may not be at fault.
        if measured.nodes == 1 and (remark := self._against_like(measured, reference, peers)):
            yield remark
        yield from _spread(measured, metric)

    def _against_like(
        self, measured: Measurement, reference: Reference | None, peers: PeerGroup
    ) -> Remark | None:
        """Judge one number by the run's others, else by what others reached before."""
        if reference is None and peers.count < PEERS:
            remark = against_others(measured, self._others_like(measured))
        else:
            remark = against_peers(measured, peers)
        if remark and self._is_explained(measured, remark):
            return softened(remark)
        return remark

    def _is_explained(self, measured: Measurement, remark: Remark) -> bool:
        """Whether the sockets or links of a sound node may make a number so much lower.

        Two GPUs may have a bridge or none; of more the slowest link counts, which few have alone.
        """
        is_of_wiring = self._is_of_wiring(measured)
        if is_of_wiring and measured.world == 2:
            return True
        return (is_of_wiring or measured.is_of_place) and remark.lost < LANES_LOST

    def _is_of_wiring(self, measured: Measurement) -> bool:
        """Whether a number is of GPUs together that NVLink does not join all of.

        How they are linked differs from pair to pair: a bridge, a PCIe switch, another socket.
        """
        is_together = measured.world > 1 and not measured.device
        return is_together and not self.baselines.is_mesh(measured.gpu)

    def _others_like(self, measured: Measurement) -> Sequence[Measurement]:
        """Look up what others of the model reached before, where they are linked alike."""
        if self._is_of_wiring(measured):
            return ()
        return [other for other in self.others(measured) if other.time < measured.time]

    def _unjudged(
        self, result: RunResult, measured: Sequence[Measurement], peers: Peers
    ) -> Iterator[TestResult]:
        """Warn of a model of GPUs of whose rates nothing says how fast it should be."""
        if not (self.baselines.values and has_references(result.test_type) and result.nnodes == 1):
            return
        rates = list(filter(_is_of_whole_gpus, measured))
        judged = {each.gpu for each in rates if self._is_judged(each, _gpu_of(each, result), peers)}
        for product in dict.fromkeys(each.gpu for each in rates):
            if product not in judged:
                yield TestResult(
                    name="speed",
                    status=Status.WARN,
                    code="no_reference",
                    reason=f"no reference for {product}: speed not judged",
                    host=result.hostname,
                )

    def _is_judged(self, measured: Measurement, gpu: Device | None, peers: Peers) -> bool:
        """Whether a reference, peers or other GPUs of the model say what a rate should be."""
        return (
            self.baselines.find(measured, gpu) is not None
            or peers[_peer_key(measured)].count >= PEERS
            or has_others(measured, self._others_like(measured))
        )

    def _missing(self, result: RunResult, measured: Sequence[Measurement]) -> Iterator[TestResult]:
        """Give an ERROR for each number with a reference that a passed test did not report."""
        passed = {t.name for t in result.tests if t.status in (Status.PASS, Status.WARN)}
        reported = {(m.test, m.metric) for m in measured} | set(_not_its_own(result))
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

    def _expected(self, result: RunResult) -> Iterable[tuple[str, str]]:
        """List the tests and metrics that have a reference for a GPU of this run."""
        names = dict[tuple[str, str], None]()
        for product in dict.fromkeys(device.name for device in result.devices):
            values = self.baselines.of_payload(result.test_type, product, result.method_version)
            names |= {(v.test, v.metric): None for v in values if _is_expected(v, result)}
        return names


def _not_its_own(result: RunResult) -> Iterator[tuple[str, str]]:
    """Give the tests and numbers that are no device's own: it waited, of which the test warns."""
    for test in result.tests:
        if test.status is Status.WARN:
            yield from ((test.name, m.name) for m in test.metrics if not m.direction)


def _gpu_of(measured: Measurement, result: RunResult) -> Device | None:
    """Give the GPU that a number is of; of several together, which are of one model, the first."""
    alike = (each for each in result.devices if each.name == measured.gpu)
    return next((e for e in alike if not measured.gpu_uuid or e.uuid == measured.gpu_uuid), None)


def _is_of_whole_gpus(measured: Measurement) -> bool:
    """Whether a number is a rate of GPUs that are no slices."""
    return measured.is_of_gpus and not measured.is_mig


def _is_expected(value: Baseline, result: RunResult) -> bool:
    """Whether every such run measures what the baseline is of: no pattern, no certain size."""
    if "*" in value.metric or value.shape or value.world not in (0, result.world_size):
        return False
    # Golden values were measured in full runs, at sizes that a quick run does not have.
    return value.kind != GOLDEN or not result.quick


def _peer_key(measured: Measurement) -> tuple[str, ...]:
    """Part what is measured alike on a model; GPUs with a switch are no peers of others."""
    links = f"{measured.link_share or 1.0:.2f}"
    return (measured.gpu, *measured.key, measured.direction, links)


def _claim(measured: Measurement, metric: Metric, reference: Reference | None) -> Iterator[Remark]:
    """Refuse a reference in the file that is not rv's own."""
    if metric.claimed is None:
        return
    own = reference.value if reference else None
    if own is None or abs(metric.claimed - own) > _ROUNDING * max(1.0, abs(own)):
        has = f"is {own:g}" if own is not None else "does not exist"
        reason = f"{number(measured)}: the result has a reference of {metric.claimed:g}, rv's {has}"
        yield Remark(status=Status.ERROR, code="result_invalid", reason=reason)


def _of_history(measured: Measurement, slower: Regression | None) -> Iterator[Remark]:
    """Say what the history shows of a number; what all GPUs share is told once, elsewhere."""
    if slower is None or slower.cause == "fleet":
        return
    what = number(measured)
    if slower.cause == "gpu-rates":
        what = f"{measured.node} {measured.gpu_uuid}: its rates together, this one among them"
    reason = (
        f"{what} {'were' if slower.cause == 'gpu-rates' else 'is'} {slower.loss:.1%} worse than in "
        f"{slower.runs} earlier sound runs ({slower.median:.4g}, z {slower.z:.1f})"
    )
    if slower.cause == "software":
        reason += f", since the software changed to {measured.fingerprint}: {_ANEW}"
    elif slower.recovering:
        reason += ": at its old level again, and not yet for three runs"
    remark = Remark(status=slower.status, code="regression", reason=reason, lost=slower.loss)
    is_of_socket = measured.is_of_place and slower.status is Status.WARN
    yield softened(remark) if is_of_socket else remark


def _standing(remarks: Sequence[Remark], slower: Regression | None) -> str:
    """Say what a value counts for in later runs."""
    if any(each.is_spoiling for each in remarks):
        is_shifted = standing(slower) == SHIFTED
        return SHIFTED if is_shifted else FAULTY
    is_of_place = any(each.code == "regression" and each.is_of_place for each in remarks)
    return standing(slower) if slower and not is_of_place else SOUND


def _with_shifts(
    results: Sequence[RunResult],
    every: Sequence[Measurement],
    slower: Sequence[Regression | None],
) -> tuple[RunResult, ...]:
    """Add one warning for what all GPUs of a model lost together to the first result."""
    shifts: dict[tuple[str, ...], tuple[float, bool]] = {}
    for each, regression in zip(every, slower, strict=True):
        if regression and regression.shift > 0:
            what = (each.gpu, each.test, each.metric)
            shifts.setdefault(what, (regression.shift, regression.is_software))
    if not shifts:
        return tuple(results)
    (gpu, test, metric), (lost, is_software) = max(shifts.items(), key=lambda item: item[1][0])
    why = "since their software changed" if is_software else "with no new software that is known of"
    more = f" (and {len(shifts) - 1} more numbers)" if len(shifts) > 1 else ""
    reason = (
        f"all {gpu} are {lost:.1%} slower together in {test} {metric}{more}, {why}: driver, "
        f"firmware or the fleet's power, not these GPUs one by one; {_ANEW}"
    )
    warning = TestResult(name="history", status=Status.WARN, code="fleet_shift", reason=reason)
    first = results[0]
    changed = replace(
        first, tests=(*first.tests, warning), status=worst([first.status, Status.WARN])
    )
    return (changed, *results[1:])


def _against_reference(measured: Measurement, reference: Reference) -> Iterator[Remark]:
    if not reference.value:
        return
    lost = loss(measured.value, reference.value, measured.direction)
    share = f"{1 - lost:.2f} of the {reference.kind} reference {reference.value:.4g}"
    reason = f"{number(measured)} is {share} ({reference.source})"
    is_failure = reference.lower is not None and lost >= -reference.lower - _ROUNDING
    if is_failure or (reference.warn is not None and lost > -reference.warn):
        status = Status.FAIL if is_failure else Status.WARN
        code = code_of_loss(measured.payload, is_failure=is_failure)
        yield Remark(status=status, code=code, reason=reason)


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
