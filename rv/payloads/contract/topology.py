"""How the GPUs of a node are joined, as `nvidia-smi topo -m` tells it. Pure.

Its cells: `NV6` is six NVLinks between two GPUs, or as many of each to a switch; else the way goes
over PCIe, and `PIX` to `SYS` say how far apart the two are. The legend stands below the matrix.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

MOST_CHARACTERS = 1 << 20
WAYS = ("PIX", "PXB", "PHB", "NODE", "SYS")
ON_SWITCHES = ("PIX", "PXB")
"""Ways through PCIe switches alone, past the host."""
LEAST_SHARE = 1 / 3
"""What two GPUs of a board of four without a switch have (HGX A100 and H100 4-GPU: 4 of 12 NVLinks,
6 of 18): of all boards on which NVLink joins all GPUs the least."""
_THIRD_AT_MOST = 0.4
_GPU = re.compile(r"GPU(\d{1,4})")
_NVLINKS = re.compile(r"NV(\d{1,3})")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_NODE = re.compile(r"\d{1,4}")


class Connection(NamedTuple):
    """What joins two GPUs: its word in the matrix, and whether both are on one NUMA node."""

    way: str
    is_on_one_node: bool = False

    @property
    def nvlinks(self) -> int:
        """The number of NVLinks, 0 for PCIe."""
        found = _NVLINKS.fullmatch(self.way)
        return int(found[1]) if found else 0

    @property
    def is_alike(self) -> bool:
        """Whether pairs that are joined so are equally far apart on any node."""
        return self.nvlinks > 0 or self.way in ON_SWITCHES or self.is_on_one_node

    @property
    def nearness(self) -> tuple[int, int]:
        """Larger for what joins two GPUs more closely."""
        return self.nvlinks, -WAYS.index(self.way) if self.way in WAYS else 0


Connections = dict[tuple[int, int], Connection]
"""By the numbers of two GPUs, both ways."""


def parse_topology(text: str) -> Connections:
    """Read the matrix; {} where there is none."""
    rows = _rows(text)
    return {
        (one, other): Connection(way, _is_on_one_node(row, rows[other]))
        for one, row in rows.items()
        for other in rows
        if (way := row.get(f"GPU{other}", "")) in WAYS or _NVLINKS.fullmatch(way)
    }


def _rows(text: str) -> dict[int, dict[str, str]]:
    """Return the cells of each GPU by the heads of their columns."""
    plain = _ESCAPE.sub("", text[:MOST_CHARACTERS])
    lines = [[cell.strip() for cell in line.split("\t")] for line in plain.splitlines()]
    head = next((line for line in lines if not line[0] and "GPU0" in line), [])
    named = {found[1]: line for line in lines if (found := _GPU.fullmatch(line[0]))}
    return {int(number): dict(zip(head, line, strict=False)) for number, line in named.items()}


def _is_on_one_node(one: dict[str, str], other: dict[str, str]) -> bool:
    """Whether two GPUs name the same NUMA node, one alone and not several."""
    nodes = {one.get("NUMA Affinity", ""), other.get("NUMA Affinity", "")}
    return len(nodes) == 1 and _NODE.fullmatch(nodes.pop()) is not None


def link_share(links: int, connections: Collection[Connection]) -> float | None:
    """Return what part of a GPU's NVLinks each pair is made to have: 1, or the least, a third.

    `links` are those of a model of which NVLink joins all GPUs of a node; None where these are 0 or
    nothing is known of the pairs. Links that are down, be it all, make no other board of it: more
    than a third of any pair are those of a switch.
    """
    counts = [connection.nvlinks for connection in connections]
    if not links or not counts:
        return None
    return LEAST_SHARE if max(counts) <= _THIRD_AT_MOST * links else 1.0


def share_together(links: int, connections: Collection[Connection]) -> float | None:
    """Return the same for a collective of all these pairs' GPUs; None where several share links.

    How much of its links a ring of more than two GPUs takes without a switch nobody has said.
    """
    share = link_share(links, connections)
    return share if share == 1.0 or len(connections) == 1 else None
