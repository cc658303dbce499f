"""What a GPU should reach: values with their source, in layers, the nearest to the user on top.

Layers: what came with rv, `golden` values made from this cluster's clean nodes, the site's file,
and the user's. Every value is found by the GPU's product name (the longest that fits), payload,
test, metric, type, size, number of GPUs and method version; a MIG slice's is scaled from the whole
GPU's by its processors or its memory, and then only warns.
"""

import fnmatch
import json
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field

from rv import bundle
from rv.accept.baselines_file import layer_document
from rv.accept.measurements import HOST_COPIES, LANES_LOST, SOUND, Measurement, size_of
from rv.accept.results import Device, Reference
from rv.config.documents import Document
from rv.config.documents import Path as Place
from rv.config.schema import Number, Schema, Text, Whole, must_be, validate
from rv.dataclass import dataclass
from rv.models.spelling import suggestion
from rv.payloads.contract import references
from rv.payloads.contract.catalogue import PAYLOADS
from rv.payloads.contract.rates import (
    REFERENCE_FAIL,
    REFERENCE_WARN,
    UNTOLD_FAIL,
    is_of_size,
    model_of,
    share_of_slice,
    sizes_of,
    words,
)

FILE: Final = "baselines.yaml"
SITE_FILE: Final = Path("/etc/rv") / FILE
BUILTIN, GOLDEN, SITE, USER = "builtin", "golden", "site", "user"
LEAST_NODES: Final = 3
"""Nodes that a golden value needs."""
LOWER: Final = -REFERENCE_FAIL
WARN: Final = -REFERENCE_WARN
ABOVE_PEAK: Final = 1.15
"""How far above a data sheet's peak a value may be: cards run above the clock of the sheet."""

_OF_GOLDEN: Final = ("payload", "test", "metric", "unit", "world", "shape", "dtype")


class Model(Schema):
    """What a GPU is: processors, memory, and peaks by type, `memory`, `host`, `link`.

    `sizes_gb` are the sizes that product names tell, where not `memory_gb` alone; `links` are its
    NVLinks, 0 where that is unknown; `mesh`: all GPUs of a node are linked by NVLink.
    """

    sms: Whole = 0
    memory_gb: Whole = 0
    sizes_gb: list[Whole] = Field(default_factory=list)
    links: Whole = 0
    mesh: bool = False
    peaks: dict[str, Number] = Field(default_factory=dict)


class _Of(Schema):
    """What a value is of; `world` 0 is any, `shape` and `dtype` "" are any.

    `metric` may end in `*`. `least` is the smallest side, or bytes, that it holds from.
    """

    payload: Text
    test: Text
    metric: Text
    unit: Text
    peak: Text = ""
    least: Whole = 0
    world: Whole = 0
    shape: Text = ""
    dtype: Text = ""


_Rate = Annotated[
    Number,
    Field(gt=0),
    must_be("a number greater than 0", "where you know none, leave the GPU out"),
]
"""What everything measured is held against: nothing would be slower than 0."""


class _Value(Schema):
    value: _Rate
    source: Text = ""


class _References(Schema):
    of: _Of
    values: dict[str, _Value] = Field(default_factory=dict)


class _File(Schema):
    """A file of baselines; without a method version they are of the current one."""

    method_version: Whole = references.METHOD_VERSION
    gpus: dict[str, Model] = Field(default_factory=dict)
    references: dict[str, _References] = Field(default_factory=dict)


class Baseline(_Of):
    """One value of one GPU model, and of what."""

    gpu: Text
    value: Number
    source: Text
    kind: Text
    method_version: Whole

    def is_of(self, measured: Measurement) -> bool:
        """Whether a measurement is of what this is the value of."""
        same = (self.payload, self.test, self.unit, self.method_version)
        if same != (measured.payload, measured.test, measured.unit, measured.method_version):
            return False
        # The network between nodes is no GPU's: what holds for so many ranks holds on one node.
        if self.world and (self.world, 1) != (measured.world, measured.nodes):
            return False
        if self.shape not in ("", measured.shape) or self.dtype not in ("", measured.dtype):
            return False
        is_large = size_of(measured.shape) >= self.least
        return is_large and fnmatch.fnmatchcase(measured.metric, self.metric)


@dataclass(frozen=True, kw_only=True, slots=True)
class Baselines:
    """All layers, those that win first."""

    values: tuple[Baseline, ...]
    models: Mapping[str, Model]

    def model_of(self, product: str) -> str:
        """Return the model that a product's name is of, as `rates.model_of` reads it."""
        return model_of(product, {name: _sizes(model) for name, model in self.models.items()})

    def is_mesh(self, product: str) -> bool:
        """Whether NVLink joins all GPUs of a node, by their product's name."""
        return self.models.get(self.model_of(product), Model()).mesh

    def of_model(self, name: str) -> tuple[Baseline, ...]:
        """Give every value of a GPU model, named in part or as drivers name it."""
        model = self.model_of(name) or name
        return tuple(value for value in self.values if value.gpu == model)

    def of_payload(self, payload: str, product: str, method: int) -> tuple[Baseline, ...]:
        """Give every value of a payload on a GPU, whatever was measured."""
        key = (payload, self.model_of(product), method)
        return tuple(b for b in self.values if (b.payload, b.gpu, b.method_version) == key)

    def find(self, measured: Measurement, device: Device | None) -> Reference | None:
        """Return the reference for a measurement, None where no layer has one."""
        name = self.model_of(measured.gpu)
        model = self.models.get(name, Model())
        for value in self.values:
            if value.gpu == name and value.is_of(measured) and _is_for(value, model, device):
                return _of_links(_reference(value, model, device), value, model, measured)
        return None

    def peak(self, measured: Measurement) -> float | None:
        """Return what no measurement of this kind can exceed, by the data sheet."""
        model = self.model_of(measured.gpu)
        if not model:
            return None
        for value in self.values:
            if value.peak and value.is_of(measured):
                return self.models[model].peaks.get(value.peak)
        return None


def _sizes(model: Model) -> tuple[int, ...]:
    return sizes_of(model.memory_gb, model.sizes_gb)


def _is_for(baseline: Baseline, model: Model, device: Device | None) -> bool:
    """Whether a value is for a GPU: a built-in one where that is as large as its model.

    Whoever has GPUs of another size under the same name has values of their own for them.
    """
    if baseline.kind != BUILTIN or device is None or device.mig:
        return True
    return is_of_size(model.sms, _sizes(model), device.sm_count, device.memory_bytes)


def golden_file(cluster: str) -> Path:
    """Return the file of a cluster's golden values."""
    return bundle.acceptance_file("golden", cluster, ".yaml")


def baselines_for(cluster: str) -> Baselines:
    """Read every layer that holds for a cluster; for "" there are no golden values."""
    return load(bundle.user_config_dir(), [golden_file(cluster)])


def load(folder: Path, golden: Sequence[Path], site: Path = SITE_FILE) -> Baselines:
    """Read all layers; `folder` is the user's configuration folder, `golden` files made here.

    Raises `RvError(CONFIG)` with file and line for one that is wrong.
    """
    builtin = Document(name="rv's own references", data=references.document(), node=None)
    layers: list[tuple[Path, str]] = [(folder / FILE, USER), (site, SITE)]
    layers += [(path, GOLDEN) for path in golden]
    documents = [(layer_document(path), kind) for path, kind in layers] + [(builtin, BUILTIN)]
    read = [read_layer(document, kind) for document, kind in documents if document is not None]
    values = tuple(value for layer, _ in read for value in layer)
    models = {value.gpu: Model() for value in values}
    for _, layer_models in reversed(read):
        models |= layer_models
    return Baselines(values=values, models=models)


def read_layer(document: Document, kind: str) -> tuple[list[Baseline], dict[str, Model]]:
    """Read one file's values and models. Raises `RvError(CONFIG)` for what is wrong in it."""
    file = validate(document, _File)
    _check_method(document, file.method_version)
    values = []
    for name, group in file.references.items():
        if kind != GOLDEN:  # those are of whatever was measured here, by other suites too
            _check_payload(document, ("references", name, "of", "payload"), group.of.payload)
        of = {**group.of.model_dump(), "kind": kind, "method_version": file.method_version}
        for gpu, entry in _by_model(document, ("references", name, "values"), group.values).items():
            values.append(Baseline(gpu=gpu, value=entry.value, source=entry.source, **of))
    return values, _by_model(document, ("gpus",), file.gpus)


def _check_method(document: Document, method: int) -> None:
    """Refuse values of a method that nothing here measures by: they would never hold."""
    if method > references.METHOD_VERSION:
        message = f"method_version {method}: this rv knows those up to {references.METHOD_VERSION}"
        hint = "a newer rv wrote the file: update this one, or move the file away"
        document.fail(("method_version",), message, hint=hint)


def _check_payload(document: Document, place: Place, payload: str) -> None:
    """Refuse values of a payload that there is not: they would never hold."""
    names = tuple(spec.name for spec in PAYLOADS)
    if payload not in names:
        hint = suggestion(payload, names, f"one of: {', '.join(names)}")
        document.fail(place, f"unknown payload {payload!r}", hint=hint)


_Entry = TypeVar("_Entry")


def _by_model(document: Document, place: Place, entries: Mapping[str, _Entry]) -> dict[str, _Entry]:
    """Give a file's entries by model: `H200` is `h200`, and no model may stand there twice."""
    found: dict[str, _Entry] = {}
    for name, entry in entries.items():
        model = _model_name(name)
        if model in found:
            message = f"{name!r} is the model {model}, which stands here twice"
            document.fail((*place, name), message, hint="remove one of them")
        found[model] = entry
    return found


def _model_name(name: str) -> str:
    """Write a model's name in one way, by the words that `rates.model_of` reads it by."""
    return "-".join(words(name).split()) or name.lower()


def _reference(baseline: Baseline, model: Model, device: Device | None) -> Reference:
    source = baseline.source
    whole = Reference(
        value=baseline.value, lower=_lower(baseline), warn=WARN, kind=baseline.kind, source=source
    )
    if device is None or not device.mig:
        return whole
    size = (device.sm_count, device.memory_bytes)
    share = share_of_slice(baseline.peak, model.sms, model.memory_gb, *size)
    source = f"{share:.3f} of {baseline.value:g}: {source}"
    return replace(whole, value=baseline.value * share, lower=None, kind="scaled", source=source)


def _lower(baseline: Baseline) -> float | None:
    """Return the bound from which on it fails: a model does not say how fast its host is.

    Nor does a golden value on which socket a GPU is.
    """
    if baseline.kind == GOLDEN and baseline.metric in HOST_COPIES:
        return -LANES_LOST
    return None if (baseline.kind, baseline.peak) == (BUILTIN, "host") else LOWER


def _of_links(
    reference: Reference, baseline: Baseline, model: Model, measured: Measurement
) -> Reference:
    """Scale a built-in one over NVLink to the links that a pair is made to have.

    One of this cluster, site or user is of their own machines.
    """
    if (baseline.kind, baseline.peak) != (BUILTIN, "link") or not model.mesh:
        return reference
    share = measured.link_share
    if share is None:
        return replace(reference, lower=-UNTOLD_FAIL)
    if share == 1.0:
        return reference
    source = f"{share:.3f} of {baseline.value:g}, as of the links: {reference.source}"
    return replace(reference, value=reference.value * share, source=source)


def golden(
    measured: Iterable[Measurement], known: Baselines, avoided: Collection[str], now_s: float
) -> tuple[str, int]:
    """Write a file of baselines from what was measured; give it and the number of its values.

    A value is the median of at least `LEAST_NODES` nodes' medians, of the latest method. Not used
    are nodes in `avoided`, quick runs, runs over several nodes, MIG slices, and GPUs together that
    NVLink does not join all of: their speed is that of their wiring.
    """
    usable = [m for m in measured if m.node not in avoided and _is_representative(m, known)]
    method = max((m.method_version for m in usable), default=0)
    day = f"{datetime.fromtimestamp(now_s, tz=UTC):%Y-%m-%d}"
    references: dict[str, Any] = {}
    count = 0
    for gpu, group in _alike(usable, known):
        medians = _node_medians(group)
        if len(medians) < LEAST_NODES or group[0].method_version != method:
            continue
        of = {name: getattr(group[0], name) for name in _OF_GOLDEN}
        name = " ".join(filter(None, map(str, of.values())))
        entry = references.setdefault(name, {"of": of, "values": {}})
        source = f"median of {len(medians)} nodes, {day}"
        entry["values"][gpu] = {"value": statistics.median(medians), "source": source}
        count += 1
    # JSON is YAML, and needs no writer that might quote otherwise.
    document = {"method_version": method, "references": references}
    return json.dumps(document, indent=1) + "\n", count


def _is_representative(measured: Measurement, known: Baselines) -> bool:
    """Whether a value is a sound one of whole GPUs on one node, and not of a quick run."""
    is_whole = measured.is_of_gpus and not measured.is_mig and measured.standing == SOUND
    is_usual = bool(measured.gpu_uuid) or known.is_mesh(measured.gpu)
    # A newer rv may write the history too; what this one makes, it must be able to read.
    is_readable = measured.value > 0 and measured.method_version <= references.METHOD_VERSION
    is_full = measured.nodes == 1 and not measured.quick
    return is_whole and is_usual and is_readable and is_full


def _alike(
    measured: Iterable[Measurement], known: Baselines
) -> Iterator[tuple[str, list[Measurement]]]:
    """Group what was measured alike on GPUs of one model."""
    groups: dict[tuple[str, ...], list[Measurement]] = {}
    for each in measured:
        gpu = known.model_of(each.gpu) or _model_name(each.gpu)
        groups.setdefault((gpu, *each.key), []).append(each)
    return ((key[0], groups[key]) for key in sorted(groups))


def _node_medians(group: Iterable[Measurement]) -> list[float]:
    nodes: dict[str, list[float]] = {}
    for each in group:
        nodes.setdefault(each.node, []).append(each.value)
    return [statistics.median(values) for values in nodes.values()]
