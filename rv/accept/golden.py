"""Golden values: what a cluster's own clean nodes reach, as a file of baselines. Pure."""

import json
import statistics
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from rv.accept.baselines import Baselines
from rv.accept.measurements import Measurement

LEAST_NODES: Final = 3


def golden(
    measured: Iterable[Measurement], known: Baselines, avoided: Collection[str], now: float
) -> tuple[str, int]:
    """Write a file of baselines from what was measured; give it and the number of its values.

    A value is the median of at least three nodes' medians, of the latest method; nodes in `avoided`
    do not count, nor what was measured quickly, over several nodes or on a MIG slice.
    """
    usable = [
        m
        for m in measured
        if m.node not in avoided and not m.quick and m.is_of_gpus and m.nodes == 1 and not m.is_mig
    ]
    method = max((m.method_version for m in usable), default=0)
    day = f"{datetime.fromtimestamp(now, tz=UTC):%Y-%m-%d}"
    references: dict[str, Any] = {}
    for name, of, gpu, value, nodes in _values(
        [m for m in usable if m.method_version == method], known
    ):
        entry = references.setdefault(name, {"of": of, "values": {}})
        source = f"median of {nodes} nodes, {day}"
        entry["values"][gpu] = {"value": value, "source": source}
    count = sum(len(entry["values"]) for entry in references.values())
    # JSON is YAML, and needs no writer that might quote otherwise.
    document = {"method_version": method, "references": references}
    return json.dumps(document, indent=1) + "\n", count


def _values(
    measured: Iterable[Measurement], known: Baselines
) -> Iterator[tuple[str, dict[str, Any], str, float, int]]:
    groups: dict[tuple[str, ...], list[Measurement]] = {}
    for each in measured:
        groups.setdefault((_model(each, known), *each.key), []).append(each)
    for (gpu, *_), group in sorted(groups.items()):
        nodes: dict[str, list[float]] = {}
        for each in group:
            nodes.setdefault(each.node, []).append(each.value)
        if len(nodes) < LEAST_NODES:
            continue
        one = group[0]
        of = {
            "payload": one.payload,
            "test": one.test,
            "metric": one.metric,
            "unit": one.unit,
            "world": one.world,
            "shape": one.shape,
            "dtype": one.dtype,
        }
        name = " ".join(str(part) for part in of.values() if part)
        value = statistics.median(statistics.median(values) for values in nodes.values())
        yield name, of, gpu, value, len(nodes)


def _model(measured: Measurement, known: Baselines) -> str:
    model = known.model(measured.gpu)
    return model.name if model else "-".join(measured.gpu.lower().split())
