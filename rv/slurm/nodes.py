"""Nodes, from `scontrol show node -d -o`."""

import re
from functools import lru_cache
from typing import Final

from rv.models.snapshot import Node
from rv.slurm import words
from rv.slurm.fields import fields, records
from rv.slurm.gres import parse_gpus
from rv.slurm.text import printable

_SIGNS: Final = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "$": "MAINT",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
_OLDER_WORDS: Final = {
    "POWER": "POWERED_DOWN",  # 20.11
    "POWER_SAVING": "POWERED_DOWN",
    "REBOOT": "REBOOT_REQUESTED",
    "NO_RESPOND": "NOT_RESPONDING",
}
_SIGNED: Final = re.compile(r"([A-Za-z_]+)([*~#%!$@^-]*)", re.ASCII)
_REASON: Final = re.compile(r"\sReason=(.*)")
_STAMP: Final = re.compile(r" \[[^\[\]@ ]+@[^\[\] ]+\]")


def parse_nodes(text: str) -> tuple[Node, ...]:
    """Read every node; a line that names none is left out."""
    nodes = (_node(line) for line in records(text, "NodeName"))
    return tuple(node for node in nodes if node.name)


@lru_cache(maxsize=256)
def parse_states(text: str) -> frozenset[str]:
    """Split `MIXED+PLANNED`; a sign of sinfo (`idle~`, `DOWN*`) becomes Slurm's word for it.

    Words that Slurm has replaced since 20.11 become the later ones.
    """
    found = set()
    for part in text.upper().split("+"):
        match = _SIGNED.match(part.strip())
        if match:
            word = _OLDER_WORDS.get(match[1], match[1])
            found |= {word, *(_SIGNS[sign] for sign in match[2])}
    return frozenset(found)


def _node(line: str) -> Node:
    value = fields(line)
    cpus = words.number(value.get("CPUEfctv", "")) or words.number(value.get("CPUTot", "")) or 0
    memory = words.number(value.get("RealMemory", "")) or 0
    kept = words.number(value.get("MemSpecLimit", "")) or 0
    features = value.get("ActiveFeatures", value.get("AvailableFeatures", ""))
    return Node(
        name=value["NodeName"],
        states=parse_states(value.get("State", "")),
        cpus=cpus,
        cpus_used=words.number(value.get("CPUAlloc", "")) or 0,
        memory_mib=max(0, memory - kept),
        memory_used_mib=words.number(value.get("AllocMem", "")) or 0,
        gpus=parse_gpus(
            value.get("Gres", ""), value.get("GresUsed", ""), value.get("AllocTRES", "")
        ),
        features=frozenset(words.words(features)),
        partitions=words.words(value.get("Partitions", "")),
        weight=words.number(value.get("Weight", "")) or 1,
        reason=_reason(line),
    )


def _reason(line: str) -> str:
    """Return the whole reason, which may hold `=`, without the stamp of who set it when."""
    match = _REASON.search(line)
    return printable(_STAMP.split(match[1], maxsplit=1)[0]).strip() if match else ""
