"""Whether a result is whole, and written by the process that it is read for. Pure.

`flaws` are what makes a document doubtful by itself, whoever wrote it. `refusal` says why a file is
not the one that a node, or a rank, was to write, and `shortfall` what of the plan it lacks. Any of
them makes a PASS an ERROR: what is doubtful was not tested.
"""

import fnmatch
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from rv.accept.measurements import bare_uuid
from rv.accept.results import Metric, RunResult, Status, TestResult, worst
from rv.accept.untrusted import list_of, number_of, object_of, text_of, whole_of
from rv.payloads.contract.rates import RATE_UNITS
from rv.payloads.contract.references import METHOD_VERSION, REFERENCES
from rv.payloads.contract.schema import COUNTED
from rv.slurm.printable import printable

_RATES: Final = (*RATE_UNITS, "MB/s", "1/s")
_NO_FIGURE: Final = re.compile(r"[+-]?(nan|inf(inity)?)", re.ASCII | re.IGNORECASE)
_LARGEST: Final = 10**300
_ROUNDED: Final = 1.05
"""How far over its fastest part a whole may be, which two clocks measured."""
_BAD: Final = ("FAIL", "ERROR")
_RATES_OF: Final[dict[str, list[dict[str, Any]]]] = {
    payload: [group["of"] for group in REFERENCES.values() if group["of"]["payload"] == payload]
    for payload in {group["of"]["payload"] for group in REFERENCES.values()}
}
"""The rates of each payload that have references: their test, metric (a pattern) and unit."""
_ONLY_TEXT: Final = ("schema", "test_info", "env", "devices", "ranks", "summary")
"""Parts of a document in which a text is never a figure."""


def flaws(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what makes a document doubtful by itself: figures that are none, counts that differ."""
    found = [*_no_figures(document), *_wrong_counts(document), *_wrong_metrics(document)]
    found += [*_wrong_devices(document), *_wrong_ranks(document)]
    found += [*_twice(document), *_unknown_method(document)]
    found += [] if list_of(document.get("tests")) else ["it has no tests"]
    return tuple(printable(each)[:300] for each in found)


def with_flaws(result: RunResult, found: Sequence[str]) -> RunResult:
    """Give a result with an ERROR for what makes it doubtful; its own tests stay beside it."""
    if not found:
        return result
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    test = TestResult(
        name="result",
        status=Status.ERROR,
        code="result_invalid",
        reason=f"the result file is not to be trusted: {found[0]}{more}",
        host=result.hostname,
    )
    status = worst([result.status, Status.ERROR])
    return replace(result, tests=(*result.tests, test), status=status)


def not_finite(value: Any, where: str = "", *, texts: bool = True) -> str:
    """Find a figure that is no finite number, below a value; give its place, "" for none.

    With `texts` also a text that says so counts, such as "NaN".
    """
    left = [(where, value)]
    while left:
        place, each = left.pop()
        if isinstance(each, Mapping):
            left += [(f"{place}.{key}", inner) for key, inner in each.items()]
        elif isinstance(each, list):
            left += [(f"{place}[{index}]", inner) for index, inner in enumerate(each)]
        elif _is_no_figure(each, texts=texts):
            return f"{place.lstrip('.')} is {each!s:.20}"
    return ""


def _is_no_figure(value: Any, *, texts: bool) -> bool:
    if isinstance(value, str):
        return texts and _NO_FIGURE.fullmatch(value.strip()) is not None
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, int) and abs(value) > _LARGEST


def _no_figures(document: Mapping[str, Any]) -> Iterator[str]:
    """Look everywhere but in tests that failed: there, such a figure is what was found."""
    tests = [object_of(test) for test in list_of(document.get("tests"))]
    sound = {f"tests[{i}]": t for i, t in enumerate(tests) if t.get("status") not in _BAD}
    figures = {
        f"{name}.{part}": test.get(part)
        for name, test in sound.items()
        for part in ("metrics", "details", "timing_ms")
    }
    rest = {key: value for key, value in document.items() if key != "tests"}
    for name, value in (figures | rest).items():
        if found := not_finite(value, name, texts=name not in _ONLY_TEXT):
            yield found


def _wrong_counts(document: Mapping[str, Any]) -> Iterator[str]:
    """Hold the summary against the tests that are there."""
    summary = object_of(document.get("summary"))
    tests = [object_of(test) for test in list_of(document.get("tests"))]
    counts = Counter(text_of(test.get("status")) for test in tests)
    for name, status in COUNTED.items():
        said = whole_of(summary.get(name))
        if said is not None and said != counts[status]:
            yield f"its summary counts {said} {name}, its tests {counts[status]}"


def _twice(document: Mapping[str, Any]) -> Iterator[str]:
    """Name tests of which a copy stands beside them: no two take the same time to a microsecond."""
    tests = [object_of(test) for test in list_of(document.get("tests"))]
    timed = [test for test in tests if test.get("status") == "PASS" and test.get("timing_ms")]
    copies = Counter(json.dumps(test, sort_keys=True, default=str) for test in timed)
    for text, count in copies.items():
        if count > 1:
            yield f"it has the test {text_of(json.loads(text).get('name'))} {count} times"


def _unknown_method(document: Mapping[str, Any]) -> Iterator[str]:
    """Refuse figures measured in a way that no reference of this rv is of."""
    method = whole_of(object_of(document.get("test_info")).get("method_version"))
    if method is not None and method > METHOD_VERSION:
        yield f"it was measured by method {method}, this rv knows those up to {METHOD_VERSION}"


def _wrong_metrics(document: Mapping[str, Any]) -> Iterator[str]:
    for test in map(object_of, list_of(document.get("tests"))):
        if test.get("status") in _BAD:
            continue
        for metric in map(object_of, list_of(test.get("metrics"))):
            if why := _wrong_metric(metric):
                yield f"{text_of(test.get('name'))}: {text_of(metric.get('name'))} {why}"


def _wrong_metric(metric: Mapping[str, Any]) -> str:
    """Say what is wrong with a number of a test that did not fail."""
    value = number_of(metric.get("value"))
    if value is None:
        return "has no value"
    unit = text_of(metric.get("unit"))
    if value <= 0 and unit in _RATES:
        return f"is {value:g} {unit}"
    if unit in RATE_UNITS and metric.get("dir") == "lower":
        return f"says that fewer {unit} are better"
    most = number_of(metric.get("max"))
    if unit in RATE_UNITS and most is not None and value > _ROUNDED * most:
        return f"is {value:g} {unit}, above the most of its own samples, {most:g}"
    return _crossed(metric)


def _crossed(metric: Mapping[str, Any]) -> str:
    for low, high in (("p05", "p95"), ("min", "max")):
        least, most = number_of(metric.get(low)), number_of(metric.get(high))
        if least is not None and most is not None and least > most:
            return f"has {low} {least:g} above {high} {most:g}"
    return ""


def _wrong_devices(document: Mapping[str, Any]) -> Iterator[str]:
    devices = [object_of(each) for each in list_of(document.get("devices"))]
    uuids = [bare_uuid(text_of(each.get("uuid"))) for each in devices]
    world = object_of(object_of(document.get("test_info")).get("world"))
    is_alone = whole_of(world.get("size")) == 1  # each rank may call its own GPU the first
    indices = [whole_of(each.get("index")) for each in devices] if is_alone else []
    for uuid, count in Counter(filter(None, uuids)).items():
        if count > 1:
            yield f"{count} GPUs have the UUID {uuid}"
    for index, count in Counter(indices).items():
        if count > 1 and index is not None:
            yield f"{count} GPUs have the index {index}"


def _wrong_ranks(document: Mapping[str, Any]) -> Iterator[str]:
    """Hold the ranks that a merged result lists against its world; a missing one may be named."""
    world = object_of(object_of(document.get("test_info")).get("world"))
    size = whole_of(world.get("size"))
    if not isinstance(document.get("ranks"), list) or size is None:
        return
    ranks = [_rank_of(object_of(each)) for each in list_of(document["ranks"])]
    tests = map(object_of, list_of(document.get("tests")))
    is_named = any(test.get("code") == "rank_missing" for test in tests)
    is_in_order = all(a < b for a, b in itertools.pairwise([-1, *ranks, size]))
    if not is_in_order or (len(ranks) < size and not is_named):
        yield f"it lists {len(ranks)} ranks of a world of {size}"


def _rank_of(entry: Mapping[str, Any]) -> int:
    rank = whole_of(entry.get("rank"))
    return -1 if rank is None else rank


def refusal(result: RunResult, payload: str, node: str, tokens: Sequence[str]) -> tuple[str, str]:
    """Say why a file is not this payload's on this node, with its code; "" where it is.

    `tokens` are the words that nodes noted, first that of the rank that wrote it, then those of the
    ranks that it lists; "" where an older rv's command noted none.
    """
    said = (result.token, *result.tokens)
    is_other_node = node and result.node and result.node != node and not any(tokens)
    reasons = {
        "names no job": not result.job_id,
        "has no time": result.timestamp is None,
        f"of {result.test_type}, not {payload}": result.test_type != payload,
        "of another run of a payload: its token differs": not _are_as_noted(tokens, said),
        f"of node {result.node}, not {node}": is_other_node,
    }
    why = next((reason for reason, is_so in reasons.items() if is_so), "")
    return ("result_foreign", why) if why else ("", "")


def _are_as_noted(noted: Sequence[str], said: Sequence[str]) -> bool:
    """Whether each token is the one that a node noted, if it did."""
    return all(not token or token == own for token, own in zip(noted, said, strict=True))


def shortfall(result: RunResult, planned: Collection[str], gpus: int, world: int) -> list[str]:
    """List what a result without a failure lacks: its exit code, ranks, GPUs, planned tests.

    `gpus` is how many it should list, 0 where that is unknown; `world` its ranks, or 0.
    """
    if result.status is Status.SKIP:  # for want of a program or of a data set, not of its GPUs
        return list(_missing_gpus(result, gpus))
    if result.status not in (Status.PASS, Status.WARN):
        return []
    codes = {test.code for test in result.tests}
    missing = _wrong_exit(result)
    if world and result.world_size != world:
        missing.append(f"{result.world_size} ranks, {world} were planned")
    missing += _missing_gpus(result, gpus)
    if "no_torch" not in codes:
        missing += [f"no test {name}{where}" for name, where in _untested(result, planned)]
    return [*missing, *_unmeasured(result)]


def lacking_gpus(results: Sequence[RunResult], gpus: int) -> list[str]:
    """Say that all ranks of a payload, each with its own result, have fewer GPUs than planned."""
    have_passed = {result.status for result in results} <= {Status.PASS, Status.WARN}
    are_all = len(results) == max(result.world_size for result in results)
    uuids = _whole_gpus(results)
    if not (have_passed and are_all and uuids) or len(uuids) >= gpus:
        return []
    return [f"its ranks have {len(uuids)} GPUs, {gpus} were planned"]


def _whole_gpus(results: Sequence[RunResult]) -> set[str]:
    """Give the UUIDs of all GPUs that are no MIG slices; none where that of one is not known."""
    devices = itertools.chain.from_iterable(result.devices for result in results)
    uuids = {bare_uuid(device.uuid) for device in devices if not device.mig}
    return set() if "" in uuids else uuids


def _missing_gpus(result: RunResult, gpus: int) -> Iterator[str]:
    """Say that a result lists fewer GPUs than it should; a sandbox has none."""
    is_sandbox = any(test.code == "fake_gpu" for test in result.tests)
    if len(result.devices) < gpus and not is_sandbox:
        yield f"{len(result.devices)} GPUs, {gpus} were planned"


def _unmeasured(result: RunResult) -> Iterator[str]:
    """Name each rate that has references and that a test of a GPU, which passed, does not give."""
    for rate in _RATES_OF.get(result.test_type, ()):
        for test in result.tests:
            if test.name == rate["test"] and _has_passed_on_gpu(test):
                yield from _lacking(test, rate["metric"], rate["unit"])


def _lacking(test: TestResult, name: str, unit: str) -> Iterator[str]:
    """Say that a test has no metric of a name (a pattern), or one in another unit.

    One that is not judged, as its device waited for the payload, is none that passed.
    """
    named = [metric for metric in test.metrics if fnmatch.fnmatchcase(metric.name, name)]
    others = [metric.unit or "no unit" for metric in named if metric.unit != unit]
    if others:
        yield f"{test.name}: {name} is in {others[0]}, not {unit}"
    elif not named:
        yield f"{test.name} has no {name}"
    elif _passes_unjudged(test, named):
        yield f"{test.name}: {name} is not to be judged, and passed"


def _passes_unjudged(test: TestResult, named: Collection[Metric]) -> bool:
    """Whether a test that passed has a number of which no direction is the better one."""
    return test.status is Status.PASS and not all(metric.direction for metric in named)


def _has_passed_on_gpu(test: TestResult) -> bool:
    return test.status in (Status.PASS, Status.WARN) and test.device.startswith("cuda:")


def _wrong_exit(result: RunResult) -> list[str]:
    """Hold the exit code that a result names against its verdict; --strict ends a WARN with 1."""
    if result.exit_code is None:
        return ["it has no exit code"]
    is_strict = result.status is Status.WARN and result.exit_code == 1
    is_right = result.exit_code == 0 or is_strict
    return [] if is_right else [f"its exit code is {result.exit_code} beside a {result.status}"]


def _untested(result: RunResult, planned: Collection[str]) -> Iterator[tuple[str, str]]:
    """Give the planned tests that a rank did not make, or that left a GPU out."""
    for name in planned:
        alike = _tests_for(name, result)
        if absent := _ranks(result) - {test.rank or 0 for test in alike}:
            yield name, f" of rank {min(absent)}" if result.world_size > 1 else ""
        elif result.world_size == 1 and (left := _left_out(result, alike)):
            yield name, f" of {min(left)}"


def _ranks(result: RunResult) -> set[int]:
    """Give the ranks that a result is of: one, or where it lists them all of its world."""
    is_of_one = result.rank is not None and not result.hosts
    return {result.rank or 0} if is_of_one else set(range(result.world_size))


def _left_out(result: RunResult, tests: Collection[TestResult]) -> set[str]:
    """Give the GPUs that none of some tests was of, where any test was of a GPU."""
    used = {test.device for test in tests if test.device.startswith("cuda:")}
    return {f"cuda:{device.index}" for device in result.devices} - used if used else set()


def _tests_for(planned: str, result: RunResult) -> list[TestResult]:
    """Give the tests of a planned name, and the skipped ones that stand for it."""
    every = result.tests
    return [t for t in every if _is_of(t.name, planned) or _is_skipped_with(t, planned, result)]


def _is_of(name: str, planned: str) -> bool:
    return fnmatch.fnmatchcase(name.removesuffix(".rank"), planned)


def _is_skipped_with(test: TestResult, planned: str, result: RunResult) -> bool:
    """Whether a skipped test stands for a planned one below its name.

    `matmul.fp64` does for `matmul.fp64.residual`, and the payload's own name for all of its tests:
    but not in a PASS, which would then vouch for nothing.
    """
    is_above = test.status is Status.SKIP and planned.startswith(f"{test.name}.")
    is_all_of_a_pass = result.status is Status.PASS and test.name == result.test_type
    return is_above and not is_all_of_a_pass
