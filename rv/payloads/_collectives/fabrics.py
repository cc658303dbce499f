"""Tell the fabric that ranks have, from NCCL's map of the node, its model and its ports. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from contract.fabrics import BRIDGED, ETHERNET, PCIE, RDMA, SWITCHED, Fabric, Floor, floor

from .sweep import measures_link, size_word
from .transport import INFINIBAND

if TYPE_CHECKING:
    from .measure import Row
    from .nccl_log import NcclLog
    from .transport import Place

_GBIT = 8.0  # in a GB


class Fabrics(NamedTuple):
    """What joins ranks: inside a node, between nodes, and ranks of a node.

    `inside` is None where each node has one rank, `between` on one node. `unknown` says what should
    be known and is not; "" for nothing.
    """

    inside: Fabric | None
    between: Fabric | None
    near: int
    unknown: str = ""

    def floor(self, row: Row) -> Floor | None:
        """Return the least bus bandwidth of a measured row; None where nothing says what it is."""
        if self.unknown or not measures_link(row):
            return None
        return floor(row.operation, self.inside, self.between, self.near)


def fabrics_of(log: NcclLog, place: Place, nvlink: float | None) -> Fabrics:
    """Tell the fabrics; `nvlink` is the rate of the GPU's model in GB/s, None where it has none."""
    near = max((place.nodes.count(node) for node in place.nodes), default=1)
    unknown = []
    inside = _inside(log, place, nvlink) if near > 1 else None
    if near > 1 and inside is None:
        unknown.append("what links the GPUs of a node")
    several = len(set(place.nodes)) > 1
    between = _between(log, place, near) if several else None
    if several and between is None:
        unknown.append("the rate of the network between nodes")
    return Fabrics(inside, between, near, " and ".join(unknown))


def _inside(log: NcclLog, place: Place, nvlink: float | None) -> Fabric | None:
    """Tell what links the GPUs: NVLink where it joins all of them, else PCIe."""
    links = log.links
    if links.is_switched or links.is_mesh:
        return Fabric(SWITCHED if links.is_switched else BRIDGED, links.nvlink)
    if nvlink and place.is_mesh:
        return Fabric(BRIDGED, nvlink)
    return Fabric(PCIE, min(links.pcie)) if links.pcie else None


def _between(log: NcclLog, place: Place, near: int) -> Fabric | None:
    """Tell what links the nodes: the ports for RDMA where any is active, else Ethernet.

    A rank uses the card that is nearest to its GPU: few ranks do not use all of them, and two GPUs
    beside one card share it.
    """
    is_socket = log.network.startswith("Socket") or not log.network
    rates = sorted(log.links.nics, reverse=True)
    if is_socket:
        if ports := _port_rates(place):
            return Fabric(RDMA, sum(ports[:near]))
        if not rates or log.links.is_guess:
            return None
        return Fabric(ETHERNET, min(rates))
    return Fabric(RDMA, sum(rates[: log.links.cards or near])) if rates else None


def _port_rates(place: Place) -> list[float]:
    """Return the rates of the ports for RDMA in GB/s, the fastest first."""
    rates = (port.rate / _GBIT for port in place.ports if port.link == INFINIBAND and port.rate)
    return sorted(rates, reverse=True)


def below_floor(rows: list[Row], fabrics: Fabrics) -> str:
    """Say which operations are below the floor of the fabric; "" for none."""
    found = []
    for row in rows:
        least = fabrics.floor(row)
        if least and row.busbw < least.busbw:
            at = f"{row.operation} of {size_word(row.nbytes)}: {row.busbw:.1f} GB/s"
            kind, rate = least.fabric
            found.append(f"{at}, where {kind} of {rate:.4g} GB/s gives {least.busbw:.3g} at least")
    return "; ".join(found)
