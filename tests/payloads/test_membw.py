"""membw.py on a CPU: every detector sees its fault, and nothing else."""

from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import membw
import pytest
from _telemetry.gates import findings
from _telemetry.sampler import Load
from contract.readings import Counters, Reading
from contract.topology import Connection

from rv.payloads._bandwidth import links, patterns
from tests.payloads.starting import Launcher

CPU = ("--device", "cpu", "--quick")
NODE, SYS = Connection("NODE", is_on_one_node=True), Connection("SYS")


def test_memory_of_a_cpu_is_right(launch: Launcher, tmp_path: Path) -> None:
    """Kernels, copies and patterns pass; what a CPU has not is skipped with its reason."""
    run = launch("membw", tmp_path, *CPU)

    assert run.code == 0, run.out
    named = {test["name"]: test for test in run.result["tests"]}
    assert {name for name, test in named.items() if test["status"] == "PASS"} == {
        "membw.stream", "membw.host", "membw.pattern.walking_ones", "membw.pattern.walking_zeros",
        "membw.pattern.address", "membw.pattern.moving_inversions", "membw.pattern.random",
    }  # fmt: skip
    assert run.coded == {"membw.peer": "not_run", "membw.pcie": "unsupported"}
    kernels = {one["name"]: one["value"] for one in named["membw.stream"]["metrics"]}
    assert set(kernels) == {"stream_copy", "stream_scale", "stream_add", "stream_triad"}
    assert min(kernels.values()) > 0
    assert named["membw.pattern.random"]["details"]["bytes"] == 4 << 20


def test_every_detector_sees_its_fault(launch: Launcher, tmp_path: Path) -> None:
    """All of them at once: one does not hide another."""
    faults = ("bitflip:kernel=add", "stuck-bit:test=random", "host-copy", "peer-copy", "slow-gpu",
              "pcie")  # fmt: skip
    run = launch(
        "membw", tmp_path, *CPU, *(word for fault in faults for word in ("--inject", fault))
    )

    assert run.code == 1
    assert run.coded == {
        "membw.stream": "wrong_result",
        "membw.peers_alike": "peer_outlier",
        "membw.host": "host_copy_mismatch",
        "membw.peer": "peer_copy_mismatch",
        "membw.pcie": "slow_link",
        "membw.pattern.random": "memory_mismatch",
    }
    said = run.reasons
    assert "cpu: add: 8 wrong elements in 8 of 8 rounds, first 524288 of the last" in said
    assert "2 mismatching words, first at byte 2097152 with wrong bits 0x20" in said
    assert "PCIe link under load is x4 of x16 lanes" in said


def test_what_is_no_longer_written_is_seen(launch: Launcher, tmp_path: Path) -> None:
    """In one round of a kernel and of each way of a copy, whose older bytes were right."""
    faults = ("not-written:kernel=copy,round=5", "host-copy-lost:round=3,way=d2h",
              "peer-copy-lost:round=4")  # fmt: skip
    run = launch(
        "membw", tmp_path, *CPU, *(word for fault in faults for word in ("--inject", fault))
    )

    assert run.code == 1
    assert {name: code for name, code in run.coded.items() if code != "unsupported"} == {
        "membw.stream": "wrong_result",
        "membw.host": "host_copy_mismatch",
        "membw.peer": "peer_copy_mismatch",
    }
    assert "cpu: copy: 1048576 wrong elements in 1 of 8 rounds" in run.reasons
    shares = run.test("membw.host")["details"]["compared"]
    assert shares == {"h2d_pageable": 1.0, "d2h_pageable": pytest.approx(0.2125)}


@pytest.mark.parametrize(
    "test", ["walking_ones", "walking_zeros", "address", "moving_inversions", "random"]
)
def test_every_pattern_sees_a_flipped_bit(test: str) -> None:
    """At its place, with its bit, in memory of several blocks."""
    torch = pytest.importorskip("torch")
    memory = patterns.Memory(torch, "cpu", 5000 * 8)
    place = 4321

    def spoil(name: str, spoilt: patterns.Memory) -> None:
        if name == test:
            spoilt.flip(place, 63)

    found = {one.test: one for one in patterns.run(memory, 2, 42, spoil)}
    assert found.pop(test)[2:] == (found_times(test), place * 8, 1 << 63)
    assert {one.total for one in found.values()} == {0}


def found_times(test: str) -> int:
    """A bit flipped before each of two reads, or once before a word is read and read inverted."""
    return {"moving_inversions": 1}.get(test, 2)


def test_blocks_are_one_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses go on from block to block."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(patterns, "BLOCK", 1024)
    memory = patterns.Memory(torch, "cpu", 5000 * 8)
    assert [start for start, _ in memory.blocks] == [0, 1024, 2048, 3072, 4096]
    memory.write(patterns.addresses(torch, "cpu"))
    assert torch.equal(torch.cat([block for _, block in memory.blocks]), torch.arange(5000))
    memory.flip(2050, 1)
    assert memory.compare(patterns.addresses(torch, "cpu")) == patterns.Mismatch(
        1, 2050, 2048, 2050
    )


def test_walking_bits_visit_every_bit_of_a_word() -> None:
    """In 64 positions."""
    torch = pytest.importorskip("torch")
    memory = patterns.Memory(torch, "cpu", 64 * 8)
    seen = {
        int(patterns.walking(memory, shift, zeros=False).table[5]) & (1 << 64) - 1
        for shift in range(64)
    }
    assert seen == {1 << bit for bit in range(64)}


def test_a_link_that_wakes_up_is_measured_when_it_is_awake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As an idle H100 gave it: less than half of the rate in its first copies."""
    taken = chain([4.0] * 3, [3.0] * 3, repeat(2.0))

    def time_each(*_: object, rounds: int, between: object) -> list[float]:
        return [next(taken) for _ in range(rounds)]

    monkeypatch.setattr(links.timing, "time_each", time_each)
    copies: Any = SimpleNamespace(
        work=None, between=None, begin=lambda: None, wrong=lambda: 0, share=1.0
    )
    link = links._timed(None, "cuda:0", "h2d_pageable", copies, 2 * 10**9)

    assert link.rates == [1.0] * links.ROUNDS


def wired(rates: dict[tuple[int, int], float], count: int) -> list[links.Peer]:
    """The links of some GPUs: 24 GB/s, but for these ways."""
    ways = [(a, b) for a in range(count) for b in range(a + 1, count)]
    both = [way for a, b in ways for way in ((a, b), (b, a))]
    return [links.Peer(f"{a}", f"{b}", True, rates.get((a, b), 24.0), 0.0, 0) for a, b in both]


MESH = [
    (0, 5),
    (0, 6),
    (0, 7),
    (1, 4),
    (1, 6),
    (1, 7),
    (2, 4),
    (2, 5),
    (2, 7),
    (3, 4),
    (3, 5),
    (3, 6),
]
"""What a hybrid cube mesh of eight GPUs has no link for."""


def test_a_link_that_is_slow_by_design_is_not_broken() -> None:
    """Both ways alike, and none of the GPUs alone; a broken one is slow one way, or everywhere."""
    mesh = wired({way: 10.0 for a, b in MESH for way in ((a, b), (b, a))}, 8)
    assert len(links.slow(mesh)) == 24
    assert not links.is_broken(mesh)
    assert not links.is_broken(wired({}, 8))
    assert links.is_broken(wired({(2, 5): 10.0}, 8))
    one = {way: 10.0 for other in (0, 1, 3) for way in ((2, other), (other, 2))}
    assert links.is_broken(wired(one, 4))


def lopsided(count: int, near: float, far: float) -> list[links.Peer]:
    """The links of GPUs of which the last is on the other socket."""
    ways = {}
    for other in range(count - 1):
        ways |= {(other, count - 1): far, (count - 1, other): far}
    return [
        each._replace(one_way=near if each.one_way == 24.0 else each.one_way)
        for each in wired(ways, count)
    ]


@pytest.mark.parametrize("count", [4, 5, 6])
def test_a_gpu_on_the_other_socket_is_no_broken_one(count: int) -> None:
    """Three and one, with 20 GB/s on a socket and 11 between them, are sound: told, or untold."""
    pairs = lopsided(count, 20.0, 11.0)
    told = {(each.source, each.target): SYS if each.one_way == 11.0 else NODE for each in pairs}
    untold, known = links.alike(pairs, {}, {}), links.alike(pairs, {}, told)

    assert [group.is_certain for group in untold] == [False]
    assert not any(links.slow(group.links) for group in known)


@pytest.mark.parametrize(
    ("connection", "certain"),
    [
        (Connection("NV18"), True),
        (Connection("PIX"), True),
        (NODE, True),
        (SYS, False),
        (None, False),
    ],
)
def test_only_where_all_are_equally_far_apart_is_a_gpu_broken(
    connection: Connection | None, *, certain: bool
) -> None:
    pairs = lopsided(4, 20.0, 11.0)
    found = {(each.source, each.target): connection for each in pairs if connection}

    (group,) = links.alike(pairs, {}, found)

    assert (group.is_certain, links.is_broken(group.links)) == (certain, True)


@pytest.mark.parametrize(
    ("connection", "rate", "status"),
    [(NODE, 12.0, "WARN"), (Connection("PIX"), 12.0, "WARN"), (NODE, 6.0, "FAIL"),
     (Connection("NV12"), 12.0, "FAIL")],
)  # fmt: skip
def test_a_slot_with_half_of_the_lanes_is_wiring(
    connection: Connection, rate: float, status: str
) -> None:
    """As the test of the PCIe link says of the same board; a quarter is none."""
    pairs = lopsided(4, 25.0, rate)
    found = {(each.source, each.target): connection for each in pairs}

    judged = membw._compared(links.alike(pairs, {}, found))

    assert (judged["status"], judged["code"]) == (status, "slow_link")


def test_a_gpu_whose_nvlinks_are_down_is_no_other_kind_of_board() -> None:
    """NVLink joins all GPUs of a node with H200s: one on PCIe is broken, not lopsided."""
    pairs = lopsided(4, 396.0, 25.0)
    models = {f"{at}": "NVIDIA H200" for at in range(4)}
    found = {(p.source, p.target): SYS if p.one_way == 25.0 else Connection("NV18") for p in pairs}

    (group,) = links.alike(pairs, models, found)

    assert (group.is_certain, links.is_broken(group.links)) == (True, True)


def test_both_ways_between_two_gpus_are_judged_together() -> None:
    """Where one end tells of fewer links than the other."""
    pairs = wired({(2, 3): 10.0}, 4)
    found = {(p.source, p.target): Connection("NV12") for p in pairs} | {
        ("3", "2"): Connection("NV11")
    }

    groups = links.alike(pairs, {}, found)

    assert [len(group.links) for group in groups] == [10, 2]
    assert [links.is_broken(group.links) for group in groups] == [False, True]


def test_without_a_topology_what_is_faster_than_pcie_is_nvlink() -> None:
    (group,) = links.alike(lopsided(4, 390.0, 100.0), {}, {})

    assert group.is_certain


def test_a_slow_link_between_peers_is_named(launch: Launcher, tmp_path: Path) -> None:
    """Where the others are fast."""
    run = launch("membw", tmp_path, *CPU, "--parts", "peer", "--inject", "slow-peer")

    assert run.code == 1
    assert run.coded == {"membw.peer": "slow_link"}


def test_more_memory_than_there_is_could_not_be_tested(launch: Launcher, tmp_path: Path) -> None:
    """An error of the request, and never a crash of the machine."""
    run = launch("membw", tmp_path, *CPU, "--parts", "patterns", "--memory", "900T")

    assert run.code == 99
    assert run.coded == {"membw.patterns": "out_of_memory"}
    assert "GB free" in run.out


@pytest.mark.parametrize("words_", [("--memory", "lots"), ("--parts", "x")])
def test_wrong_words_are_refused(launch: Launcher, tmp_path: Path, words_: tuple[str, ...]) -> None:
    """With 2."""
    assert launch("membw", tmp_path, *words_).code == 2


def test_a_link_that_is_not_whole_is_told() -> None:
    """Width and generation."""
    assert links.pcie_complaint(links.Pcie(5, 5, 16, 16)) == ""
    assert links.pcie_complaint(links.Pcie(4, 5, 8, 16)) == "x8 of x16 lanes, generation 4 of 5"


@pytest.mark.parametrize(
    ("link", "status"),
    [
        ((5, 5, 16, 16), "PASS"),
        ((5, 5, 8, 16), "WARN"),  # some boards wire half of the lanes
        ((4, 5, 16, 16), "WARN"),
        ((4, 5, 8, 16), "FAIL"),
        ((5, 5, 4, 16), "FAIL"),
        ((1, 5, 16, 16), "FAIL"),
    ],
)
def test_a_link_is_judged_by_its_rate_as_stress_does(
    monkeypatch: pytest.MonkeyPatch, link: tuple[int, int, int, int], status: str
) -> None:
    """Half of it is a warning, less is a failure."""
    gen, most_gen, width, most_width = link
    monkeypatch.setattr(membw, "_under_load", lambda *_: links.Pcie(*link))
    added: list[dict[str, Any]] = []
    session: Any = SimpleNamespace(
        faults=SimpleNamespace(get=lambda *_: None),
        say=lambda *_: None,
        report=SimpleNamespace(add=lambda name, **fields: added.append(fields)),
    )
    membw._pcie(session, ["cuda:0"])
    load = Load(after=Counters(pcie_max_gen=most_gen, pcie_max_width=most_width))
    load.add(Reading(pcie_gen=gen, pcie_width=width), 1.0)

    assert [fields["status"] for fields in added] == [status]
    assert [found[0] for found in findings(load)] == [status] * (status != "PASS")


def test_a_link_that_wakes_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generation 1 at the first look, 3 at the second, 5 from then on; no fourth is taken."""
    (tmp_path / "nvidia-smi").write_text(
        f'#!/bin/sh\necho look >> {tmp_path}/looks\n'
        f'case $(wc -l < {tmp_path}/looks) in 1) echo "1, 5, 16, 16";; 2) echo "3, 5, 16, 16";; '
        '*) echo "5, 5, 16, 16";; esac\n'
    )  # fmt: skip
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    assert links.best_pcie("1", looks=2) == links.Pcie(3, 5, 16, 16)
    assert links.best_pcie("1") == links.Pcie(5, 5, 16, 16)
    assert (tmp_path / "looks").read_text().count("look") == 3


def test_the_link_is_read_from_nvidia_smi(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the GPU's own name; one that does not say (MIG) is unknown."""
    folder = tmp_path_factory.mktemp("smi")
    (folder / "nvidia-smi").write_text(
        '#!/bin/sh\ncase "$*" in *id=GPU-1*) echo "4, 5, 16, 16";; *) echo "[N/A], 5, 16, 16";; esac\n'
    )
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    assert links.read_pcie("1") == links.Pcie(4, 5, 16, 16)
    assert links.read_pcie("MIG-7") is None
