"""check: what it prints and leaves behind when all is well."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import check
import pytest
from _harness.devices import in_smi_order
from _harness.first_forms import first_verdict
from _matmul import speed
from _matmul.dtypes import KINDS
from contract.schema import summary_of
from contract.verdicts import NotPassed

from tests.payloads.starting import ONLY, PATIENCE, PAYLOADS, Launcher, torchrun


class Device:
    """The memory of a GPU of 80 GiB, as torch tells it."""

    def __init__(self, free: int, total: int = 80 << 30) -> None:
        self.cuda = self
        self.mem_get_info = lambda _: (free, total)
        self.empty_cache = lambda: None


def test_a_shape_without_room_is_no_pass() -> None:
    """Taken memory is an error, and a device that is too small for it a skip."""
    kind, shape = KINDS["bf16"], (8192, 8192, 8192)
    speed.require_room(Device(40 << 30), kind, "cuda:0", shape)
    with pytest.raises(NotPassed) as taken:
        speed.require_room(Device(2 << 30), kind, "cuda:0", shape)
    with pytest.raises(NotPassed) as small:
        speed.require_room(Device(2 << 30, total=2 << 30), kind, "cuda:0", shape)
    assert (taken.value.status, taken.value.code) == ("ERROR", "out_of_memory")
    assert (small.value.status, small.value.code) == ("SKIP", "unsupported")


def test_check_passes_on_a_cpu(launch: Launcher, tmp_path: Path) -> None:
    """Each type exact, repeatable, proven at full size, and timed beside a plain loop."""
    done = launch("check", tmp_path, "--device", "cpu", "--quick", "--size", "128")

    assert (done.code, done.last, done.err) == (
        0,
        "[RESULT] PASS: the CPU: environment, devices as promised, exact matmul and its rate; on a CPU no speed is judged; without matmul.tf32: tf32: not on a CPU (and 2 more)",
        "",
    )
    names = {test["name"]: test["status"] for test in done.result["tests"]}
    for kind in ("fp64", "fp32", "bf16"):
        parts = (f"matmul.{kind}{part}" for part in ("", ".exact", ".repeat", ".residual"))
        assert all(names[part] == "PASS" for part in parts)
    assert names["matmul.fp8"] == "SKIP"
    tflops, ratio = done.test("matmul.fp32")["metrics"]
    assert tflops["value"] > 0
    assert (tflops["unit"], tflops["dir"], ratio["name"]) == ("TFLOPS", "higher", "bare_ratio")
    assert done.result["env"]["precision"]["allow_tf32"] is False
    assert done.result["env"]["vars"]["OMP_NUM_THREADS"] == "1"
    assert "[COMPUTE] cpu: " in done.out
    alias = json.loads((tmp_path / "gpu_tests_result.json").read_text())
    assert alias["compute"] is True


def test_search_finds_a_shape(launch: Launcher, tmp_path: Path) -> None:
    """Coarse to fine, within its time; all that was tried is kept."""
    words = ["--device", "cpu", "--quick", "--dtypes", "fp32", "--shapes", "64x32x96", "--search"]
    done = launch("check", tmp_path, *words, "--duration", "0.5")

    assert done.code == 0
    found = done.test("matmul.fp32.search")
    assert found["metrics"][0]["shape"] in found["details"]["shapes"]
    assert done.test("matmul.fp32")["metrics"][0]["shape"] == "64x32x96"


def test_ranks_are_compared(tmp_path: Path) -> None:
    """Under the real torchrun one result has every rank's tests, and their digests are equal."""
    pytest.importorskip("torch")
    words = ["--device", "cpu", "--quick", "--size", "64", "--dtypes", "fp32"]

    done = torchrun("check", tmp_path, *words)

    assert done.code == 0, done.out + done.err
    assert done.test("matmul.digest")["details"] == {"devices": 2}
    assert {test["rank"] for test in done.result["tests"]} == {0, 1}
    assert done.result["test_info"]["world"]["size"] == 2
    assert [line for line in done.out.splitlines() if "[RESULT]" in line] == [
        "[RESULT] SUCCESS",
        done.last,
    ]


def test_other_bits_are_said_of_a_device(launch: Launcher, tmp_path: Path) -> None:
    """Of the GPU that gave them: a later run on another one does not answer for it."""
    words = ["--device", "cpu", "--quick", "--size", "64", "--dtypes", "fp32"]
    done = launch("check", tmp_path, *words, "--inject", "digest:rank=1", world=2)

    failed = [test for test in done.result["tests"] if test["code"] == "digest_mismatch"]
    assert {(test["rank"], test["device"]) for test in failed} == {(0, "cpu"), (1, "cpu")}


def test_payloads_run_from_a_copied_folder(tmp_path: Path) -> None:
    """The payload folder runs where rv put it, with nothing else beside it."""
    pytest.importorskip("torch")
    shutil.copytree(PAYLOADS, tmp_path / "payloads")
    script = str(tmp_path / "payloads" / "check.py")
    words = ["--device", "cpu", "--quick", "--size", "64", "--dtypes", "fp32"]

    done = subprocess.run(
        [sys.executable, script, *words], env=ONLY, cwd=tmp_path, timeout=PATIENCE
    )

    assert done.returncode == 0


def test_gpus_are_listed_as_nvidia_smi_does(capsys: pytest.CaptureFixture[str]) -> None:
    """By PCI address, though CUDA counts them otherwise and the last one is done first."""
    addresses = [(1, 4), (0, 200), (0, 27)]
    described = [
        {"index": index, "name": "H200", "pci_domain_id": domain, "pci_bus_id": bus}
        for index, (domain, bus) in enumerate(addresses)
    ]
    devices = [f"cuda:{index}" for index in range(3)]
    assert in_smi_order(described, devices) == ["cuda:2", "cuda:1", "cuda:0"]
    assert in_smi_order([], ["cpu"]) == ["cpu"]

    check.show_all(described, {device: [f"{device}\n"] for device in devices})

    assert capsys.readouterr().out.split() == ["cuda:2", "cuda:1", "cuda:0"]


@pytest.mark.parametrize(
    ("statuses", "strict", "line"),
    [
        (["PASS", "SKIP"], False, "[RESULT] SUCCESS"),
        (["PASS", "WARN"], False, "[RESULT] SUCCESS"),
        (["PASS", "WARN"], True, "[RESULT] FAILURE: ['t1: why']"),
        (["FAIL", "ERROR", "WARN"], False, "[RESULT] FAILURE: ['t0: why', 't1: why']"),
        ([], False, "[RESULT] FAILURE: ['ERROR']"),
        (["SKIP"], False, "[RESULT] SKIPPED (no GPU)"),
    ],
)
def test_the_first_programs_words_follow_from_the_verdict(
    statuses: list[str], strict: bool, line: str
) -> None:
    """A success is what ends with 0; what failed is listed as they did."""
    tests = [
        {
            "name": f"t{at}",
            "status": status,
            "reason": "why",
            "host": "a",
            "action": "",
            "code": "no_gpu",
        }
        for at, status in enumerate(statuses)
    ]
    document = {"tests": tests, "summary": summary_of(tests, strict=strict)}

    assert first_verdict(document) == line
