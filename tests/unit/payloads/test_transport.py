"""The transport that NCCL took, read from logs that it wrote, and held against what there is."""

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.payloads._collectives.hearing import SYSTEMS, active_ports, nccl_log_file, read_log
from rv.payloads._collectives.nccl_log import Links, NcclLog, parse_nccl_log
from rv.payloads._collectives.transport import Place, Port, transport_findings, ways

LOGS = Path(__file__).parents[2] / "data" / "nccl"
INFINIBAND = Port("mlx5_0:1", "InfiniBand", 400.0)
ROCE = Port("mlx5_2:1", "Ethernet", 100.0)
ONE = (0,) * 4
TWO = (0,) * 8 + (1,) * 8
SHM = "Channel 00 : {}[0] -> {}[1] via SHM/direct/direct\n"
P2P = "Channel 00/0 : {}[0] -> {}[1] via P2P/CUMEM\n"


def log(name: str) -> NcclLog:
    """What a log of tests/data/nccl says."""
    return parse_nccl_log((LOGS / f"{name}.txt").read_text())


@pytest.mark.parametrize(
    ("name", "vias"),
    [
        ("sockets-2.18", {"P2P/IPC/read", "NET/Socket"}),
        ("host-memory-2.18", {"SHM/direct/direct", "NET/Socket"}),
        ("switch-2.19", set()),
        ("bridges-2.20", {"SHM/direct/direct", "P2P/CUMEM/read"}),
        (
            "infiniband-2.21",
            {"P2P/CUMEM", "NET/IBext_v8/GDRDMA", "NET/NCCL RDMA Plugin v6/GDRDMA/Shared"},
        ),
        ("nvls-2.22", {"P2P/CUMEM"}),
        ("efa-2.23", {"NET/AWS Libfabric/GDRDMA"}),
        ("h200-virtual-2.24", {"NET/IB/GDRDMA"}),
        ("a100-2.28", {"P2P/CUMEM/read"}),
    ],
)
def test_the_ways_of_a_log_are_read(name: str, vias: set[str]) -> None:
    """Of every version, with every prefix; a card's number is no part of the way."""
    assert {channel.via for channel in log(name).channels} == vias


def test_a_log_tells_version_network_multicast_and_variables() -> None:
    """As far as it does."""
    assert [log(name).version for name in ("switch-2.19", "nvls-2.22", "bridges-2.20")] == [
        "2.19.4", "2.22.3", "",
    ]  # fmt: skip
    networks = [log(name).network for name in ("infiniband-2.21", "efa-2.23", "a100-2.28")]
    assert networks == ["IBext", "AWS Libfabric", "Socket"]
    assert [log(name).has_nvls for name in ("nvls-2.22", "a100-2.28")] == [True, False]
    assert log("efa-2.23").settings == {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}


def test_a_map_tells_the_links() -> None:
    """With a switch of NVIDIA's, in the three forms that NCCL has had, and without."""
    assert log("switch-2.19").links == Links((24.0,) * 4, 360.0, (25.0, 25.0), True, True, cards=2)
    assert log("h200-virtual-2.24").links == Links(
        (48.0,) * 2, 370.8, (50.0, 50.0), True, True, cards=2
    )
    assert log("h800-2.30").links == Links((48.0,), 164.8, (), True, True)
    assert log("a100-2.28").links == Links()


@pytest.mark.parametrize(
    ("branches", "cards"),
    [
        ("GG N N N", 2),
        ("GG GGN", 1),
        ("GG N", 1),
        ("GGN N N N", 1),
        ("GGN GGN N N", 2),
        ("GN GN", 2),
        ("GGNN", 2),
        ("GNN", 1),
    ],
)
def test_cards_that_gpus_share_count_once(branches: str, cards: int) -> None:
    """Two GPUs of a node whose eight share four cards have one of them."""
    number, lines = 0, ["=== System : maxBw 24.0 totalBw 24.0 ===", "CPU/0-0 (1/1/2)"]
    for branch in branches.split():
        lines.append(f"+ PCI[24.0] - PCI/0-{number}000 (10b5879610b58796)")
        for kind in branch:
            number += 1
            lines.append(
                f"        + PCI[24.0] - {'GPU' if kind == 'G' else 'NIC'}/0-{number}00 (0)"
            )
            if kind == "N":
                lines.append(f"               + NET[25.0] - NET/{number} ({number}/0/25.000000)")
    text = "\n".join(f"a1:1:2 [0] NCCL INFO {line}" for line in [*lines, "=" * 40])

    assert parse_nccl_log(text).links.cards == cards


def test_bridges_join_pairs_and_no_more() -> None:
    """Two of four, as cards with bridges are; of two they are all there is."""
    gpus = [(0, "1000", "2000"), (1, "2000", "1000"), (2, "3000", "4000"), (3, "4000", "3000")]
    lines = [
        f"+ PCI[24.0] - GPU/0-{own} ({rank})\n      + NVL[80.0] - GPU/0-{other}\n"
        for rank, own, other in gpus
    ]
    links = parse_nccl_log("=== System : maxBw 80.0 ===\n" + "".join(lines)).links
    assert (links.pairs, links.is_mesh, links.nvlink) == ({(0, 1), (2, 3)}, False, 80.0)
    assert parse_nccl_log("=== System : maxBw 80.0 ===\n" + "".join(lines[:2])).links.is_mesh
    mixed = links.joins
    assert [mixed(*pair) for pair in itertools.combinations(range(4), 2)] == [
        True, False, False, False, False, True,
    ]  # fmt: skip


def judged(found: NcclLog, place: Place) -> list[tuple[str, str, str]]:
    """The status, code and class of each finding."""
    return [(each.status, each.code, each.fault) for each in transport_findings(found, place)]


HOST = "=== System : x\n" + "".join(
    f"+ PCI[48.0] - GPU/{gpu} ({gpu})\n + NVL[370.8] - NVS/0\n" for gpu in range(4)
)


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        (HOST + P2P.format(0, 1), Place(ONE), []),
        (HOST + SHM.format(0, 1), Place(ONE), [("FAIL", "wrong_transport", "FABRIC")]),
        (
            HOST + P2P.format(0, 1) + SHM.format(1, 2),
            Place(ONE),
            [("FAIL", "wrong_transport", "FABRIC")],
        ),
        (
            HOST + "NCCL_P2P_DISABLE set by environment to 1\n" + SHM.format(0, 1),
            Place(ONE),
            [("FAIL", "wrong_transport", "CONFIG")],
        ),
        (SHM.format(0, 1), Place(ONE), []),
        (SHM.format(0, 1), Place(ONE, is_mesh=True), [("FAIL", "wrong_transport", "FABRIC")]),
        ("", Place(ONE), [("WARN", "transport_unknown", "FABRIC")]),
        ("", Place((0, 1)), [("WARN", "transport_unknown", "FABRIC")]),
        ("", Place((0,)), []),
        (HOST + "Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL\n", Place((0, 1)), []),
    ],
)
def test_host_memory_is_wrong_where_nvlink_joins(
    text: str, place: Place, expected: list[tuple[str, str, str]]
) -> None:
    """And right where it does not; a variable that chose it is of class CONFIG."""
    assert judged(parse_nccl_log(text), place) == expected


@pytest.mark.parametrize(
    ("name", "ports", "expected"),
    [
        ("sockets-2.18", (), []),
        ("sockets-2.18", (INFINIBAND, ROCE), [("FAIL", "wrong_transport", "FABRIC")]),
        ("sockets-2.18", (ROCE,), [("WARN", "wrong_transport", "FABRIC")]),
    ],
)
def test_sockets_are_wrong_beside_an_active_port(
    name: str, ports: tuple[Port, ...], expected: list[tuple[str, str, str]]
) -> None:
    """An Ethernet port may be meant for TCP: it warns."""
    assert judged(log(name), Place(TWO, ports=ports)) == expected


def test_real_logs_of_sound_and_slow_nodes_are_told_apart() -> None:
    """RDMA between nodes and P2P inside pass; P2P switched off on an H200 goes over the network."""
    assert judged(log("infiniband-2.21"), Place((0,) * 4 + (1,) * 4, ports=(INFINIBAND,))) == []
    assert judged(log("a100-2.28"), Place(ONE, is_mesh=True)) == []
    assert judged(log("nvls-2.22"), Place((0,) * 8, is_mesh=True)) == []
    assert judged(log("bridges-2.20"), Place(ONE)) == []
    assert judged(log("host-memory-2.18"), Place((0, 1, 0, 1), is_mesh=True)) == [
        ("FAIL", "wrong_transport", "FABRIC")
    ]
    (found,) = transport_findings(log("efa-2.23"), Place((0, 0), is_mesh=True))
    assert found.reason == (
        "ranks 1 to 0 go via NET/AWS Libfabric/GDRDMA, though NVLink joins these GPUs; "
        "set: NCCL_P2P_DISABLE=1"
    )
    assert ways(log("nvls-2.22"), Place((0,) * 8)) == {
        "inside": ["P2P/CUMEM", "NVLS"],
        "between": [],
    }


def test_active_ports_are_read_from_the_kernel(tmp_path: Path) -> None:
    """Not those that are down, nor what is no port."""
    for card, state, link in (("mlx5_0", "4: ACTIVE", "InfiniBand"), ("mlx5_1", "1: DOWN", "")):
        folder = tmp_path / card / "ports" / "1"
        folder.mkdir(parents=True)
        (folder / "state").write_text(f"{state}\n")
        (folder / "link_layer").write_text(f"{link}\n")
        (folder / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (tmp_path / "mlx5_2" / "ports" / "1").mkdir(parents=True)

    assert active_ports(tmp_path) == (Port("mlx5_0:1", "InfiniBand", 400.0),)
    assert active_ports(tmp_path / "none") == ()


def test_nccl_is_told_to_log_to_a_file_that_goes_with_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file that a user named stays, and is read by the name that NCCL gives it."""
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"):
        monkeypatch.setenv(name, "")  # put back after the test
    with nccl_log_file() as path:
        assert os.environ["NCCL_DEBUG_FILE"] == str(path)
        assert (os.environ["NCCL_DEBUG"], os.environ["NCCL_DEBUG_SUBSYS"]) == ("INFO", SYSTEMS)
        path.write_text("NCCL INFO Using network IB\n")
        assert parse_nccl_log(read_log(path)).network == "IB"
    assert not path.exists()
    assert read_log(path) == ""

    monkeypatch.setenv("NCCL_DEBUG_FILE", f"{tmp_path}/100%%.%p")
    own = tmp_path / f"100%.{os.getpid()}"
    own.write_text("mine")
    with nccl_log_file() as path:
        assert path == own
    assert own.read_text() == "mine"


_TEXT = "".join(path.read_text() for path in sorted(LOGS.glob("*.txt")))
_LINES = st.sampled_from(_TEXT.splitlines(keepends=True))


@given(st.lists(_LINES | st.text(max_size=80), max_size=40), st.integers(0, 400))
def test_pieces_of_logs_are_read_without_an_error(pieces: list[str], cut: int) -> None:
    """In any order, cut anywhere, with anything between; what is kept is printable."""
    found = parse_nccl_log("".join(pieces)[cut:])
    transport_findings(found, Place(TWO, ports=(INFINIBAND,)))
    assert all(c.via.isprintable() and len(c.via) <= 60 for c in found.channels)
