"""What goes wrong around a payload: one clear line, the right verdict, never a pass."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.payloads.starting import ONLY, PATIENCE, PAYLOADS, Launcher, python, torchrun

HIDDEN = "raise ImportError('torch is hidden')\n"
NO_CUDA = """
class cuda:
    device_count = staticmethod(lambda: 0)
    is_available = staticmethod(lambda: False)
    class matmul: allow_bf16_reduced_precision_reduction = allow_fp16_reduced_precision_reduction = 0
class version: cuda = None
class cudnn: version = staticmethod(lambda: None)
class backends: pass
backends.cuda, backends.cudnn = cuda, cudnn
get_float32_matmul_precision = lambda: "highest"
__version__ = "2.0+cpu"
"""
FOUR = ("check", "train", "train_fsdp", "dataload")


@pytest.mark.parametrize("payload", FOUR[1:])
def test_no_torch_is_an_error(tmp_path: Path, payload: str) -> None:
    """What could not be tested has not passed."""
    done = python(payload, tmp_path, "--device", "cpu", torch=HIDDEN)

    assert done.code == 99
    assert done.last == "[RESULT] ERROR: no torch: torch is hidden"
    assert done.result["summary"]["codes"] == ["no_torch"]


def test_check_without_torch_multiplies_in_python(tmp_path: Path) -> None:
    """And says that nothing else was checked."""
    done = python("check", tmp_path, "--device", "cpu", torch=HIDDEN)

    assert done.code == 0
    assert done.last.startswith("[RESULT] WARN: no torch (torch is hidden): only Python's own")


def test_check_without_torch_sees_a_wrong_product_too(tmp_path: Path) -> None:
    """Python's own product is really compared."""
    done = python("check", tmp_path, "--device", "cpu", "--inject", "wrong-product", torch=HIDDEN)

    assert (done.code, done.last) == (1, "[RESULT] FAIL: Python's product of integers is wrong")


def test_no_torch_on_a_gpu_node_is_an_error(tmp_path: Path) -> None:
    """Promised and impossible to check."""
    done = python("check", tmp_path, torch=HIDDEN, RV_GPUS="1")

    assert done.code == 99
    assert done.last == "[RESULT] ERROR: 1 GPU(s) given but no torch: torch is hidden"


@pytest.mark.parametrize("payload", FOUR[:3])
@pytest.mark.parametrize("promise", ["RV_GPUS=2", "SLURM_JOB_GPUS=0,1", "CUDA_VISIBLE_DEVICES=8,9"])
def test_torch_without_cuda_on_a_gpu_node_fails(tmp_path: Path, payload: str, promise: str) -> None:
    """A GPU that Slurm gave and torch does not see is a failure, never a run on the CPU."""
    name, _, value = promise.partition("=")

    done = python(payload, tmp_path, torch=NO_CUDA, **{name: value})

    assert done.code == 1
    seen = "torch sees 0 of 2 promised GPU(s); it is built without CUDA"
    assert done.last == f"[RESULT] FAIL: {seen}"
    assert done.test("device")["code"] == "torch_without_cuda"
    assert done.test("device")["class"] == "SOFTWARE"
    assert done.result["summary"]["exclude_nodes"] == []


@pytest.mark.parametrize(
    ("said", "code", "kind"),
    [
        ("The NVIDIA driver on your system is too old (found version 11040).", "driver_mismatch", "SOFTWARE"),
        ("Found no NVIDIA driver on your system.", "gpu_not_visible", "HARDWARE"),
    ],
)  # fmt: skip
def test_a_driver_that_does_not_fit_is_named(
    tmp_path: Path, said: str, code: str, kind: str
) -> None:
    """Counting GPUs hides it behind a 0; the environment is at fault, not the node."""
    torch = NO_CUDA.replace("cuda = None", "cuda = '13.0'")
    torch += f"def init(): raise RuntimeError({said!r})\ncuda.init = init\n"

    done = python("check", tmp_path, torch=torch, RV_GPUS="1")

    assert done.code == 1
    assert done.last.endswith(f"it is built for CUDA 13.0: {said}")
    assert (done.test("device")["code"], done.test("device")["class"]) == (code, kind)


@pytest.mark.parametrize("none", ["", "-1", "NoDevFiles"])
def test_no_gpu_asked_for_is_a_skip(tmp_path: Path, none: str) -> None:
    """What Slurm writes for a job without GPUs promises none; seeds' file of a skip is there too."""
    done = python(
        "check", tmp_path, torch=NO_CUDA, CUDA_VISIBLE_DEVICES=none, SLURM_GPUS_ON_NODE="0"
    )

    assert (done.code, done.last) == (77, "[RESULT] SKIP: no GPU was asked for, and there is none")
    skipped = json.loads((tmp_path / "gpu_tests_skipped.json").read_text())
    assert skipped == {"skipped": True, "reason": "no_gpu"}


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--skip-exit-code", "0"], 0), (["--require-gpu"], 1), (["--device", "cuda"], 1)],
)
def test_what_a_skip_ends_with(tmp_path: Path, words: list[str], code: int) -> None:
    """As asked for; and no skip where a GPU is a must."""
    assert python("check", tmp_path, *words, torch=NO_CUDA).code == code


def test_fake_gpus_are_said_to_be_fake(launch: Launcher, tmp_path: Path) -> None:
    """In the sandbox the CPU is tested, and the verdict says so; no pass where a GPU is a must."""
    words = ["--quick", "--size", "64", "--dtypes", "fp32"]
    done = launch("check", tmp_path, *words, RV_GPUS="2", RV_FAKE_GPUS="1")

    assert (done.code, done.last) == (
        0,
        "[RESULT] PASS: the CPU: environment, devices as promised, exact matmul and its rate; on a CPU no speed is judged; without device: sandbox: 2 fake GPU(s), checked on CPU",
    )
    for must in (["--require-gpu"], ["--device", "cuda"]):
        done = launch("check", tmp_path, *words, *must, RV_GPUS="2", RV_FAKE_GPUS="1")
        assert (done.code, done.last) == (1, "[RESULT] FAIL: sandbox: 2 fake GPU(s), no real one")


@pytest.mark.parametrize("folder", ["/dev/null/x", "/proc/nowhere"])
def test_unwritable_report_folder_is_an_error(
    launch: Launcher, tmp_path: Path, folder: str
) -> None:
    """Found before the work, and with nothing left of it elsewhere."""
    done = launch("train", tmp_path, "--device", "cpu", "--report-dir", folder)

    assert done.code == 99
    assert done.last.startswith("[RESULT] ERROR: no result written: ")
    assert "[TRAIN]" not in done.out


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--size", "0"],
        ["check", "--size", "65"],
        ["check", "--dtypes", "fp12"],
        ["check", "--shapes", "4x4"],
        ["check", "--inject", "nonsense"],
        ["check", "--inject", "wrong-product:dtype"],
        ["check", "--timeout", "0"],
        ["check", "--report-name", "../x"],
        ["train", "--batch-size", "-1"],
        ["train_fsdp", "--steps", "0"],
        ["dataload", "--workers", "-1"],
        ["dataload", "--workers", "many"],
        ["dataload", "--workers", "0,99999"],
    ],
    ids=" ".join,
)
def test_wrong_flags_are_usage_errors(tmp_path: Path, words: list[str]) -> None:
    """Exit code 2 is for what was typed; the last line says what."""
    done = python(words[0], tmp_path, *words[1:], torch=HIDDEN)

    assert done.code == 2
    assert "error: " in done.err.splitlines()[-1]
    assert not list(tmp_path.glob("*.json"))


def test_more_workers_than_cpus_is_a_warning(launch: Launcher, tmp_path: Path) -> None:
    """They run, and wait for each other."""
    many = str(len(os.sched_getaffinity(0)) + 1)
    words = ["--quick", "--samples", "8", "--work-ms", "0.1", "--workers", f"0,{many}"]

    done = launch("dataload", tmp_path, *words)

    assert done.code == 0
    assert done.test("dataload.cpus")["code"] == "too_many_workers"


def test_rank_that_never_joins_is_named(tmp_path: Path) -> None:
    """Under the real torchrun: by rank and host, within the timeout, with no process left."""
    pytest.importorskip("torch")
    words = ["--device", "cpu", "--timeout", "20", "--inject", "drop-rank:rank=1"]

    done = torchrun("train", tmp_path, *words)

    assert done.code != 0
    assert done.test("ranks")["code"] == "rank_missing"
    host = done.test("ranks")["host"]
    assert done.test("ranks")["reason"].startswith(f"rank 1 on {host} did not join within ")
    assert done.result["summary"]["exit_code"] == 1
    assert not _left(tmp_path)


def test_what_hangs_ends_at_the_timeout(tmp_path: Path) -> None:
    """With 124 and a result, also alone."""
    pytest.importorskip("torch")
    words = ["--device", "cpu", "--timeout", "15", "--inject", "hang"]

    done = python("train", tmp_path, *words)

    assert done.code == 124
    assert done.last.startswith("[RESULT] ERROR: ")
    assert done.last.endswith(": not done after 15 s")
    assert done.result["summary"]["exit_code"] == 124
    assert not _left(tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_what_is_interrupted_leaves_a_result(tmp_path: Path, number: int, code: int) -> None:
    """Slurm's TERM and Ctrl-C: what was found so far is written, and it is no pass."""
    pytest.importorskip("torch")
    argv = [sys.executable, str(PAYLOADS / "train.py"), "--device", "cpu", "--epochs", "100000"]
    # A shell starts what runs in the background with Ctrl-C ignored; a terminal does not.
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with (tmp_path / "out.0").open("w") as out:
        started = subprocess.Popen(
            argv,
            env=ONLY,
            cwd=tmp_path,
            stdout=out,
            preexec_fn=heeding,  # noqa: PLW1509
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while "[DDP]" not in (tmp_path / "out.0").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        started.send_signal(number)
        assert started.wait(PATIENCE) == code
    finally:
        started.kill()
        started.wait()
    summary = json.loads((tmp_path / "train_result.json").read_text())["summary"]
    assert (summary["status"], summary["codes"]) == ("ERROR", ["interrupted"])


def test_result_goes_to_stdout_alone(launch: Launcher, tmp_path: Path) -> None:
    """`--json -` is for programs."""
    words = ["--device", "cpu", "--quick", "--size", "64", "--dtypes", "fp32", "--json", "-"]
    done = launch("check", tmp_path, *words)

    assert json.loads(done.out) == done.result
    assert "[RESULT] PASS" in done.err


def _left(folder: Path) -> list[str]:
    """Processes that still work there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found
