"""Temperature, power and clocks of each GPU over the time of a load, as charts. Pure.

The payload keeps a bounded series of what it saw (`timeline` in a telemetry test's details).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rv.accept.measurements import device_of
from rv.accept.report.charts import Line, LineChart
from rv.accept.report.places import where
from rv.accept.results import WORST_FIRST, RunResult, Status, TestResult
from rv.accept.untrusted import list_of, number_of, object_of

_SERIES: Final = {
    "temperature_c": ("Temperature", "C"),
    "power_w": ("Power", "W"),
    "sm_mhz": ("Clock of the processors", "MHz"),
}
_MOST_RUNS: Final = 3
_LEAST_POINTS: Final = 3


def timelines(runs: Sequence[RunResult]) -> Iterator[LineChart]:
    """Give three charts for each run that has timelines, the worst runs first, three at most."""
    timed = [(run, tests) for run in runs if (tests := _timed(run))]
    timed.sort(key=lambda each: min(WORST_FIRST.index(test.status) for test in each[1]))
    for run, tests in timed[:_MOST_RUNS]:
        for field, (title, unit) in _SERIES.items():
            lines = [line for test in tests if (line := _line(test, field))]
            if lines:
                yield LineChart(
                    title=f"{title} over time",
                    caption=f"{run.test_type} on {where(run)}{_judged(tests)}",
                    x="seconds",
                    y=unit,
                    lines=lines,
                )


def _timed(run: RunResult) -> list[TestResult]:
    """Give one test of each device that has a timeline: the worst."""
    found: dict[str, TestResult] = {}
    for test in sorted(run.tests, key=lambda test: WORST_FIRST.index(test.status)):
        device = device_of(test, run)
        if test.details.get("timeline") and (device or test.device):
            found.setdefault(test.device, test)
    return sorted(found.values(), key=lambda test: test.device)


def _line(test: TestResult, field: str) -> Line | None:
    timeline = object_of(test.details.get("timeline"))
    pairs = [
        (number_of(at), number_of(value))
        for at, value in zip(
            list_of(timeline.get("at_s")), list_of(timeline.get(field)), strict=False
        )
    ]
    points = [(at, value) for at, value in pairs if at is not None and value is not None]
    if len(points) < _LEAST_POINTS:
        return None
    at_s, values = zip(*points, strict=True)
    return Line(name=test.device, x=at_s, y=values)


def _judged(tests: Sequence[TestResult]) -> str:
    """Name the devices that did not pass."""
    bad = [test for test in tests if test.status is not Status.PASS]
    return (
        f"; {', '.join(f'{test.device} {test.status} {test.code}' for test in bad)}" if bad else ""
    )
