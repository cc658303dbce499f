"""Each number beside what it should be: its reference, or the median of its peers. Pure."""

import statistics
from collections.abc import Iterator, Sequence

from rv.accept.measurements import Measurement, measurements
from rv.accept.results import Metric, RunResult, TestResult
from rv.dataclass import dataclass
from rv.payloads.contract.stats import PEERS


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One number with what is expected, None where nothing is; `basis` says what that is."""

    run: RunResult
    test: TestResult
    metric: Metric
    measured: Measurement
    expected: float | None = None
    basis: str = ""

    @property
    def share(self) -> float | None:
        """The part of what is expected that was reached: 1 is all of it, of a latency too."""
        value, expected = self.measured.value, self.expected
        if not expected or expected < 0 or value <= 0:
            return None
        return value / expected if self.measured.direction == "higher" else expected / value


def compared(runs: Sequence[RunResult]) -> list[Compared]:
    """Give every comparable number of judged results; peers are those measured alike in them."""
    every = list(_numbers(runs))
    peers: dict[tuple[str, ...], list[float]] = {}
    for each in every:
        peers.setdefault(_alike(each.measured), []).append(each.measured.value)
    medians = {
        alike: (statistics.median(values), f"median of {len(values)}")
        for alike, values in peers.items()
        if len(values) >= PEERS
    }
    return [_beside(each, medians.get(_alike(each.measured))) for each in every]


def _numbers(runs: Sequence[RunResult]) -> Iterator[Compared]:
    for run in runs:
        listed = measurements(run, "", "", 0.0)
        for test in run.tests:
            for metric in test.metrics:
                if metric.value is not None and metric.direction:
                    yield Compared(run=run, test=test, metric=metric, measured=next(listed))


def _alike(measured: Measurement) -> tuple[str, ...]:
    return (measured.gpu, *measured.key)


def _beside(each: Compared, of_peers: tuple[float, str] | None) -> Compared:
    """Add the number's reference, else the median of its peers, each with its name."""
    expected, basis = None, ""
    if each.metric.reference:
        expected, basis = each.metric.reference.value, f"{each.metric.reference.kind} reference"
    elif each.measured.gpu and of_peers:
        expected, basis = of_peers
    return Compared(
        run=each.run,
        test=each.test,
        metric=each.metric,
        measured=each.measured,
        expected=expected,
        basis=basis.strip(),
    )
