"""What `nvidia-smi topo -m` says of how GPUs are joined, and what part of their links a pair has."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rv.payloads._collectives import fabric_checks
from rv.payloads._harness import topology
from rv.payloads.contract import nvidia
from rv.payloads.contract.topology import Connection, link_share, parse_topology, share_together

TAIL = "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n"


def matrix(cells: list[list[str]], nodes: list[str]) -> str:
    """The text for some GPUs, with a network card, as drivers from 535 on write it."""
    names = [f"GPU{at}" for at in range(len(cells))]
    head = ["", f"\x1b[4m{names[0]}", *names[1:], "NIC0", "CPU Affinity", "NUMA Affinity"]
    lines = ["\t".join([*head, "GPU NUMA ID\x1b[0m"])]
    for name, row, node in zip(names, cells, nodes, strict=True):
        lines.append("\t".join([name, *row, "SYS", "0-47,96-143", node, "", "N/A"]))
    lines.append("\t".join(["NIC0", *["SYS"] * len(cells), " X ", "", ""]))
    return "\n".join([*lines, TAIL])


def all_alike(way: str, count: int = 4) -> list[list[str]]:
    return [[" X " if one == at else way for one in range(count)] for at in range(count)]


def test_the_matrix_is_read_as_drivers_write_it() -> None:
    """A GPU that may be on several NUMA nodes is on none that is known."""
    cells = [[" X ", "NODE", "SYS"], ["NODE", " X ", "SYS"], ["SYS", "SYS", " X "]]

    found = parse_topology(matrix(cells, ["0", "0", "1"]))

    assert found[0, 1] == found[1, 0] == Connection("NODE", is_on_one_node=True)
    assert found[0, 2] == Connection("SYS")
    assert len(found) == 6
    assert parse_topology(matrix(cells, ["0-1", "0-1", "N/A"]))[0, 1] == Connection("NODE")
    assert parse_topology(matrix(all_alike("NV18"), ["0"] * 4))[2, 3].nvlinks == 18


@pytest.mark.parametrize(
    "text", ["", "Failed to initialize NVML: Unknown Error", "\tGPU0\nGPU0\t X \n", TAIL]
)
def test_what_is_no_matrix_of_gpus_tells_nothing(text: str) -> None:
    assert parse_topology(text) == {}


@pytest.mark.parametrize(
    ("links", "way", "pair", "four"),
    [
        (18, "NV18", 1.0, 1.0),  # on a switch
        (18, "NV6", 1 / 3, None),  # HGX H100 4-GPU
        (12, "NV4", 1 / 3, None),  # HGX A100 4-GPU
        (18, "NV17", 1.0, 1.0),  # one is down
        (18, "NV9", 1.0, 1.0),  # two of four switches are
        (18, "NV3", 1 / 3, None),  # half of a board's links without a switch are
        (18, "SYS", 1 / 3, None),  # all are: no board is made so
        (0, "NV18", None, None),
    ],
)
def test_a_pair_has_a_part_of_the_links_where_no_switch_is(
    links: int, way: str, pair: float | None, four: float | None
) -> None:
    """Of more than two GPUs nobody has said what a ring takes then. What is down makes no other board."""
    assert link_share(links, [Connection(way)]) == pair
    assert share_together(links, [Connection(way)]) == pair
    assert share_together(links, [Connection(way)] * 6) == four
    assert link_share(links, []) is None


def test_gpus_are_known_by_their_uuids(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA may number them otherwise than nvidia-smi."""
    cells = [[" X ", "NV6", "SYS"], ["NV6", " X ", "SYS"], ["SYS", "SYS", " X "]]
    rows = [["0", "GPU-A"], ["1", "GPU-b"], ["2", "GPU-c"]]
    monkeypatch.setattr(nvidia, "ask_smi", lambda *_: rows)
    monkeypatch.setattr(nvidia, "_run_smi", lambda *_: matrix(cells, ["0"] * 3))
    monkeypatch.setattr(topology, "connections", nvidia.connections)
    h100 = "NVIDIA H100 80GB HBM3"
    described: list[dict[str, Any]] = [
        {"index": at, "name": h100, "uuid": uuid} for at, uuid in enumerate(("c", "b", "a"))
    ]

    found = topology.topology_of(described)

    assert found["cuda:1", "cuda:2"] == Connection("NV6", is_on_one_node=True)
    assert topology.share_of_pairs(described[1:], found) == pytest.approx(1 / 3)
    assert topology.share_of_pairs(described, found) == pytest.approx(1 / 3)
    assert topology.share_of_ranks(described[1:], 2) == pytest.approx(1 / 3)
    assert topology.share_of_ranks(described[1:], 3) is None


SWITCH = fabric_checks.WITHOUT_P2P
"""A map of NCCL's with an NVSwitch."""


@pytest.mark.parametrize(
    ("log", "backend", "rank", "nodes", "expected"),
    [
        (SWITCH, "nccl", 0, 1, {"link_share": 1.0}),
        ("", "nccl", 0, 1, {"link_share": 0.25}),
        (SWITCH, "gloo", 0, 1, {}),
        (SWITCH, "nccl", 1, 1, {}),
        (SWITCH, "nccl", 0, 2, {}),
    ],
)
def test_nccls_map_tells_of_a_switch_and_else_the_matrix_does(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    log: str,
    backend: str,
    rank: int,
    nodes: int,
    expected: dict[str, float],
) -> None:
    """Of one node, on its first rank: nobody else has rates to be judged."""
    (tmp_path / "log").write_text(log)
    monkeypatch.setattr(fabric_checks, "share_of_ranks", lambda *_: 0.25)
    session: Any = SimpleNamespace(
        ranks=SimpleNamespace(rank=rank, nodes=nodes, world=2), report=SimpleNamespace(devices=[])
    )
    group: Any = SimpleNamespace(backend=backend)

    assert fabric_checks.about_links(session, group, tmp_path / "log") == expected
