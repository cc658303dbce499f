"""Rates against the references of `references.py`: for `rv accept`, and a payload by itself."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from .codes import CODES, CONTENTION
from .references import GPUS, REFERENCES
from .stats import loss
from .topology import LEAST_SHARE
from .verdicts import FAIL, PASS, WARN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

REFERENCE_WARN, REFERENCE_FAIL = 0.10, 0.20
"""Losses against a reference: above the first it warns, from the second on it fails."""

RATE_UNITS = ("TFLOPS", "GB/s", "images/s")
"""The units of what a GPU does in a second."""

_ROUNDING = 1e-9
DTYPES = {
    "float64": "fp64",
    "float32": "fp32",
    "tfloat32": "tf32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
}
_WORD = re.compile(r"[a-z0-9.]+")
_SIZE = re.compile(r"(\d{1,4})gb?", re.ASCII)
_ANY_MODELS = re.compile(
    r"nvidia|amd|tesla|geforce|quadro|instinct|radeon|rtx|gtx|generation|sxm\d?|pcie|nvl|hbm3e?",
    re.ASCII,
)
"""Words in products' names that tell no variant of a model from another."""
SMS_DIFFER, LEAST, MOST = 0.03, 0.85, 1.1
"""How far a GPU's processors and memory (an L4 of 24 GB has 22 GiB) may be from its model's."""


class Known(NamedTuple):
    """What a rate of a GPU should be, and the loss from which on it fails; None where it warns."""

    gpu: str
    value: float
    source: str
    fail_loss: float | None = REFERENCE_FAIL


class Judged(NamedTuple):
    """A rate as a part of what it should be."""

    device: str
    share: float
    known: Known


def words(name: str) -> str:
    """Part a name's words by spaces, also at its ends: `h200` is not in `gh200`."""
    return f" {' '.join(_WORD.findall(name.lower()))} "


def sizes_of(memory_gb: int, named: Collection[int]) -> tuple[int, ...]:
    """Return the sizes of memory, in GB, that a model's names may tell; () where none is known."""
    return tuple(named) or ((memory_gb,) if memory_gb else ())


SIZES: dict[str, tuple[int, ...]] = {
    name: sizes_of(gpu["memory_gb"], gpu.get("sizes_gb", ())) for name, gpu in GPUS.items()
}


def model_of(product: str, sizes: Mapping[str, Collection[int]] = SIZES) -> str:
    """Return the model that a product's name is of, word by word; the longest one, or "".

    `sizes` has for each model the memory in GB that its names may tell. A word that is neither the
    model's nor such a size, nor what all models have beside them, is another variant's (`FHHL`,
    `Ti`, `Laptop`), or a virtual GPU's (`8Q`): nobody said how fast these are.
    """
    own = words(product.partition(" MIG ")[0])
    names = [name for name, known in sizes.items() if _is_plain(words(name), own, known)]
    return max(names, key=lambda name: (words(name).count(" "), len(name)), default="")


def _is_plain(model: str, product: str, sizes: Collection[int]) -> bool:
    """Whether a product is a model, both in words, and no variant of it."""
    if model not in product:
        return False
    rest = product.replace(model, " ", 1).split()
    return all(_ANY_MODELS.fullmatch(word) or _tells(word, sizes) for word in rest)


def _tells(word: str, sizes: Collection[int]) -> bool:
    """Whether a word is a size of memory that a model has."""
    size = _SIZE.fullmatch(word)
    return size is not None and (not sizes or int(size[1]) in sizes)


def is_of_size(
    sms: int, sizes_gb: Collection[int], sm_count: int | None, memory_bytes: int | None
) -> bool:
    """Whether a whole GPU has a model's processors and memory, as far as both are known.

    It tells of less memory than it has on board: what error correction and the driver take.
    """
    if sms and sm_count and abs(sm_count / sms - 1) > SMS_DIFFER:
        return False
    gib = (memory_bytes or 0) / 2**30
    return not (sizes_gb and gib) or LEAST * min(sizes_gb) <= gib <= MOST * max(sizes_gb)


def share_of_slice(
    peak: str, sms: int, memory_gb: int, sm_count: int | None, memory_bytes: int | None
) -> float:
    """Return a MIG slice's part of its GPU: of its memory for bandwidth, else of its processors."""
    if peak in ("memory", "host", "link"):
        eighths = round(8 * (memory_bytes or 0) / (memory_gb * 1e9 or 1))
        return min(1.0, max(1, eighths) / 8)
    return min(1.0, (sm_count or 0) / sms) if sms else 1.0


UNTOLD_FAIL = 1 - (1 - REFERENCE_FAIL) * LEAST_SHARE
"""The loss against a reference over NVLink that fails where nothing tells how GPUs are joined."""


def of_links(share: Any) -> float | None:
    """Return what part of its reference over NVLink a metric is to reach, by its `link_share`.

    None where it does not tell how the GPUs are joined.
    """
    is_share = isinstance(share, int | float) and not isinstance(share, bool) and 0 < share <= 1
    return max(LEAST_SHARE, float(share)) if is_share else None


def code_of_loss(payload: str, *, is_failure: bool) -> str:
    """Return the code of a rate below its reference: what GPUs do together is the fabric's."""
    if payload in ("allreduce", "nccl_tests"):
        return "slow_fabric"
    return "below_floor" if is_failure else "below_reference"


def mesh_rate(product: str) -> float | None:
    """Return a GPU's NVLink in GB/s of one direction, where all of a node are linked by it."""
    gpu = GPUS.get(model_of(product), {})
    return float(gpu["peaks"]["link"]) if gpu.get("mesh") else None


def has_references(payload: str) -> bool:
    """Whether there are references of a payload, be it of other GPUs."""
    return any(each["of"]["payload"] == payload for each in REFERENCES.values())


def known_rate(
    payload: str, test: dict[str, Any], metric: dict[str, Any], device: dict[str, Any], world: int
) -> Known | None:
    """Return what a metric of a test on a GPU should be; None where nobody has said so."""
    gpu = model_of(device["name"])
    if not device.get("mig") and not _is_of_its_size(gpu, device):
        return None
    for each in REFERENCES.values():
        entry = each["values"].get(gpu)
        if entry and _is_of(each["of"], payload, test, metric, world):
            return _known(gpu, entry, each["of"].get("peak", ""), device, metric)
    return None


def _is_of_its_size(gpu: str, device: dict[str, Any]) -> bool:
    """Whether a whole GPU is as large as its model, if it has one."""
    size = (device.get("sm_count"), device.get("memory_bytes"))
    return gpu == "" or is_of_size(GPUS[gpu]["sms"], SIZES[gpu], *size)


def _known(
    gpu: str, entry: dict[str, Any], peak: str, device: dict[str, Any], metric: dict[str, Any]
) -> Known:
    """Scale to a MIG slice, which only warns, and to the links that a pair is made to have.

    Nor does a model say how fast its host is.
    """
    value, model = float(entry["value"]), GPUS[gpu]
    if peak == "link" and model.get("mesh"):
        share = of_links(metric.get("link_share"))
        fail_loss = REFERENCE_FAIL if share else UNTOLD_FAIL
        return Known(gpu, value * (share or 1.0), entry["source"], fail_loss)
    if not device.get("mig"):
        return Known(gpu, value, entry["source"], None if peak == "host" else REFERENCE_FAIL)
    size = (device.get("sm_count"), device.get("memory_bytes"))
    value *= share_of_slice(peak, model["sms"], model["memory_gb"], *size)
    return Known(gpu, value, entry["source"], None)


def _is_of(
    of: dict[str, Any], payload: str, test: dict[str, Any], metric: dict[str, Any], world: int
) -> bool:
    same = (payload, test["name"], metric["unit"])
    if same != (of["payload"], of["test"], of["unit"]) or of.get("world", world) != world:
        return False
    if of.get("dtype") and of["dtype"] != _dtype(test, metric):
        return False
    return _size(test, metric) >= of.get("least", 0) and fnmatch.fnmatch(
        metric["name"], of["metric"]
    )


def _dtype(test: dict[str, Any], metric: dict[str, Any]) -> str:
    name = str(metric.get("dtype") or test["details"].get("dtype") or "")
    return DTYPES.get(name, name)


def _size(test: dict[str, Any], metric: dict[str, Any]) -> int:
    """Return the smallest side, or the number of bytes."""
    about = {**test["details"], **metric}
    size = next((about[name] for name in ("shape", "size", "bytes") if name in about), 0)
    return min((int(side) for side in str(size).split("x") if side.isdecimal()), default=0)


def judge_rates(
    payload: str, tests: list[dict[str, Any]], devices: list[dict[str, Any]], world: int
) -> list[Judged]:
    """Make tests worse whose rates are below their references; return all that was compared.

    A test without a device is of all of them, as far as they are of one model.
    """
    judged = []
    for test, metric, device in _rates(tests, devices):
        known = known_rate(payload, test, metric, device, world)
        if known is None:
            continue
        share = 1 - loss(metric["value"], known.value, metric["dir"])
        judged.append(Judged(test["device"] or "", share, known))
        worsen(payload, test, metric, judged[-1])
    return judged


def _rates(
    tests: list[dict[str, Any]], devices: list[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Give every rate of a test that passed, with its GPU."""
    by_label = {f"cuda:{device['index']}": device for device in devices}
    is_one_model = len({device["name"] for device in devices}) == 1
    for test, metric in rates_of(tests):
        device = by_label.get(test["device"] or "")
        if not test["device"] and is_one_model:
            device = devices[0]
        if device:
            yield test, metric, device


def rated_models(tests: list[dict[str, Any]], devices: list[dict[str, Any]]) -> set[str]:
    """Name the products of which there is a rate: all, where every rate is of several models."""
    found = {device["name"] for _, _, device in _rates(tests, devices)}
    return found or {device["name"] for device in devices}


def rates_of(tests: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Give every rate of hardware that a test which passed has."""
    for test in tests:
        for metric in test["metrics"] if test["status"] in (PASS, WARN) else ():
            if metric["dir"] == "higher" and metric["unit"] in RATE_UNITS:
                yield test, metric


def worsen(payload: str, test: dict[str, Any], metric: dict[str, Any], judged: Judged) -> None:
    """Make a test as bad as its rate; what others on the GPU explain keeps that as its code."""
    _, share, known = judged
    if share >= 1 - REFERENCE_WARN:
        return
    is_failure = known.fail_loss is not None and share <= 1 - known.fail_loss + _ROUNDING
    of = f"{share:.2f} of the {known.value:.4g} that {known.gpu} reaches ({known.source})"
    where = f"{test['device']}: " if test["device"] else ""
    reason = f"{where}{metric['name']} {metric['value']:.4g} {metric['unit']} is {of}"
    if test["class"] != CONTENTION:
        code = code_of_loss(payload, is_failure=is_failure)
        test.update({"code": code, "class": CODES[code].fault, "action": CODES[code].action})
    status = FAIL if is_failure else test["status"].replace(PASS, WARN)
    test.update(status=status, reason="; ".join(filter(None, (test["reason"], reason))))
