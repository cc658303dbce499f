"""What the results of both sides say together: shares of time, overheads, and trends."""

from __future__ import annotations

import ast
import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


def fit(points: list[tuple[float, float]]) -> dict[str, float]:
    """Fit t = a + b * bytes by least squares of relative error; a in ms, b in ms per byte.

    Relative, because the largest of sizes from 4 KiB to 256 MiB would decide alone otherwise.
    """
    weights = [1 / max(t, 1e-9) ** 2 for _, t in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_t = sum(w * t for w, (_, t) in zip(weights, points, strict=True)) / total
    spread = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    together = sum(
        w * (x - mean_x) * (t - mean_t) for w, (x, t) in zip(weights, points, strict=True)
    )
    slope = together / spread if spread else 0.0
    return {"a_ms": mean_t - slope * mean_x, "b_ms_per_byte": slope}


def break_even(remote: dict[str, float], local: dict[str, float]) -> dict[str, Any]:
    """Find the size from which remote is faster: where the two lines cross, if they do."""
    gained = local["b_ms_per_byte"] - remote["b_ms_per_byte"]
    extra = remote["a_ms"] - local["a_ms"]
    if gained <= 0:
        return {"bytes": None, "why": "each further byte costs more remotely than it does here"}
    size = max(0.0, extra / gained)
    return {"bytes": size if math.isfinite(size) else None, "why": "the fitted lines cross there"}


def overheads(cpu_ms: float, gpu_ms: float, remote_ms: float) -> dict[str, float]:
    """Give what the network adds to the GPU's time, and remote to the CPU's, in ms and per cent."""
    return {
        "overhead_ms": remote_ms - gpu_ms,
        "overhead_pct": 100 * (remote_ms - gpu_ms) / gpu_ms if gpu_ms else math.inf,
        "total_overhead_ms": remote_ms - cpu_ms,
        "total_overhead_pct": 100 * (remote_ms - cpu_ms) / cpu_ms if cpu_ms else math.inf,
    }


def details_of(test: dict[str, Any]) -> dict[str, Any]:
    """Give a test's details, which older files hold as text: JSON, or else a Python literal."""
    details = test.get("details")
    if isinstance(details, dict):
        return details
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(str(details))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return {"text": str(details)} if details else {}


def info_of(document: dict[str, Any]) -> dict[str, Any]:
    """Give who ran it: `test_info`, or the `server_info` and `client_info` of older files."""
    for name in ("test_info", "server_info", "client_info"):
        if isinstance(document.get(name), dict):
            return {"side": name.partition("_")[0], **document[name]}
    return {}


def load(folder: Path) -> list[dict[str, Any]]:
    """Read the result files of a folder, oldest first; one that is cut short is told as such."""
    found = []
    for path in sorted(folder.glob("*_test_results_*.json"), key=lambda path: path.name[-20:]):
        try:
            document = json.loads(path.read_text())
            good = isinstance(document, dict) and isinstance(document.get("tests"), list)
        except (OSError, ValueError):
            document, good = {}, False
        tests = document["tests"] if good else []
        side = "server" if path.name.startswith("server") else "client"
        found.append(
            {
                "file": path.name,
                "side": side,
                "whole": good,
                "info": info_of(document),
                "tests": tests,
            }
        )
    return found


def analyse(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the tests, and take the newest comparison, with a trend over all of them."""
    tests = [test for result in results for test in result["tests"]]
    bad = [test["name"] for test in tests if test.get("status") not in ("PASS", "SKIP")]
    compared = [c for result in results if (c := comparison(result["tests"]))]
    gpu = next(_found(results, "gpu_detection", ("gpu_time_ms",)), None)
    return {
        "passed": sum(test.get("status") == "PASS" for test in tests),
        "failed": bad,
        "cut_short": [result["file"] for result in results if not result["whole"]],
        "server_gpu_ms": gpu,
        "comparison": compared[-1] if compared else None,
        "trend": compared,
        "sweep": next(_found(results, "size_sweep", ("sizes",)), None),
        "break_even": next(_found(results, "size_sweep", ("break_even",)), None),
    }


def comparison(tests: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Read one run's comparison of here and there, under its new or its old names."""
    for test in tests:
        if test.get("name") != "performance_comparison":
            continue
        details = details_of(test)
        cpu = details.get("local_cpu_ms", details.get("cpu_time_ms"))
        remote = details.get("remote_ms", details.get("remote_time_ms"))
        gpu = details.get("server_compute_ms", details.get("gpu_time_ms"))
        if isinstance(cpu, (int, float)) and isinstance(remote, (int, float)):
            known = float(gpu) if isinstance(gpu, (int, float)) else float(cpu)
            return {
                "cpu_ms": cpu,
                "gpu_ms": gpu,
                "remote_ms": remote,
                "phases_ms": details.get("phases_ms"),
                **overheads(float(cpu), known, float(remote)),
            }
    return None


def _found(results: list[dict[str, Any]], name: str, keys: tuple[str, ...]) -> Iterator[Any]:
    for result in reversed(results):
        for test in result["tests"]:
            details = details_of(test) if test.get("name") == name else {}
            value = next((details[key] for key in keys if details.get(key) is not None), None)
            if value is not None:
                yield value
