"""The result files, schema `rv.accept/1`: a metric, and the summary that follows from the tests."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from .codes import CONTENTION, EXCLUDE, FREE, OF_SPEED
from .stats import percentile
from .verdicts import ERROR, FAIL, PASS, SKIP, WARN, exit_code, worst

SCHEMA, METHOD_VERSION = "rv.accept/1", 2
COUNTED = {"passed": PASS, "warned": WARN, "failed": FAIL, "skipped": SKIP, "errors": ERROR}
"""The counts of a summary, each with the status that it counts."""
TOKEN = "RV_RESULT_TOKEN"  # noqa: S105 - a variable's name
"""The variable by which `rv accept`'s command names this payload's run on this node: a random word,
which the result repeats, so that no other file can be taken for it."""
RUNS = ".runs"
"""The folder, in that of a job's results, where each run of a payload notes itself."""
SURROUNDINGS = ("requested_gpu", "device", "ranks", "contention", "wear", "speed")
"""The tests of what every payload looks at beside its own work: where that was skipped, they vouch
for nothing."""
HIGHER, LOWER, UNJUDGED = "higher", "lower", ""
"""The better direction of a metric, its key `dir`; none of a figure that nobody judges."""


def better_rate(*, is_fed: bool) -> str:
    """Return the direction of a device's rate: none where it waited for the process that feeds it.

    What was measured then is the host, which nobody may hold against the device.
    """
    return HIGHER if is_fed else UNJUDGED


def metric(name: str, samples: list[float], unit: str, better: str, **more: Any) -> dict[str, Any]:
    """Return the metric of some samples: the value is their median, `cv` is stdev over mean.

    `better` is HIGHER, LOWER or UNJUDGED; `more` are facts about the method, as `data="randn"`.
    Raises ValueError without samples.
    """
    if not samples:
        raise ValueError(f"no samples of {name}")
    mean = statistics.fmean(samples)
    deviation = statistics.stdev(samples) if len(samples) > 1 else 0.0
    middle = statistics.median(samples)
    spread = {
        "n": len(samples),
        "median": middle,
        "p05": percentile(samples, 5),
        "p95": percentile(samples, 95),
        "min": min(samples),
        "max": max(samples),
        "cv": deviation / abs(mean) if mean else 0.0,
    }
    return {"name": name, "value": middle, "unit": unit, "dir": better, **spread, **more}


def explained(tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give tests, those of speed on a GPU that others use with that as class and action.

    One without a device is of all of them: a collective is as slow as its slowest rank.
    """
    shared = {(t["host"], t["device"]) for t in tests if t["class"] == CONTENTION}
    blame = {"class": CONTENTION, "action": FREE}
    return [
        {**test, **blame}
        if test["code"] in OF_SPEED
        and shared
        and (test["device"] is None or (test["host"], test["device"]) in shared)
        else test
        for test in tests
    ]


def verdict_of(tests: list[dict[str, Any]]) -> tuple[str, str]:
    """Give the worst status of tests and the reason of the first that has it.

    A PASS has none but what it could not test, though it was asked to. A rank that was interrupted
    comes last: it was so for another one's sake. Who else is on the GPUs comes first, where that is
    why a test was slow.
    """
    status = worst([test["status"] for test in tests])
    if status == "PASS":
        left = [t for t in tests if t["status"] == "SKIP" and t["code"] != "not_asked"]
        return status, f"without {left[0]['name']}: {_first_reason(left)}" if left else ""
    found = [test for test in tests if test["status"] == status]
    found.sort(key=lambda test: test["code"] == "interrupted")
    if not found:
        return status, "nothing was tested"
    said = [_other_user(found[0], tests), _first_reason(found), _left_undone(status, tests)]
    return status, "; ".join(filter(None, said))


def _left_undone(status: str, tests: list[dict[str, Any]]) -> str:
    """Say beside a warning that the payload itself was skipped; empty otherwise."""
    if status != WARN:
        return ""
    own = [test for test in tests if test["name"] not in SURROUNDINGS]
    is_whole = bool(own) and all(test["status"] == SKIP for test in own)
    return f"without {own[0]['name']}: {own[0]['reason']}" if is_whole else ""


def _other_user(slow: dict[str, Any], tests: list[dict[str, Any]]) -> str:
    """Who else is on the GPUs, where that is why a test was slow; empty otherwise."""
    if slow.get("class") != CONTENTION or slow["code"] not in OF_SPEED:
        return ""
    causes = (t for t in tests if t.get("class") == CONTENTION and t["code"] not in OF_SPEED)
    return next((cause["reason"] for cause in causes if cause["reason"]), "")


def _first_reason(tests: list[dict[str, Any]]) -> str:
    reason = tests[0]["reason"] or ""
    return f"{reason} (and {len(tests) - 1} more)" if reason and len(tests) > 1 else reason


def summary_of(
    tests: list[dict[str, Any]], *, strict: bool = False, skip_exit_code: int | None = None
) -> dict[str, Any]:
    """Count tests by status, name the nodes to leave out, and give the exit code.

    `skip_exit_code` is what the user asked for; None leaves it to the job, which makes it 0.
    """
    count = Counter(test["status"] for test in tests)
    status, reason = verdict_of(tests)
    skip = 77 if skip_exit_code is None else skip_exit_code
    return {
        "status": status,
        "reason": reason or None,
        "codes": sorted({test["code"] for test in tests if test["status"] in (FAIL, ERROR)}),
        "exit_code": exit_code(status, strict=strict, skip=skip),
        "strict": strict,
        "skip_exit_code": skip_exit_code,
        **{name: count[status] for name, status in COUNTED.items()},
        "exclude_nodes": _bad_hosts(tests),
    }


def _bad_hosts(tests: list[dict[str, Any]]) -> list[str]:
    """Name the hosts on which a test failed and one says to leave the node out."""
    failed = {test["host"] for test in tests if test["status"] == FAIL}
    return sorted(failed & {test["host"] for test in tests if test["action"] == EXCLUDE})
