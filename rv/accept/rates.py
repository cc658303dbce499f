"""How fast GPUs are, for plans: what acceptance measured on a cluster, then what is published."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any, Final

from rv.accept.history import history
from rv.accept.measurements import SOUND, Measurement
from rv.errors import RvError
from rv.models.performance import AllReduce, Performance, Rate
from rv.models.site import Site
from rv.payloads.contract.references import GPUS, REFERENCES

_HALF: Final = ("bf16", "fp16")
"""Number types in which models are trained; a GPU that has not the first has the second."""


def rated(site: Site, cluster: str) -> Site:
    """Return the site with what is known of the GPUs of a cluster, by its key."""
    said = site.performance
    known = performance(cluster)
    named = replace(known, reference=said.reference, reference_origin=said.reference_origin)
    return replace(site, performance=named)


def performance(cluster: str) -> Performance:
    """Return what is known of GPUs on a cluster, by its key: what was measured there comes first.

    A history that cannot be read counts as none.
    """
    measured: tuple[Measurement, ...] = ()
    with suppress(RvError):
        every = history().all()
        measured = tuple(m for m in every if m.cluster == cluster and _is_usable(m))
    return Performance(
        rates=(*_measured_rates(measured), *_published_rates()),
        all_reduce=(*_measured_links(measured), *_published_links()),
        nvlinked=tuple(name for name, about in GPUS.items() if about.get("mesh")),
    )


def _is_usable(measured: Measurement) -> bool:
    return measured.standing == SOUND and not measured.is_mig and bool(measured.gpu)


def _measured_rates(measured: Iterable[Measurement]) -> Iterator[Rate]:
    """Yield medians of training steps, alike in all but the model, and then of bf16 products."""
    steps: dict[tuple[str, str], list[float]] = defaultdict(list)
    products: dict[str, list[float]] = defaultdict(list)
    for one in measured:
        if (one.payload, one.metric, one.quick) == ("train", "samples_per_s", False):
            steps[f"training step, {' '.join(one.key)}", one.gpu].append(one.value)
        elif one.payload == "check" and (one.test, one.metric) == ("matmul.bf16", "tflops"):
            products[one.gpu].append(one.value)
    for (kind, gpu), values in sorted(steps.items()):
        yield Rate(gpu=gpu, kind=kind, value=median(values), source="measured here: training step")
    for gpu, values in sorted(products.items()):
        yield Rate(
            gpu=gpu, kind="measured bf16", value=median(values), source="measured here: bf16 rate"
        )


def _published_rates() -> Iterator[Rate]:
    """Yield rates of large products that somebody published, then the peaks of data sheets."""
    named: dict[str, float] = {}
    for dtype in reversed(_HALF):
        values: dict[str, Any] = REFERENCES[f"matmul.{dtype}"]["values"]
        named |= {gpu: entry["value"] for gpu, entry in values.items()}
    for gpu, value in named.items():
        yield Rate(gpu=gpu, kind="published", value=value, source="published bf16 rate")
    for gpu, about in GPUS.items():
        peaks = about["peaks"]
        peak = next((peaks[dtype] for dtype in _HALF if dtype in peaks), peaks["fp32"])
        yield Rate(gpu=gpu, kind="peak", value=float(peak), source="data sheet's peak")


def _measured_links(measured: Iterable[Measurement]) -> Iterator[AllReduce]:
    """Yield the medians of the best bandwidth that each run had."""
    runs: dict[tuple[str, int, int], dict[str, float]] = defaultdict(dict)
    for one in measured:
        if one.test == "allreduce.all_reduce" and one.metric.startswith("busbw"):
            best = runs[one.gpu, one.world, one.nodes]
            best[one.run] = max(one.value, best.get(one.run, 0.0))
    for (gpu, gpus, nodes), best in sorted(runs.items()):
        yield AllReduce(
            gpu=gpu,
            gpus=gpus,
            nodes=nodes,
            value=median(best.values()),
            source="all-reduce measured here",
        )


def _published_links() -> Iterator[AllReduce]:
    for group in REFERENCES.values():
        of = group["of"]
        if of["payload"] != "allreduce":
            continue
        for gpu, entry in group["values"].items():
            yield AllReduce(
                gpu=gpu,
                gpus=of["world"],
                nodes=1,
                value=float(entry["value"]),
                source="published all-reduce",
            )
