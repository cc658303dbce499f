"""The floors of fabrics: below what is published of sound machines, above what was seen of broken."""

from dataclasses import replace

import pytest

from rv.payloads._collectives.fabrics import Fabrics, below_floor, fabrics_of
from rv.payloads._collectives.measure import Row
from rv.payloads._collectives.nccl_log import Links, NcclLog
from rv.payloads._collectives.transport import Place, Port
from rv.payloads.contract.fabrics import (
    BRIDGED,
    ETHERNET,
    OPERATIONS,
    PCIE,
    RDMA,
    SWITCHED,
    Fabric,
    floor,
)  # fmt: skip

HOPPER = Links((48.0,) * 8, 370.8, (50.0,) * 8, is_switched=True, is_mesh=True)
AMPERE = Links((24.0,) * 8, 240.0, (25.0,) * 8, is_switched=True, is_mesh=True)
PLAIN = Links((24.0,) * 4, nics=(1.25,))
NDR, HDR = Port("mlx5_0:1", "InfiniBand", 400.0), Port("mlx5_0:1", "InfiniBand", 200.0)


def log(links: Links, network: str = "IB") -> NcclLog:
    """A log that tells of these links."""
    return NcclLog("2.28.9", network, (), has_nvls=False, links=links, settings={})


def row(busbw: float, operation: str = "all_reduce", nbytes: int = 4 << 30) -> Row:
    """A measured row of this bus bandwidth."""
    return Row(operation, nbytes, nbytes // 4, [1.0], [1.0], busbw, busbw, 1, 0, "")


def nodes(*ranks: int) -> tuple[int, ...]:
    """Each rank's node, for so many ranks on each node."""
    return tuple(node for node, many in enumerate(ranks) for _ in range(many))


@pytest.mark.parametrize(
    ("links", "place", "expected"),
    [
        (HOPPER, Place(nodes(2)), (Fabric(SWITCHED, 370.8), None)),
        (
            HOPPER,
            Place(nodes(8, 8), ports=(NDR,) * 8),
            (Fabric(SWITCHED, 370.8), Fabric(RDMA, 400)),
        ),
        (HOPPER, Place(nodes(1, 1), ports=(NDR,) * 8), (None, Fabric(RDMA, 50))),
        (PLAIN, Place(nodes(4)), (Fabric(PCIE, 24.0), None)),
        (Links(), Place(nodes(4), is_mesh=True), (Fabric(BRIDGED, 300.0), None)),
    ],
)
def test_the_fabric_of_a_machine_is_told(links: Links, place: Place, expected: object) -> None:
    """By NCCL's map of the node, else by the model; a rank uses the card beside its GPU."""
    found = fabrics_of(log(links), place, 300.0 if place.is_mesh else None)
    assert found[:2] == expected
    assert found.unknown == ""


def test_gpus_that_share_a_card_have_its_rate_together() -> None:
    """80 % of a card is sound for two GPUs beside it, and was below the floor of two cards."""
    four = HOPPER._replace(nics=(50.0,) * 4, cards=1)
    found = fabrics_of(log(four), Place(nodes(2, 2), ports=(NDR,) * 4), None)

    assert found.between == Fabric(RDMA, 50.0)
    assert below_floor([row(38.0)], found) == ""


def test_sockets_beside_a_port_are_held_against_the_port() -> None:
    """Against what the machine has, not what NCCL took; without one against the card's rate."""
    slow = log(Links(nics=(1.25,)), "Socket")
    assert fabrics_of(slow, Place((0, 1), ports=(NDR,)), None).between == Fabric(RDMA, 50.0)
    assert fabrics_of(slow, Place((0, 1)), None).between == Fabric(ETHERNET, 1.25)


def test_what_cannot_be_told_is_said_and_has_no_floor() -> None:
    """No map of the node; a card that does not tell its rate."""
    guessed = log(Links(nics=(1.25,), is_guess=True), "Socket")
    unknown = fabrics_of(log(Links()), Place(nodes(2)), None)
    assert unknown.unknown == "what links the GPUs of a node"
    assert (
        fabrics_of(guessed, Place((0, 1)), None).unknown == "the rate of the network between nodes"
    )
    assert unknown.floor(row(0.1)) is None


@pytest.mark.parametrize(
    ("busbw", "links", "many", "is_sound"),
    [
        (336.0, HOPPER, (2,), True),  # 2 H200, TWO_H200 in references.py
        (23.5, HOPPER, (2,), False),  # the same without P2P
        (460.0, HOPPER, (8,), True),  # Azure's floor for 8 H100
        (228.0, AMPERE, (8,), True),  # and for 8 A100
        (260.0, HOPPER, (8, 8), True),  # 2 nodes of 8 H200, virtual (nccl-tests#256)
        (107.6, HOPPER, (8, 8), False),  # 2 nodes without the cards' ATS (nccl-tests#256)
        (40.0, HOPPER, (1, 1), True),  # Azure's floor for one port of 400 Gb/s
        (18.0, AMPERE, (1, 1), True),  # and of 200
        (9.1, PLAIN, (2,), True),  # through host memory, PCIe 4
        (1.7, PLAIN, (2,), False),  # through sockets on one host
    ],
)
def test_published_rates_are_above_the_floor_and_broken_ones_below(
    busbw: float, links: Links, many: tuple[int, ...], *, is_sound: bool
) -> None:
    """Of sound machines with room, though a floor is no reference."""
    found = below_floor([row(busbw)], fabrics_of(log(links), Place(nodes(*many)), None))
    assert (found == "") is is_sound, found


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("near", [2, 3, 4, 8, 16])
def test_every_operation_has_a_floor_for_every_number_of_ranks(operation: str, near: int) -> None:
    """On every fabric, above zero and far below the link's rate."""
    for kind in (SWITCHED, BRIDGED, PCIE):
        found = floor(operation, Fabric(kind, 100.0), None, near)
        assert found
        assert 0 < found.busbw <= 50
    for kind in (RDMA, ETHERNET):
        found = floor(operation, Fabric(SWITCHED, 450.0), Fabric(kind, 400.0), near)
        assert found
        assert 0 < found.busbw <= 160


def test_small_sizes_have_no_floor_and_each_slow_operation_is_named() -> None:
    """Latency is not bandwidth; what takes long is, and may be the largest that a link can carry."""
    fabrics = Fabrics(Fabric(SWITCHED, 370.8), None, 2)
    small = row(1.0, nbytes=1 << 20)
    assert below_floor([replace(small, seconds=[0.01])], fabrics) == ""
    assert below_floor([replace(small, seconds=[0.9])], fabrics).startswith("all_reduce of 1MiB: ")
    said = below_floor([row(300.0), row(20.0, "broadcast"), row(21.0, "all_to_all")], fabrics)
    assert said == (
        "broadcast of 4GiB: 20.0 GB/s, where NVLink through a switch of 370.8 GB/s gives 185 at "
        "least; all_to_all of 4GiB: 21.0 GB/s, where NVLink through a switch of 370.8 GB/s gives "
        "185 at least"
    )
