"""The verdict as the first acceptance programs printed it, for scripts that look for their words.

`gpu_tests.py`, `ddp_tests.py` and `run_all_tests.py` ended with `[RESULT] SUCCESS`, with
`[RESULT] FAILURE: [...]`, or without a GPU with `[RESULT] SKIPPED (no GPU)`.
"""

from __future__ import annotations

from typing import Any

from contract.verdicts import ERROR, FAIL, PASS, SKIP, WARN


def first_verdict(document: dict[str, Any]) -> str:
    """Return the line that the first programs ended with: a success is what ends with 0."""
    summary = document["summary"]
    if summary["status"] == SKIP:
        codes = [test["code"] for test in document["tests"] if test["status"] == SKIP]
        return "[RESULT] SKIPPED (no GPU)" if "no_gpu" in codes else "[RESULT] SKIPPED"
    if summary["status"] in (PASS, WARN) and summary["exit_code"] == 0:
        return "[RESULT] SUCCESS"
    return f"[RESULT] FAILURE: {failures(document) or [summary['status']]}"


def failures(document: dict[str, Any]) -> list[str]:
    """Return what failed, in words; where nothing did, what was warned of."""
    tests = document["tests"]
    bad = [test for test in tests if test["status"] in (FAIL, ERROR)]
    bad = bad or [test for test in tests if test["status"] == WARN]
    return [f"{test['name']}: {test['reason']}" for test in bad]
