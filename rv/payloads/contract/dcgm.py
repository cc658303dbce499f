"""What DCGM prints, read: `dcgmi diag -j` of versions 3 and 4, and `dcgmi discovery -l`.

Version 3 has `DCGM GPU Diagnostic` beside the versions, results by `gpu_ids` or `gpu_id`, and
warnings as one text; 3.3 as a list with severities, whose text is called `warnings` in the tests of
the software. Version 4 has `DCGM Diagnostic`, results by entity, the versions in `metadata`, and in
`test_summary` the warnings of no entity, since 4.5 of all (`dcgmi/Diag.cpp` of NVIDIA/DCGM).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
MOST = 4 * 2**20  # characters
TIMES_S = {1: 180.0, 2: 900.0, 3: 3600.0}
"""By level, the most that a run may take: NVIDIA's figures are seconds, 2 and 30 minutes."""
MOST_TEXT = 300  # characters of one result's warnings
MONITOR, CONFIG = 1, 5  # DCGM_ERROR_MONITOR, DCGM_ERROR_CONFIG: all other severities are faults
OF_SOFTWARE = (
    "denylist", "nvml library", "cuda main library", "cuda toolkit library",
    "permissions and os blocks", "persistence mode", "environment variables", "graphics processes",
)  # fmt: skip
"""Tests of version 3 that say nothing of the hardware; version 4 has one for them, `software`."""
WELL = ("pass", "skip", "not run", "notrun", "skipped")
"""How a test that found nothing, or was not run, is told; any other word is a finding."""
WHOLE = re.compile(r"\d{1,4}", re.ASCII)
GPU_ID = re.compile(r"\|\s*(\d{1,4})\s*\|")
GPU_UUID = re.compile(r"Device UUID: (GPU-[0-9A-Fa-f-]{1,40})")

Finding = tuple[str, str, str]  # status, code, reason


@dataclass(frozen=True)
class Result:
    """One test of one GPU, by its number in DCGM; None where it is of the whole node."""

    test: str
    status: str  # pass, fail, warn, skip or not run
    gpu: int | None = None
    text: str = ""
    severities: tuple[int, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """A whole run; `error` says why there is none, or that it broke off."""

    results: tuple[Result, ...] = ()
    version: str = ""
    error: str = ""


def parse_diag(text: str) -> Diagnosis:
    """Read `dcgmi diag -j`, which may say something before its JSON."""
    head, _, rest = text[:MOST].partition("{")
    said = _plain(head)
    if not rest:
        return Diagnosis(error=said or "no JSON")
    try:
        document, _ = json.JSONDecoder().raw_decode("{" + rest)
    except (ValueError, RecursionError):
        return Diagnosis(error=said or "its JSON is cut short")
    return _diagnosis(document, said)


def _diagnosis(document: dict[str, Any], said: str) -> Diagnosis:
    root = next((_dict(document[name]) for name in ROOTS if name in document), {})
    if not root:
        return Diagnosis(error=_text(document.get("error")) or said or "no diagnosis in its JSON")
    results = tuple(_results(root))
    places = (_dict(document.get("metadata")), root, document)
    version = next(filter(None, (_text(each.get("version")) for each in places)), "")
    nothing = "" if results else "no test in its JSON"
    error = _text(root.get("runtime_error")) or nothing
    return Diagnosis(results, version[:40], error)


def _results(root: dict[str, Any]) -> Iterator[Result]:
    for category in _dicts(root.get("test_categories")):
        for test in _dicts(category.get("tests")):
            for result in _told(_dicts(test.get("results")), _dicts([test.get("test_summary")])):
                for gpu in _gpus(result):
                    yield _result(_text(test.get("name"))[:60], result, gpu)


def _told(results: list[dict[str, Any]], summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the results, and of the summary what they do not say: a status, or warnings."""
    well_known = {*WELL, *map(_status, results)}
    said = [warning for each in results for warning in _warnings(each)]
    rest = [{**each, "warnings": _without(_warnings(each), said)} for each in summary]
    return results + [
        each for each in rest if not results or each["warnings"] or _status(each) not in well_known
    ]


def _without(
    warnings: list[tuple[str, int | None]], said: list[tuple[str, int | None]]
) -> list[tuple[str, int | None]]:
    return [each for each in warnings if each not in said]


def _status(result: dict[str, Any]) -> str:
    return _text(result.get("status")).lower()[:20]


def _warnings(result: dict[str, Any]) -> list[tuple[str, int | None]]:
    """Return the text and the severity, where it is told, of each warning."""
    told = result.get("warnings")
    known = [each if isinstance(each, tuple) else _warning(each) for each in _listed(told)]
    return [each for each in known if each != ("", None)]


def _warning(told: Any) -> tuple[str, int | None]:
    about = _dict(told)
    text = about.get("warning", about.get("warnings")) if about else told
    severity = about.get("error_severity")
    return _text(text), severity if type(severity) is int else None


def _result(name: str, result: dict[str, Any], gpu: int | None) -> Result:
    warnings = _warnings(result)
    said = "; ".join(filter(None, (text for text, _ in warnings)))[:MOST_TEXT]
    known = tuple(severity for _, severity in warnings if severity is not None)
    return Result(name, _status(result), gpu, said, known)


def _gpus(result: dict[str, Any]) -> list[int | None]:
    """Return the GPUs of one result: a list in a text, a number, an entity, or none.

    Version 3 has one number of a test of the software, that of its last warning, and -1 for no GPU.
    """
    group = result.get("entity_group", "GPU")
    named = result.get("gpu_ids", result.get("gpu_id", result.get("entity_id")))
    words = str(named)[:400].split(",") if group == "GPU" and named is not None else []
    numbers = [int(word) for word in words if WHOLE.fullmatch(word.strip())]
    is_of_last = type(result.get("gpu_id")) is int and len(_warnings(result)) > 1
    return [*numbers] if numbers and not is_of_last else [None]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return _plain(value) if isinstance(value, str) else ""


def _plain(text: str) -> str:
    """Return a text as one short line that a terminal may show."""
    words = " ".join(text[: 4 * MOST_TEXT].split())
    return "".join(letter if letter.isprintable() else "?" for letter in words)[:MOST_TEXT]


def parse_discovery(text: str) -> dict[str, int]:
    """Read `dcgmi discovery -l`: DCGM's number of each GPU, by UUID."""
    found: dict[str, int] = {}
    number: int | None = None
    for line in text[:MOST].splitlines():
        if match := GPU_ID.match(line):
            number = int(match[1])
        if (match := GPU_UUID.search(line)) and number is not None:
            found[match[1]] = number
    return found


def judge_result(result: Result) -> Finding | None:
    """Judge one result; None of what passed without a word, or was not run."""
    if result.status in WELL and not (result.status == "pass" and result.text):
        return None
    is_failed = result.status.startswith("fail")
    said = f"DCGM's {result.test}: {result.text or result.status or 'it has no status'}"
    if _is_setup(result):
        return "WARN", "dcgm_setup", said
    is_light = bool(result.severities) and set(result.severities) <= {MONITOR, CONFIG}
    if is_failed and not is_light:
        return "FAIL", "dcgm_failed", said
    return "WARN", "dcgm_warned", said


def _is_setup(result: Result) -> bool:
    """Whether it is about the node's software and settings: by severity, or by the test's name."""
    if result.severities:
        return set(result.severities) == {CONFIG}
    return result.test.lower() in OF_SOFTWARE or "persistence mode" in result.text.lower()


def judged(diagnosis: Diagnosis) -> list[tuple[Result, Finding]]:
    """Judge all results; those that are well are left out."""
    both = ((result, judge_result(result)) for result in diagnosis.results)
    return [(result, found) for result, found in both if found is not None]


def untold(diagnosis: Diagnosis, asked: Iterable[int]) -> list[int]:
    """Return the GPUs that no test spoke of, where tests speak of single GPUs at all."""
    ran = [each for each in diagnosis.results if each.status not in WELL[1:]]
    told = {each.gpu for each in ran} - {None}
    return sorted(set(asked) - told) if told else []


def passed(diagnosis: Diagnosis) -> list[str]:
    """Return the tests that ran and passed, by name."""
    return sorted({each.test for each in diagnosis.results if each.status == "pass"})
