"""The report that people read."""

from __future__ import annotations

from typing import Any

TREND = "| run | local CPU ms | remote ms | overhead % |\n|---|---|---|---|"


def markdown(analysis: dict[str, Any]) -> str:
    """Lay an analysis out."""
    parts = ["# Tensor service: test analysis", _summary(analysis)]
    compared = analysis["comparison"]
    if compared:
        parts += ["## Where the time goes", _comparison(analysis["server_gpu_ms"], compared)]
        parts += ["## Recommendation", _advice(analysis)]
    if analysis["sweep"]:
        parts += ["## By size", _sizes(analysis["sweep"])]
    if len(analysis["trend"]) > 1:
        rows = [
            f"| {n} | {c['cpu_ms']:.3g} | {c['remote_ms']:.3g} | {c['overhead_pct']:.0f} |"
            for n, c in enumerate(analysis["trend"], 1)
        ]
        parts += ["## Trend", "\n".join([TREND, *rows])]
    return "\n\n".join(parts) + "\n"


def _summary(analysis: dict[str, Any]) -> str:
    lines = [f"- passed: {analysis['passed']}", f"- failed: {len(analysis['failed'])}"]
    lines += [f"  - {name}" for name in analysis["failed"]]
    lines += [f"- cut short, not counted: {name}" for name in analysis["cut_short"]]
    return "\n".join(lines)


def _comparison(gpu: float | None, compared: dict[str, Any]) -> str:
    network, total = compared["overhead_pct"], compared["total_overhead_pct"]
    lines = [
        f"- client CPU, 1000 x 1000 product: {compared['cpu_ms']:.4g} ms",
        f"- remote, the same: {compared['remote_ms']:.4g} ms",
        f"- over the server's compute: {compared['overhead_ms']:.4g} ms ({network:.0f} % of it)",
        f"- over the local CPU: {compared['total_overhead_ms']:.4g} ms ({total:.0f} % of it)",
    ]
    if gpu is not None:
        lines.append(f"- server GPU alone: {gpu:.4g} ms")
    phases = compared["phases_ms"] or {}
    lines += [f"  - {name}: {ms:.4g} ms" for name, ms in phases.items() if name != "total"]
    return "\n".join(lines)


def _advice(analysis: dict[str, Any]) -> str:
    point = analysis["break_even"]
    phases = analysis["comparison"]["phases_ms"] or {}
    parts = {name: ms for name, ms in phases.items() if name != "total"}
    lines = []
    if parts:
        largest = max(parts, key=lambda name: parts[name])
        lines.append(f"- the largest part is `{largest}` with {parts[largest]:.4g} ms")
    if point and point["bytes"] is not None:
        lines.append(f"- elementwise work pays remotely from {point['bytes'] / 1e6:.3g} MB on")
    elif point:
        lines.append(f"- elementwise work never pays remotely: {point['why']}")
    return "\n".join(lines)


def _sizes(rows: list[dict[str, Any]]) -> str:
    head = "| bytes | remote ms | p95 ms | local ms | network ms |\n|---|---|---|---|---|"
    lines = [
        f"| {row['bytes']} | {row['remote_ms']:.4g} | {row['remote_p95_ms']:.4g}"
        f" | {row['local_ms']:.4g} | {row['phases_ms'].get('network', 0):.4g} |"
        for row in rows
    ]
    return "\n".join([head, *lines])
