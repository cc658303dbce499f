"""What the results of both sides show together: overheads, where remote pays, and the trend."""

from __future__ import annotations

import ast
import json
import math
from typing import TYPE_CHECKING, Any

from _harness import files

if TYPE_CHECKING:
    from pathlib import Path

MOST_PYTHON = 2**16  # characters read as Python's values, where a bracket takes hundreds of bytes


def analyse(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the tests, and take the newest comparison, with a trend over all of them."""
    tests = [test for result in results for test in result["tests"]]
    trend = _comparisons(tests)
    bad = [test["name"] for test in tests if test.get("status") not in ("PASS", "SKIP")]
    return {
        "passed": sum(test.get("status") == "PASS" for test in tests),
        "failed": bad,
        "cut_short": [result["file"] for result in results if not result["whole"]],
        "server_gpu_ms": _newest(tests, "gpu_detection", "gpu_time_ms"),
        "comparison": trend[-1] if trend else None,
        "trend": trend,
        "sweep": _newest(tests, "size_sweep", "sizes"),
        "break_even": _newest(tests, "size_sweep", "break_even"),
    }


def _comparisons(tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    compared = [test for test in tests if test.get("name") == "performance_comparison"]
    comparisons = [comparison(details_of(test)) for test in compared]
    return [each for each in comparisons if each]


def load(folder: Path) -> list[dict[str, Any]]:
    """Read the result files of a folder, oldest first; one cut short is not `whole`."""
    results = []
    for path in sorted(folder.glob("*_test_results_*.json"), key=lambda path: path.name[-20:]):
        try:
            document: Any = json.loads(files.read_regular(path))
        except (OSError, ValueError):
            document = None
        whole = isinstance(document, dict) and isinstance(document.get("tests"), list)
        tests = document["tests"] if whole else []
        results.append({"file": path.name, "whole": whole, "tests": tests})
    return results


def details_of(test: dict[str, Any]) -> dict[str, Any]:
    """Return a test's details, which older files hold as text: JSON, or else a Python literal."""
    details = test.get("details")
    if isinstance(details, dict):
        return details
    text = str(details)
    for read in (json.loads, ast.literal_eval) if len(text) <= MOST_PYTHON else (json.loads,):
        try:
            document = read(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(document, dict):
            return document
    return {"text": text} if details else {}


def _newest(tests: list[dict[str, Any]], name: str, key: str) -> Any:
    for test in reversed(tests):
        if test.get("name") == name and details_of(test).get(key) is not None:
            return details_of(test)[key]
    return None


def comparison(details: dict[str, Any]) -> dict[str, Any] | None:
    """Read one run's comparison of here and there, under its new or its old names."""
    cpu_ms = details.get("local_cpu_ms", details.get("cpu_time_ms"))
    remote_ms = details.get("remote_ms", details.get("remote_time_ms"))
    gpu_ms = details.get("server_compute_ms", details.get("gpu_time_ms"))
    if not isinstance(cpu_ms, (int, float)) or not isinstance(remote_ms, (int, float)):
        return None
    if not isinstance(gpu_ms, (int, float)):
        gpu_ms = cpu_ms
    times_ms = {"cpu_ms": cpu_ms, "gpu_ms": gpu_ms, "remote_ms": remote_ms}
    return {**times_ms, **overheads(**times_ms)}


def overheads(cpu_ms: float, gpu_ms: float, remote_ms: float) -> dict[str, float]:
    """Return what the network adds to the GPU's time, and remote to the CPU's, in ms and %."""
    return {
        "overhead_ms": remote_ms - gpu_ms,
        "overhead_pct": 100 * (remote_ms - gpu_ms) / gpu_ms if gpu_ms else math.inf,
        "total_overhead_ms": remote_ms - cpu_ms,
        "total_overhead_pct": 100 * (remote_ms - cpu_ms) / cpu_ms if cpu_ms else math.inf,
    }


def fit(points: list[tuple[float, float]]) -> dict[str, float]:
    """Fit t = a + b * bytes by least squares of relative error; a in ms, b in ms per byte.

    Relative, because the largest of sizes from 4 KiB to 256 MiB would decide alone otherwise.
    """
    weighted = [(size, ms, 1 / max(ms, 1e-9) ** 2) for size, ms in points]
    total = sum(weight for _, _, weight in weighted)
    mean_size = sum(weight * size for size, _, weight in weighted) / total
    mean_ms = sum(weight * ms for _, ms, weight in weighted) / total
    variance = sum(weight * (size - mean_size) ** 2 for size, _, weight in weighted)
    covariance = sum(weight * (size - mean_size) * (ms - mean_ms) for size, ms, weight in weighted)
    slope = covariance / variance if variance else 0.0
    return {"a_ms": mean_ms - slope * mean_size, "b_ms_per_byte": slope}


def break_even(remote: dict[str, float], local: dict[str, float]) -> dict[str, Any]:
    """Return the size from which remote is faster: where the two lines cross, if they do."""
    gained = local["b_ms_per_byte"] - remote["b_ms_per_byte"]
    extra = remote["a_ms"] - local["a_ms"]
    if gained <= 0:
        return {"bytes": None, "why": "each further byte costs more remotely than it does here"}
    return {"bytes": max(0.0, extra / gained), "why": "the fitted lines cross there"}


def markdown(analysis: dict[str, Any]) -> str:
    """Return the report for people: counts, the comparison, a recommendation, the trend."""
    lines = ["# Tensor service: test analysis", ""]
    lines += [f"- passed: {analysis['passed']}", f"- failed: {len(analysis['failed'])}"]
    lines += [f"  - {name}" for name in analysis["failed"]]
    lines += [f"- cut short, not counted: {name}" for name in analysis["cut_short"]]
    if analysis["comparison"]:
        lines += ["", "## Where the time goes", "", *_comparison_lines(analysis)]
    if len(analysis["trend"]) > 1:
        lines += ["", "## Trend", "", "| run | local CPU ms | remote ms | overhead % |"]
        lines += ["|---|---|---|---|"]
        for number, run in enumerate(analysis["trend"], 1):
            rates = f"{run['cpu_ms']:.3g} | {run['remote_ms']:.3g} | {run['overhead_pct']:.0f}"
            lines.append(f"| {number} | {rates} |")
    return "\n".join(lines) + "\n"


def _comparison_lines(analysis: dict[str, Any]) -> list[str]:
    compared, gpu_ms, point = (
        analysis[key] for key in ("comparison", "server_gpu_ms", "break_even")
    )
    network, total = compared["overhead_pct"], compared["total_overhead_pct"]
    lines = [
        f"- client CPU, 1000 x 1000 product: {compared['cpu_ms']:.4g} ms",
        f"- remote, the same: {compared['remote_ms']:.4g} ms",
        f"- over the server's compute: {compared['overhead_ms']:.4g} ms ({network:.0f} % of it)",
        f"- over the local CPU: {compared['total_overhead_ms']:.4g} ms ({total:.0f} % of it)",
    ]
    if gpu_ms is not None:
        lines.append(f"- server GPU alone: {gpu_ms:.4g} ms")
    if point and point["bytes"] is not None:
        lines.append(f"- elementwise work pays remotely from {point['bytes'] / 1e6:.3g} MB on")
    elif point:
        lines.append(f"- elementwise work never pays remotely: {point['why']}")
    return lines
