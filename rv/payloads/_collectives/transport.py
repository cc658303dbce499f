"""Assert the transport that NCCL took: NVLink inside a node, RDMA between nodes. Pure.

Over the host's memory an all-reduce of two H200s gives 23 GB/s in place of 336, and over sockets a
node's network a tenth of its rate: right to the last bit, and slow.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from contract.codes import CONFIG, FABRIC
from contract.verdicts import FAIL, WARN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .nccl_log import Channel, NcclLog

INFINIBAND = "InfiniBand"
_SET = (
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_P2P_DIRECT_DISABLE", "NCCL_CUMEM_ENABLE",
    "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_SOCKET_IFNAME",
)  # fmt: skip
"""Variables that choose a transport."""
_SHOWN = 3


class Port(NamedTuple):
    """An active port of an RDMA card: `link` is InfiniBand or Ethernet, `rate` in Gb/s."""

    name: str
    link: str
    rate: float


class Place(NamedTuple):
    """Where a communicator is: each rank's node, and what is known of the node besides the log.

    `is_mesh`: by its model every GPU of a node reaches every other over NVLink.
    """

    nodes: tuple[int, ...]
    is_mesh: bool = False
    ports: tuple[Port, ...] = ()

    def is_inside(self, channel: Channel) -> bool:
        """Whether both ends are on one node."""
        ends = (channel.source, channel.target)
        return max(ends) < len(self.nodes) and len({self.nodes[end] for end in ends}) == 1

    @property
    def has_neighbours(self) -> bool:
        """Whether any node has several ranks."""
        return len(set(self.nodes)) < len(self.nodes)


class Finding(NamedTuple):
    """What is wrong with a transport; `fault` is the class, CONFIG where a variable chose it."""

    status: str
    code: str
    reason: str
    fault: str = FABRIC


def transport_findings(log: NcclLog, place: Place) -> list[Finding]:
    """Judge the transport of every connection in a log; none where all are as they should be."""
    inside = [channel for channel in log.channels if place.is_inside(channel)]
    between = [channel for channel in log.channels if not place.is_inside(channel)]
    found = [*_inside(log, place, inside), *_between(log, place, between)]
    missing = [
        what
        for what, seen, is_due in (
            ("inside a node", inside, place.has_neighbours),
            ("between nodes", between, len(set(place.nodes)) > 1),
        )
        if is_due and not seen
    ]
    if missing:
        reason = f"NCCL's log names no connection {' and none '.join(missing)}"
        found.append(Finding(WARN, "transport_unknown", reason))
    return found


def _inside(log: NcclLog, place: Place, channels: Sequence[Channel]) -> Iterator[Finding]:
    """Find connections past NVLink, which joins the two GPUs, through the host or the network."""
    past = [
        channel
        for channel in channels
        if not channel.via.startswith("P2P/")
        and (place.is_mesh or log.links.joins(channel.source, channel.target))
    ]
    if past:
        where = f"{_named(past)}, though NVLink joins these GPUs"
        yield _finding(FAIL, where, log, ("NCCL_P2P", "NCCL_CUMEM"))


def _between(log: NcclLog, place: Place, channels: Sequence[Channel]) -> Iterator[Finding]:
    """Find sockets where a port for RDMA is active.

    An Ethernet port of such a card may be meant for TCP alone: of these it only warns.
    """
    sockets = [channel for channel in channels if channel.via.startswith("NET/Socket")]
    if sockets and place.ports:
        is_fabric = any(port.link == INFINIBAND for port in place.ports)
        names = ", ".join(f"{p.name} ({p.link}, {p.rate:g} Gb/s)" for p in place.ports[:_SHOWN])
        where = f"{_named(sockets)}, though {names} is active"
        yield _finding(FAIL if is_fabric else WARN, where, log, ("NCCL_IB", "NCCL_NET", "NCCL_SO"))


def _finding(status: str, where: str, log: NcclLog, families: tuple[str, ...]) -> Finding:
    chosen = [
        f"{name}={value}"
        for name, value in log.settings.items()
        if name in _SET and name.startswith(families)
    ]
    if not chosen:
        return Finding(status, "wrong_transport", where)
    return Finding(status, "wrong_transport", f"{where}; set: {', '.join(chosen)}", CONFIG)


def _named(channels: Sequence[Channel]) -> str:
    """Name the ends of some connections, and the ways that they take."""
    ends = list(dict.fromkeys((channel.source, channel.target) for channel in channels))
    shown = ", ".join(f"{one} to {other}" for one, other in ends[:_SHOWN])
    more = f" and {len(ends) - _SHOWN} more" if len(ends) > _SHOWN else ""
    ways = ", ".join(sorted({channel.via for channel in channels})[:_SHOWN])
    return f"ranks {shown}{more} go via {ways}"


def ways(log: NcclLog, place: Place) -> dict[str, list[str]]:
    """Return the ways that are taken inside a node and between nodes, for a result's details."""
    sides = {"inside": True, "between": False}
    every = {
        side: sorted({c.via for c in log.channels if place.is_inside(c) is is_inside})
        for side, is_inside in sides.items()
    }
    if log.has_nvls:
        every["inside"].append("NVLS")
    return {side: list(itertools.islice(found, 20)) for side, found in every.items()}
