"""What nvidia-smi and the kernel's log print: layouts of three drivers, and what is not told."""

from pathlib import Path

import pytest

from rv.payloads.contract.readings import Links, bus_of
from rv.payloads.contract.smi_text import parse_links, parse_query
from rv.payloads.contract.xids import Xid, judge_xid, parse_xids, read_xid

DATA = Path(__file__).parents[2] / "data" / "nvidia_smi"
UUID = "GPU-8c5ad8d4-2b2a-6c1f-1c5a-1f0f3f6e7a0"
LOG = """\
[ 12.1] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06
[Tue Nov 24 10:00:01 2026] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
4,812,99999999,-;NVRM: Xid (PCI:0000:43:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No
2026-11-24T10:00:02 a1 kernel: NVRM: Xid (PCI:0001:00:00): 31, pid=77, name=python, Ch 00000008, MMU Fault
Xid (PCI:0000:1b:00) without its module
"""


def read(driver: int) -> dict[str, object]:
    """By the last figure of its UUID."""
    found = parse_query((DATA / f"documented.{driver}.xml").read_text())
    return {uuid.removeprefix(UUID): counters for uuid, counters in found.items()}


def told(counters: object, *names: str) -> list[object]:
    return [getattr(counters, name) for name in names]


def test_a_volta_of_an_old_driver() -> None:
    """Single and double bits, pages that wait to be retired, a limit and clocks below default."""
    volta, geforce = read(470).values()
    assert told(volta, "ecc_uncorrected", "ecc_corrected", "pcie_replays") == [2, 42, 7]
    assert told(volta, "power_limit_w", "default_power_w") == [250, 300]
    assert told(volta, "applications_mhz", "default_applications_mhz", "max_sm_mhz") == [1005, 1290, 1530]  # fmt: skip
    assert told(volta, "pcie_max_gen", "pcie_max_width", "slowdown_c") == [3, 16, 87]
    assert told(volta, "repair", "rows_pending") == [
        "a memory page waits for a reset to be retired", None,
    ]  # fmt: skip
    assert told(geforce, "ecc_uncorrected", "repair", "unreadable") == [None, "", ()]
    assert told(geforce, "bus", "model") == ["0000:43:00", "NVIDIA GeForce RTX 2080 Ti"]


def test_an_ampere() -> None:
    """Errors of caches and memory are added up, volatile ones; rows are remapped or wait."""
    (ampere,) = read(535).values()
    assert told(ampere, "ecc_uncorrected", "ecc_corrected") == [1, 3]
    assert told(ampere, "rows_pending", "rows_failed", "rows_remapped") == [True, False, 1]
    assert told(ampere, "repair", "unreadable") == ["", ()]


def test_a_hopper_of_a_new_driver() -> None:
    """What is deprecated is not unreadable; what the driver will not say is, by its subject."""
    well, worn, mute = read(580).values()
    assert told(well, "ecc_uncorrected", "repair", "unreadable") == [0, "", ()]
    assert told(well, "applications_mhz", "slowdown_c", "power_limit_w") == [None, None, 700]
    assert told(worn, "ecc_uncorrected") == [2]
    assert told(worn, "repair") == [
        "the driver asks for 'Drain and Reset'; more SRAM errors than NVIDIA allows"
    ]
    assert told(mute, "unreadable") == [("power limit", "memory errors")]


def test_what_is_no_document_tells_nothing() -> None:
    """An entity could make gigabytes of a line."""
    bomb = '<!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log><gpu><uuid>GPU-1</uuid></gpu></nvidia_smi_log>'
    for text in ("", "NVIDIA-SMI has failed", "<nvidia_smi_log><gpu>", "<x/>", bomb):
        assert parse_query(text) == {}
    assert list(parse_query(bomb.partition("]>")[2])) == ["GPU-1"]


def test_nvlinks_are_counted_by_gpu() -> None:
    """Replays and recoveries together, CRC errors; memory errors of a link are none."""
    files = (DATA / f"documented.nvlink-{name}.txt" for name in ("status", "errors"))
    links = parse_links(*(path.read_text() for path in files))
    assert links == {
        f"{UUID}4": Links(3, 0, 0, 0),
        f"{UUID}5": Links(2, 1, 13, 65540),
        f"{UUID}6": Links(0, 0),  # told by a sentence in place of its links
    }
    assert parse_links("", "Link 0: Replay Errors: 3") == {}


def test_xids_of_any_log() -> None:
    """As dmesg, /dev/kmsg and the journal write them; a slice stands beside the bus."""
    lines = parse_xids(LOG)
    xids = [xid for line in lines if (xid := read_xid(line))]
    assert [(xid.bus, xid.number) for xid in xids] == [
        ("0000:1b:00", 79), ("0000:43:00", 94), ("0001:00:00", 31),
    ]  # fmt: skip
    assert read_xid("NVRM: nothing") is None
    assert bus_of("00000000:1B:00.0") == bus_of("0000:1b:00") == "0000:1b:00"


@pytest.mark.parametrize(
    ("number", "judged"),
    [
        (79, ("FAIL", "xid")), (48, ("FAIL", "xid")), (95, ("FAIL", "xid")),
        (74, ("FAIL", "link_errors")), (149, ("FAIL", "link_errors")),
        (13, ("WARN", "xid_of_program")), (31, ("WARN", "xid_of_program")),
        (63, ("WARN", "xid")), (999, ("WARN", "xid")),
    ],
)  # fmt: skip
def test_an_xid_is_judged_by_its_number(number: int, judged: tuple[str, str]) -> None:
    status, code, reason = judge_xid(Xid("0000:1b:00", number, "a\x1bb"))
    assert (status, code) == judged
    assert reason.startswith(f"Xid {number}, ")


@pytest.mark.parametrize("said", ["GPU requires reset", "GPU is lost"])
def test_a_gpu_that_does_not_answer_needs_a_repair(said: str) -> None:
    """It is no figure that this user may not read."""
    heat = f"<temperature><gpu_temp_slow_threshold>{said}</gpu_temp_slow_threshold></temperature>"
    text = f"<nvidia_smi_log><gpu><uuid>GPU-a</uuid>{heat}</gpu></nvidia_smi_log>"
    assert parse_query(text)["GPU-a"].repair == f"the driver says {said!r}"
