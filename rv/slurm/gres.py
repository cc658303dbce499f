"""The GPUs of a node, from its `Gres`, `GresUsed` and TRES texts."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from rv.models.snapshot import GpuGroup
from rv.slurm import tres

# The bracketed tail is sockets, `(S:0-1)`, or device numbers, `(IDX:4-6)`; it may hold commas.
_ITEM: Final = re.compile(r"(?:gres[:/])?gpu((?::[^:,(]*|:\(null\))*)(?:\([^()]*\))?(?=,|$)")
_COUNT: Final = re.compile(r"\d{1,9}", re.ASCII)
_NO_TYPE: Final = frozenset({"", "(null)", "no_consume"})


def parse_gpus(gres: str, gres_used: str, alloc_tres: str = "") -> tuple[GpuGroup, ...]:
    """Return the GPU groups of a node, types in the node's order; shards and mps are no GPUs."""
    totals, used = _by_type(gres), _by_type(gres_used)
    unplaced = sum(count for kind, count in used.items() if kind not in totals)
    if not used:
        unplaced = tres.gpus_allocated(tres.parse_tres(alloc_tres))
    # Use that names no known type may be of any group, so it counts against each of them.
    return tuple(
        GpuGroup(type=kind, total=total, used=min(total, used.get(kind, 0) + unplaced))
        for kind, total in totals.items()
        if total
    )


# Nodes of one kind have the same text, and those in use one of few.
@lru_cache(maxsize=4096)
def _by_type(text: str) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for item in _ITEM.finditer(text):
        if item.start() and text[item.start() - 1] != ",":
            continue
        parts = item[1].split(":")[1:]
        amount = parts.pop() if parts and _COUNT.fullmatch(parts[-1]) else "1"
        kind = next((part for part in parts if part not in _NO_TYPE), "")
        counts[kind] = counts.get(kind, 0) + int(amount)
    return counts
