"""What a GPU's counters and limits say: each fault is found with its code, and a sound GPU is not accused."""

import ctypes
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _telemetry import kernel_log
from _telemetry.fake import AT_REST, LINKS, Fake
from _telemetry.health import Health
from _telemetry.wear import Wear, findings
from contract import codes as table
from contract.catalogue import OF_WEAR
from contract.nvidia import Smi
from contract.nvml import open_nvml
from contract.readings import NOTHING, Counters, Links
from contract.xids import SwitchXid, Xid, judge_xid, read_xid

from tests.payloads.burning import codes, run

FOUND = {
    "ecc": ("FAIL", "ecc_uncorrectable"), "ecc-before": ("WARN", "ecc_before"),
    "ecc-corrected": ("WARN", "ecc_corrected"), "remap": ("FAIL", "row_remap"),
    "rows-failed": ("FAIL", "row_remap"), "rows-remapped": ("WARN", "rows_remapped"),
    "repair": ("FAIL", "gpu_needs_repair"), "xid": ("FAIL", "xid"),
    "replays": ("WARN", "pcie_replays"), "nvlink-errors": ("FAIL", "link_errors"),
    "nvlink-crc": ("FAIL", "link_errors"), "nvlink-down": ("FAIL", "link_down"),
    "power-limit": ("WARN", "power_capped"), "clocks": ("WARN", "clocks_capped"),
    "unreadable": ("WARN", "telemetry_unreadable"), "vanish": ("FAIL", "gpu_needs_repair"),
}  # fmt: skip


def judged(before: Counters, after: Counters, **more: Any) -> list[tuple[str, str]]:
    """Status and code of each finding, of a minute."""
    wear = Wear(before, after, **{"seconds": 60.0, **more})
    return [(status, code) for status, code, _ in findings(wear)]


def test_every_fault_has_its_row() -> None:
    assert {*FOUND, "sxid"} == set(OF_WEAR)  # an NVSwitch is no GPU's alone


@pytest.mark.parametrize("fault", FOUND)
def test_each_fault_is_found_on_its_gpu_alone(fault: str) -> None:
    """By one look before and one after."""
    health = Health(Fake(["a", "b"], {fault: 79.0}), {"cuda:0": "a", "cuda:1": "b"})
    health.start()
    health.stop()

    assert [(status, code) for status, code, _ in health.findings("cuda:0")] == [FOUND[fault]]
    assert health.findings("cuda:1") == []
    assert health.details("cuda:0")["source"] == "fake"


def test_a_sound_gpu_has_no_findings() -> None:
    """Nor one that has no such counters, or few replays, as any has from time to time."""
    few = replace(AT_REST, pcie_replays=8, ecc_corrected=10)
    assert judged(AT_REST, AT_REST) == judged(AT_REST, few) == []
    geforce = Counters(model="NVIDIA GeForce RTX 2080 Ti", power_limit_w=250, default_power_w=250)
    assert judged(geforce, geforce) == []
    rated = replace(AT_REST, power_limit_w=695.0)
    assert judged(rated, rated) == []


def test_rates_are_of_the_whole_run() -> None:
    """Eighty replays in ten minutes are no more than DCGM allows; CRC errors by the second.

    Of a shorter run both are counted as of a minute, as DCGM does.
    """
    assert judged(AT_REST, replace(AT_REST, pcie_replays=80), seconds=600.0) == []
    many = replace(AT_REST, links=replace(LINKS, crc=7000))
    assert judged(AT_REST, many) == [("FAIL", "link_errors")]
    assert judged(AT_REST, many, seconds=8.0) == [("FAIL", "link_errors")]
    assert judged(AT_REST, many, seconds=600.0) == [("WARN", "link_crc")]
    burst = replace(AT_REST, links=replace(LINKS, crc=1236))
    assert judged(AT_REST, burst, seconds=8.0) == [("WARN", "link_crc")]


@pytest.mark.parametrize(
    ("before", "after", "peers", "found"),
    [
        (Links(12, 0), Links(12, 0), 12, []),
        (Links(0, 12), Links(0, 12), 0, []),  # no bridge
        (Links(4, 8), Links(4, 8), 4, [("WARN", "link_down")]),  # a bridge for some
        (Links(4, 8), Links(4, 8), 12, [("FAIL", "link_down")]),
        (Links(12, 0), Links(11, 1), 11, [("FAIL", "link_down")]),  # lost in the run
    ],
)
def test_inactive_links(
    before: Links, after: Links, peers: int, found: list[tuple[str, str]]
) -> None:
    both = (replace(AT_REST, links=links) for links in (before, after))
    assert judged(*both, peer_links=peers) == found


def test_a_gpu_that_tells_nothing_any_more_is_told() -> None:
    assert judged(AT_REST, NOTHING) == [("WARN", "telemetry_unreadable")]
    assert "which it did before" in findings(Wear(AT_REST, NOTHING))[0][2]


def test_the_kernels_log_tells_of_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this job's GPUs alone; an Xid that is there before, again after a reset, counts once more."""
    line = "NVRM: Xid (PCI:0000:{}:00): {}, pid=1, x\n"
    logs = [line.format("1b", 48), line.format("1b", 48) + line.format("1b", 79) + line.format("ff", 79)]  # fmt: skip
    monkeypatch.setattr(kernel_log, "_kmsg", lambda: logs.pop(0))

    log = kernel_log.KernelLog()
    log.start()
    new = log.new()

    assert log.source == "kmsg"
    assert [(xid.bus, xid.number) for xid in new] == [("0000:1b:00", 79), ("0000:ff:00", 79)]


SXID = "nvidia-nvswitch3: SXid (PCI:0000:84:00.0): {}\n"


def test_what_nvswitches_tell_is_judged_as_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a switch and number, the fatal first; the numbers that follow a line are no event."""
    told = [
        "22013, Non-fatal, Link 44 Minion Link DLREQ interrupt",
        "22013, Severity 0 Engine instance 44 Sub-engine instance 00",
        "22013, Data {0x0000002c, 0x0000002c}",
        "22013, Non-fatal, Link 45 Minion Link DLREQ interrupt",
        "24007, Non-fatal, Link 30 sourcetrack timeout error",
        "24007, Fatal, Link 31 sourcetrack timeout error",
        "10004, Host_thermal_event_start",
    ]
    logs = [SXID.format("20001, Fatal, Link 1 before"), "".join(map(SXID.format, told))]
    logs[1] = logs[0] + logs[1]
    monkeypatch.setattr(kernel_log, "_kmsg", lambda: logs.pop(0))
    health = Health(Named(["a"]), {"cuda:0": "a"})
    health.start()
    health.stop()

    assert health.findings("cuda:0") == []
    assert health.of_switches() == [
        ("WARN", "sxid", "NVSwitch 0000:84:00: SXid 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt (2 times)"),
        ("FAIL", "sxid", "NVSwitch 0000:84:00: SXid 24007, Fatal, Link 31 sourcetrack timeout error (2 times)"),
        ("WARN", "sxid", "NVSwitch 0000:84:00: SXid 10004, Host_thermal_event_start"),
    ]  # fmt: skip
    assert table.CODES["sxid"].fault == "FABRIC"


class Named(Fake):
    """A source beside which the kernel's log is read."""

    name = "nvml"


@pytest.mark.parametrize(("word", "status"), [("Nonfatal", "WARN"), ("Fatal", "FAIL")])
def test_an_nvlink_xid_says_whether_it_is_fatal(word: str, status: str) -> None:
    """Those of Blackwell do; the link goes on where it is not."""
    line = f"NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE {word} XC0 i0 Link 13 (0x0409a0c2)"
    xid = read_xid(line)
    assert isinstance(xid, Xid)
    assert judge_xid(xid)[:2] == (status, "link_errors")


RLW = "NVRM: Xid (PCI:0000:1b:00): 145, RLW_RXPIPE {} XC0 i0 Link 13\n"


class Telling(Named):
    """A source that tells of an Xid, too, without its words."""

    def xids(self) -> dict[str, list[Xid | SwitchXid]]:
        return {"a": [Xid("", 145)]} if self._looks > 1 else {}


@pytest.mark.parametrize("source", [Named, Telling])
@pytest.mark.parametrize(
    ("words", "status"),
    [(["Fatal", "Nonfatal"], "FAIL"), (["Nonfatal", "Fatal"], "FAIL"), (["Nonfatal"] * 2, "WARN")],
)
def test_the_worst_xid_of_a_number_counts(
    source: type[Named], words: list[str], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever came last; and one that NVML told of, too, is what the log says of it."""
    logs = ["NVRM: loading\n", "".join(map(RLW.format, words))]
    monkeypatch.setattr(kernel_log, "_kmsg", lambda: logs.pop(0))
    health = Health(source(["a"]), {"cuda:0": "a"})
    health.start()
    health.stop()

    ((found, code, reason),) = health.findings("cuda:0")
    assert (found, code) == (status, "link_errors")
    assert ("Fatal" in reason) == (status == "FAIL")


def test_a_log_that_may_not_be_read_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "KMSG", "/nonexistent")
    monkeypatch.setenv("PATH", "/nonexistent")
    log = kernel_log.KernelLog()
    log.start()
    assert (log.source, log.new()) == ("", [])


DATA = Path(__file__).parents[1] / "data" / "nvidia_smi"


def test_nvidia_smi_is_asked_once_for_all(tmp_path: Path) -> None:
    """Its three texts become the counters of the GPUs that are asked for."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in\n"-q -x") cat {DATA}/documented.580.xml ;;\n'
        f'"nvlink -s") cat {DATA}/documented.nvlink-status.txt ;;\n'
        f'"nvlink -e") cat {DATA}/documented.nvlink-errors.txt ;;\nesac\n'
    )
    program.chmod(0o755)
    asked = "8c5ad8d4-2b2a-6c1f-1c5a-1f0f3f6e7a05"

    ((uuid, counters),) = Smi(str(program), [asked]).counters().items()

    assert (uuid, counters.links) == (asked, Links(2, 1, 13, 65540))
    assert judged(counters, counters, peer_links=3) == [
        ("FAIL", "gpu_needs_repair"), ("FAIL", "link_down"), ("WARN", "ecc_before"),
    ]  # fmt: skip


class NVMLError_NoPermission(Exception):  # noqa: N801, N818 - as pynvml names it
    """What NVML says where it may not tell."""


class NVMLError_NotSupported(Exception):  # noqa: N801, N818
    """What NVML says of what a GPU does not have."""


class NVMLError_Timeout(Exception):  # noqa: N801, N818
    """No event is there."""


def refuse(error: type[Exception]) -> Any:
    def function(*_: object) -> None:
        raise error

    return function


def test_nvml_tells_of_links_xids_and_what_it_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not supported is no secret; an Xid is told once.

    The 361 and 540 of a link are what an H200 told of CRC_DATA and ECC_DATA while `nvidia-smi
    nvlink -e` had no error of it.
    """
    events = [types.SimpleNamespace(device="handle", eventData=79)]
    functions: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlEventTypeXidCriticalError": 8,
        "nvmlDeviceGetHandleByUUID": lambda uuid: "handle",
        "nvmlDeviceGetUUID": lambda _: "GPU-a",
        "nvmlDeviceGetTotalEccErrors": refuse(NVMLError_NoPermission),
        "nvmlDeviceGetRemappedRows": refuse(NVMLError_NotSupported),
        "nvmlDeviceGetNvLinkState": lambda _, link: {0: 1, 1: 0}[link],
        "nvmlDeviceGetNvLinkErrorCounter": lambda _, link, kind: (7, 5, 3, 361, 540)[kind],
        "nvmlDeviceGetPciInfo": lambda _: types.SimpleNamespace(busId=b"00000000:1B:00.0"),
        "nvmlEventSetCreate": lambda: "events",
        "nvmlDeviceRegisterEvents": lambda *_: None,
        "nvmlEventSetWait_v2": lambda *_: events.pop() if events else refuse(NVMLError_Timeout)(),
    }
    module = types.ModuleType("pynvml")
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, "pynvml", module)

    source = open_nvml(["a"])

    assert source is not None
    counters = source.counters()["a"]
    assert (counters.links, counters.bus) == (Links(1, 1, 24, 6), "0000:1b:00")
    assert counters.unreadable == ("memory errors",)
    assert source.xids() == {}  # from here on
    ((uuid, (xid,)),) = (source.xids() or {}).items()
    assert (uuid, xid.number) == ("a", 79)
    assert source.xids() == {}


def test_an_xid_of_a_card_is_of_each_of_its_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML tells of whole cards; two slices of one and another card are ours, a third is not."""
    cards = {"MIG-a1": "card a", "MIG-a2": "card a", "GPU-b": "card b"}
    uuids = {"card a": "GPU-a", "card b": "GPU-b", "card c": "GPU-c"}
    events = [types.SimpleNamespace(device=f"card {name}", eventData=n)
              for name, n in (("c", 48), ("b", 63), ("a", 79))]  # fmt: skip

    def by_uuid(name: str) -> str:
        return name if name.startswith("MIG-") and name in cards else cards[name]

    def uuid_of(handle: str) -> str:
        return uuids.get(handle, handle)

    module = types.ModuleType("pynvml")
    vars(module).update({
        "nvmlInit": lambda: None,
        "nvmlEventTypeXidCriticalError": 8,
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": cards.__getitem__,
        "nvmlDeviceGetUUID": uuid_of,
        "nvmlEventSetCreate": lambda: "events",
        "nvmlDeviceRegisterEvents": lambda *_: None,
        "nvmlEventSetWait_v2": lambda *_: events.pop() if events else refuse(NVMLError_Timeout)(),
    })  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", module)
    source = open_nvml(["a1", "MIG-a2", "b"])

    assert source is not None
    assert source.xids() == {}
    told = {uuid: [xid.number for xid in xids] for uuid, xids in (source.xids() or {}).items()}
    assert told == {"a1": [79], "MIG-a2": [79], "b": [63], "": [48]}


LISTS_B = "GPU 1: NVIDIA H200 (UUID: GPU-b)\n"
HANDLE = "Unable to determine the device handle for gpu 0000:1B:00.0: {}\n"


@pytest.mark.parametrize(
    ("code", "said", "found"),
    [
        (0, LISTS_B, [("FAIL", "gpu_needs_repair"), None]),
        (15, HANDLE.format("GPU is lost.  Reboot the system"), [("FAIL", "gpu_needs_repair"), None]),
        (6, "No devices were found\n", [("FAIL", "gpu_needs_repair")] * 2),
        (4, "Failed to initialize NVML: Insufficient Permissions\n", [None, None]),
        (0, "GPU 0: NVIDIA H200 (UUID: GPU-A)\n" + LISTS_B, [None, None]),
    ],
)  # fmt: skip
def test_a_gpu_that_vanishes_in_the_run_is_lost(
    tmp_path: Path, code: int, said: str, found: list[tuple[str, str] | None]
) -> None:
    """But not where the driver may not tell, or knows it and only its figures cannot be read."""
    program = tmp_path / "nvidia-smi"
    query = "".join(
        f"<gpu id='x'><uuid>GPU-{name}</uuid><pci><pci_bus_id>00000000:{bus}:00.0</pci_bus_id>"
        "<replay_counter>0</replay_counter></pci></gpu>"
        for name, bus in (("a", "1B"), ("b", "43"))
    )
    gone = tmp_path / "gone"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in\n"-q -x") [ -e {gone} ] && exit 15\n'
        f'echo "<nvidia_smi_log>{query}</nvidia_smi_log>" ;;\n'
        f'-L) printf "%s" "{said}"; exit {code} ;;\nesac\n'
    )
    program.chmod(0o755)
    health = Health(Smi(str(program), ["a", "b"]), {"cuda:0": "a", "cuda:1": "b"})
    health.start()
    gone.touch()
    health.stop()

    hidden = ("WARN", "telemetry_unreadable")
    each = [[(status, code) for status, code, _ in health.findings(name)] for name in health.wear]
    assert each == [[wanted or hidden] for wanted in found]


def test_a_payload_fails_by_the_wear_of_its_gpu(tmp_path: Path) -> None:
    """Of each kind, with its class, whatever was measured; one that is gone has no other fault."""
    words = [word for fault in OF_WEAR if fault != "vanish" for word in ("--inject", fault)]
    code, text, result = run("check", tmp_path, "--quick", "--size", 64, "--dtypes", "fp32", *words)

    assert code == 1, text
    # Of growing faults of one counter the last one stands; so the others are found alone, above.
    assert codes(result) >= {"row_remap", "gpu_needs_repair", "xid", "sxid"}
    assert codes(result, "WARN") >= {"power_capped", "clocks_capped", "telemetry_unreadable"}
    of = {test["code"]: test["class"] for test in result["tests"] if test["name"] == "wear"}
    assert (of["xid"], of["power_capped"], of["link_down"]) == ("HARDWARE", "CONFIG", "FABRIC")


def test_no_link_at_all_beside_a_peer_that_has_some() -> None:
    """And a card that never had any is sound."""
    none = replace(AT_REST, links=Links(0, 0))
    assert judged(AT_REST, none) == [("FAIL", "link_down")]
    assert judged(none, none, peer_links=18) == [("WARN", "link_down")]  # a bridge of others
    h200 = replace(none, model="NVIDIA H200")
    assert judged(h200, h200, peer_links=18) == [("FAIL", "link_down")]
    assert judged(none, none) == []


@pytest.mark.parametrize(
    ("name", "is_lost"), [("NotFound", True), ("Unknown", True), ("NoPermission", False)]
)
def test_nvml_does_not_find_a_gpu_any_more(
    name: str, is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = type(f"NVMLError_{name}", (Exception,), {})
    module = types.ModuleType("pynvml")
    vars(module).update(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetPcieReplayCounter=lambda _: 0,
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    health = Health(open_nvml(["a"]), {"cuda:0": "a"})
    health.start()
    for function in ("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetPcieReplayCounter"):
        setattr(module, function, refuse(error))
    health.stop()

    found = {status for status, code, _ in health.findings("cuda:0") if code == "gpu_needs_repair"}
    assert found == ({"FAIL"} if is_lost else set())


@pytest.mark.parametrize("name", ["NVMLError_GpuIsLost", "NVMLError_ResetRequired"])
def test_nvml_says_that_a_gpu_is_gone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of each figure: no refusal, but a fault of the GPU."""
    error = type(name, (Exception,), {})
    module = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetRemappedRows=refuse(error),
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    source = open_nvml(["GPU-a"])
    assert source is not None
    after = source.counters()["GPU-a"]
    assert ("FAIL", "gpu_needs_repair") in judged(AT_REST, after)


class SramStatus(ctypes.Structure):
    """The part that is read of what NVML fills."""

    _fields_ = (("version", ctypes.c_uint), ("bThresholdExceeded", ctypes.c_uint))


def field(number: int, value: int, code: int = 0) -> Any:
    """One answer of NVML; `code` is 3 where it is not supported."""
    return types.SimpleNamespace(
        fieldId=number, nvmlReturn=code, value=types.SimpleNamespace(uiVal=value)
    )


def exceed(_: str, status: Any) -> None:
    status._obj.bThresholdExceeded = 1


REPAIRS: dict[str, tuple[dict[str, Any], str]] = {
    "page": ({"nvmlDeviceGetRetiredPagesPendingStatus": lambda _: 1}, "page waits"),
    "channel": ({"nvmlDeviceGetRepairStatus": lambda _: [1, 0]}, "memory channel"),
    "tpc": ({"nvmlDeviceGetRepairStatus": lambda _: [0, 1]}, "TPC"),
    "memory": ({"nvmlDeviceGetUnrepairableMemoryFlag_v1": lambda _: 1}, "cannot be repaired"),
    "sram": ({"nvmlDeviceGetSramEccErrorStatus": exceed}, "SRAM"),
    "action": (
        {"nvmlDeviceGetFieldValues": lambda _, ids: [field(each, 4 * (each == 230)) for each in ids]},
        "'Drain and Reset'",
    ),
    "new action": (
        {"nvmlDeviceGetFieldValues": lambda _, ids: [field(230, 99)]}, "'action 99'",
    ),
    "reset": (
        {"nvmlDeviceGetFieldValues": lambda _, ids: [field(230, 7, 3), field(226, 1)]},
        "a reset is required",
    ),
}  # fmt: skip
SOUND: dict[str, Any] = {
    "nvmlDeviceGetRetiredPagesPendingStatus": lambda _: 0,
    "nvmlDeviceGetRepairStatus": lambda _: [0, 0],
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": lambda _: 0,
    "nvmlDeviceGetSramEccErrorStatus": lambda *_: 0,
    "nvmlDeviceGetFieldValues": lambda _, ids: [field(each, 0) for each in ids],
    "c_nvmlEccSramErrorStatus_v1_t": SramStatus,
}


def repair_of(monkeypatch: pytest.MonkeyPatch, functions: dict[str, Any]) -> Counters:
    """What is read of a card of which NVML knows these functions."""
    module = types.ModuleType("pynvml")
    vars(module).update(
        nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=lambda uuid: uuid, **functions
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    source = open_nvml(["GPU-a"])
    assert source is not None
    return source.counters()["GPU-a"]


@pytest.mark.parametrize("name", REPAIRS)
def test_nvml_tells_what_must_be_repaired(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nvidia-smi does: a V100 with a page that waits, an H100 that asks to be drained."""
    functions, said = REPAIRS[name]
    after = repair_of(monkeypatch, {**SOUND, **functions})
    assert judged(after, after) == [("FAIL", "gpu_needs_repair")]
    assert said in after.repair


@pytest.mark.parametrize(
    "error",
    [NVMLError_NotSupported, NVMLError_NoPermission,
     type("NVMLError_FunctionNotFound", (Exception,), {}),
     type("NVMLError_ArgumentVersionMismatch", (Exception,), {})],
)  # fmt: skip
def test_a_driver_that_tells_of_no_repairs_accuses_no_gpu(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is too old, a card without such memory, or a figure that only root may read."""
    refused = {name: refuse(error) for name in SOUND if name.startswith("nvmlDevice")}
    old = {"nvmlDeviceGetPcieReplayCounter": lambda _: 0}
    none = {"nvmlDeviceGetFieldValues": lambda _, ids: [field(each, 1, 3) for each in ids]}
    for functions in (SOUND, {**SOUND, **refused}, {}, {**SOUND, **none}):
        after = repair_of(monkeypatch, {**functions, **old})
        assert judged(after, after) == []
