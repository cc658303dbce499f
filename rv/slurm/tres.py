"""Trackable resources, `cpu=4,mem=20G,gres/gpu:a100=2`, and the GPUs asked for or counted there."""

import re
from typing import Final

from rv.slurm import words

_ASKED: Final = re.compile(
    r"(?:gres[:/])?gpu(?::(?P<type>[^:=,()]*[A-Za-z_][^:=,()]*))?(?:[:=](?P<count>\d{1,9}))?",
    re.ASCII,
)
_WEIGHT: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)", re.ASCII)
_UNITS: Final = {"": 1.0, "K": 1.0 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


def parse_tres(text: str) -> tuple[tuple[str, int], ...]:
    """Read TRES amounts by lower-case name; memory in MiB. What has no amount is left out."""
    pairs = []
    for item in words.words(text):
        name, _, amount = item.partition("=")
        key = name.strip().lower()
        value = words.memory_mib(amount) if key == "mem" else words.number(amount)
        if key and value is not None:
            pairs.append((key, value))
    return tuple(pairs)


def parse_weights(text: str) -> tuple[tuple[str, float], ...]:
    """Read TRESBillingWeights, lower-case names; memory per MiB (`Mem=0.25G` is 0.25 a GiB)."""
    pairs = []
    for item in words.words(text):
        name, _, amount = item.partition("=")
        match = _WEIGHT.fullmatch(amount.strip())
        if name and match:
            per_mib = name.lower() == "mem"
            pairs.append((name.lower(), float(match[1]) / (_UNITS[match[2]] if per_mib else 1.0)))
    return tuple(pairs)


def gpus_allocated(pairs: tuple[tuple[str, int], ...]) -> int:
    """Count the GPUs in parsed TRES: `gres/gpu`, or its typed parts where the sum is missing."""
    counted = dict(pairs).get("gres/gpu")
    return counted or sum(value for name, value in pairs if name.startswith("gres/gpu:"))


def gpus_asked(text: str) -> tuple[int, frozenset[str]]:
    """Read a GPU request (`gres:gpu:a100:2`, `gres/gpu:2`, `gpu`); return its count and types."""
    count = 0
    types: set[str] = set()
    for item in words.words(text):
        match = _ASKED.fullmatch(item)
        if match:
            count += int(match["count"] or 1)
            types.update({match["type"]} if match["type"] else ())
    return count, frozenset(types)
