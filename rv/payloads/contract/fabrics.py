"""The least bus bandwidth of collectives on each kind of fabric: below it something is broken.

A floor is a share of the link's rate, in nccl-tests' busbw, which is made so that a ring's equals
the rate of its slowest link for any number of ranks. It is far below what is published, because it
must hold for every machine of its kind; how fast a known model should be says `references.py`.

| fabric | floor | published shares of the link's rate, all_reduce unless told |
|---|---|---|
| NVLink through a switch | 0.5 | H100, 8 GPUs: 460 of 450 GB/s, A100: 228 of 300 (the floors of Azure/azurehpc-health-checks, `nd96isr_h100_v5.conf`, `nd96amsr_a100_v4.conf`); B200: 830 of 900 (NVIDIA/nccl#1807); 2 H200: 336 of 450, all operations |
| NVLink from GPU to GPU | 0.2 | two of four GPUs have a third of the links between them |
| PCIe, through the host or peer to peer | 0.1 | H100 on PCIe 5: 35 to 45 of 63 GB/s (docs.alayanew.com, nccl-tests in practice); through host memory 9.1 of 24 (2 GPUs on PCIe 4, NCCL 2.28.9) and 23.5 of 48 (2 H200) |
| InfiniBand, RoCE, EFA | 0.4 | 40 of 50 GB/s on a port of 400 Gb/s, 18 of 25 on 200 (Azure's floors, as above) |
| Ethernet through sockets | 0.2 | 1.7 of 1.25 GB/s where both ends are on one host; TCP of one NCCL connection is bound by a core |

The shares of PCIe, of links from GPU to GPU and of sockets are rv's own. Between nodes of which not
even the inside is faster, the inside's floor counts: 8 H200 NVL with four ports of 400 Gb/s give 35 GB/s
on two nodes (kubernetes.recipes, nccl-all-reduce-perf-benchmark-multi-node).
"""  # noqa: E501 - a table

from __future__ import annotations

from typing import NamedTuple

SWITCHED, BRIDGED, PCIE, RDMA, ETHERNET = (
    "NVLink through a switch", "NVLink", "PCIe", "InfiniBand or RoCE", "Ethernet",
)  # fmt: skip

SHARES = {SWITCHED: 0.5, BRIDGED: 0.2, PCIE: 0.1, RDMA: 0.4, ETHERNET: 0.2}
"""The part of a link's rate that a floor is."""

CROWDED = {PCIE: 0.5}
"""What is left of it for all_to_all, where all GPUs share the way through the host."""

LARGE = 256 << 20
"""Bytes from which the bandwidth of a collective measures the link, and may be compared."""
LONG_S = 0.1
"""A collective of so many seconds measures the link at any size: a slow network gets no larger."""

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")


class Fabric(NamedTuple):
    """A kind of link and its rate in GB/s of one direction: of a GPU, or of a node's network."""

    kind: str
    rate: float


class Floor(NamedTuple):
    """The least busbw in GB/s, and the fabric that it is of."""

    fabric: Fabric
    busbw: float


def floor(operation: str, inside: Fabric | None, between: Fabric | None, near: int) -> Floor | None:
    """Return the floor of an operation of OPERATIONS over two ranks or more; None where unknown.

    `inside` is the fabric of a node, None where a node has one rank; `between` that of nodes, None
    on one node; `near` the ranks of a node. Across nodes, each rank of an all_to_all has its share
    of the node's network, where the other operations' ring crosses it once.
    """
    floors = []
    if inside is not None:
        part = CROWDED.get(inside.kind, 1.0) if operation == "all_to_all" else 1.0
        floors.append(Floor(inside, SHARES[inside.kind] * inside.rate * part))
    if between is not None:
        part = 1.0 / max(1, near) if operation == "all_to_all" else 1.0
        floors.append(Floor(between, SHARES[between.kind] * between.rate * part))
    return min(floors, key=lambda each: each.busbw, default=None)
