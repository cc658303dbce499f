"""check.py and the examples as jobs run them: programs with an environment and an exit code."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "rv" / "payloads" / "check.py"
EXAMPLES = ROOT / "examples"
ONLY = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": ""}


def python(
    *words: object, torch: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a script in an environment of nothing but `env`; `torch` is a folder that hides torch."""
    variables = {**ONLY, **({"PYTHONPATH": str(torch)} if torch else {}), **env}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)


def last(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.splitlines()[-1]


@pytest.fixture
def no_torch(tmp_path: Path) -> Path:
    """A folder whose `torch` cannot be imported."""
    (tmp_path / "torch.py").write_text("raise ImportError('torch is hidden')\n")
    return tmp_path


def result(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "check_result.json").read_text())
    return loaded


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {test["name"]: test["status"] for test in report["tests"]}


def test_check_passes_on_a_cpu_and_writes_its_result(tmp_path: Path) -> None:
    """Without GPUs and without a promise of any, the CPU's product is checked exactly and timed."""
    pytest.importorskip("torch")

    done = python(CHECK, "--quick", RV_OUTPUT_DIR=str(tmp_path / "out"), OMP_NUM_THREADS="1")

    assert (done.returncode, last(done), done.stderr) == (0, "[RESULT] PASS", "")
    report = result(tmp_path / "out")
    assert report["schema"] == "rv.accept/1"
    assert report["summary"]["status"] == "PASS"
    assert report["env"]["vars"]["OMP_NUM_THREADS"] == "1"
    assert {"environment", "device", "matmul.float32", "matmul.float64"} == set(statuses(report))
    assert report["tests"][2]["metrics"][0]["value"] > 0
    assert [tmp_path / "out" / "check_result.json"] == list((tmp_path / "out").iterdir())


def test_one_wrong_element_is_seen(tmp_path: Path) -> None:
    """An injected error in one element of the product fails the check and is named."""
    pytest.importorskip("torch")

    done = python(CHECK, "--size", 64, "--inject", "wrong-product", "--report-dir", tmp_path)

    assert 1 == done.returncode  # noqa: SIM300
    assert last(done).startswith("[RESULT] FAIL: cpu float32: 1 wrong elements, first [1, 2] = ")
    assert result(tmp_path)["tests"][2]["code"] == "wrong_result"


@pytest.mark.parametrize(
    "promise", [{"RV_GPUS": "2"}, {"SLURM_JOB_GPUS": "0,1"}, {"CUDA_VISIBLE_DEVICES": "90,91"}]
)
def test_promised_gpu_that_is_invisible_fails(tmp_path: Path, promise: dict[str, str]) -> None:
    """A GPU that Slurm gave and torch does not see is a failure, never a run on the CPU."""
    pytest.importorskip("torch")

    done = python(CHECK, "--report-dir", tmp_path, **{"CUDA_VISIBLE_DEVICES": "90", **promise})

    assert done.returncode == 1
    assert last(done).startswith("[RESULT] FAIL: torch sees 0 of 2 promised GPU(s)")
    assert "[COMPUTE]" not in done.stdout
    assert result(tmp_path)["tests"][1]["code"] == "gpu_not_visible"


@pytest.mark.parametrize("none", ["", "-1", "NoDevFiles"])
def test_no_gpu_ids_are_no_promise(no_torch: Path, none: str) -> None:
    """What Slurm writes for a job without GPUs promises none."""
    done = python(CHECK, torch=no_torch, CUDA_VISIBLE_DEVICES=none, SLURM_GPUS_ON_NODE="0")

    assert done.returncode == 0


def test_fake_gpus_are_checked_on_the_cpu_and_said_so(tmp_path: Path) -> None:
    """In the sandbox the check passes with a warning that names the fake GPUs."""
    pytest.importorskip("torch")

    done = python(CHECK, "--quick", "--report-dir", tmp_path, RV_GPUS="2", RV_FAKE_GPUS="1")

    assert done.returncode == 0
    assert last(done) == "[RESULT] PASS with a warning: sandbox: 2 fake GPU(s), checked on CPU"
    assert "[ENV] *** sandbox: 2 fake GPU(s), checked on CPU ***" in done.stdout
    assert statuses(result(tmp_path))["matmul.float32"] == "PASS"


def test_without_torch_the_result_says_what_was_not_checked(no_torch: Path) -> None:
    """Where no GPU was promised Python's own product is checked, and it is no plain PASS."""
    done = python(CHECK, "--report-dir", no_torch, torch=no_torch)

    assert done.returncode == 0
    assert last(done).startswith("[RESULT] PASS with a warning: no torch (torch is hidden): only")
    assert result(no_torch)["summary"]["status"] == "WARN"


def test_without_torch_a_wrong_product_is_seen_too(no_torch: Path) -> None:
    """Python's own product is really compared."""
    done = python(CHECK, "--inject", "wrong-product", torch=no_torch)

    assert (
        done.returncode,
        last(done),
    ) == (1, "[RESULT] FAIL: Python's product of integers is wrong")


def test_promised_gpu_without_torch_is_an_error(no_torch: Path) -> None:
    """What could not be checked is an ERROR, never a PASS."""
    done = python(CHECK, "--report-dir", no_torch, torch=no_torch, RV_GPUS="1")

    assert done.returncode == 99
    assert last(done) == "[RESULT] ERROR: 1 GPU(s) given but no torch: torch is hidden"
    assert result(no_torch)["summary"]["errors"] == 1


def test_result_that_cannot_be_written_is_an_error(no_torch: Path) -> None:
    """A verdict that would be lost is not a PASS."""
    done = python(CHECK, "--report-dir", no_torch / "torch.py", torch=no_torch)

    assert done.returncode == 99
    assert last(done).startswith("[RESULT] ERROR: no result written: ")


def test_ranks_write_results_of_their_own(no_torch: Path) -> None:
    """Under torchrun no rank overwrites another's result."""
    for rank in ("0", "1"):
        python(CHECK, "--report-dir", no_torch, torch=no_torch, RANK=rank, WORLD_SIZE="2")

    names = sorted(path.name for path in no_torch.glob("*.json"))
    assert names == ["check_result.rank0.json", "check_result.rank1.json"]


@pytest.mark.parametrize("words", [["--size", "0"], ["--inject", "x"], ["--nonsense"]])
def test_wrong_flags_are_usage_errors(words: list[str]) -> None:
    """Exit code 2 is for what was typed."""
    assert python(CHECK, *words).returncode == 2


def test_payloads_never_import_rv() -> None:
    """They run under the cluster's python, where there is no rv."""
    for path in (ROOT / "rv" / "payloads").glob("*.py"):
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.lstrip().startswith(("import rv", "from rv"))]


def test_what_i_got_names_the_job_and_its_variables() -> None:
    """The quickstart's script prints the job, and the variables that rv and torchrun use."""
    done = python(EXAMPLES / "what_i_got.py", SLURM_JOB_ID="17", RV_RACE="r1", PET_NNODES="2")

    assert (done.returncode, done.stderr) == (0, "")
    shown = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (shown["SLURM_JOB_ID"], shown["RV_RACE"], shown["PET_NNODES"]) == ("17", "r1", "2")


def test_what_i_got_survives_a_broken_nvidia_smi(tmp_path: Path) -> None:
    """An error of the driver is shown, not raised."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho broken >&2\nexit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)

    done = python(EXAMPLES / "what_i_got.py", PATH=f"{tmp_path}:{ONLY['PATH']}")

    assert done.returncode == 0
    assert "broken" in done.stdout


@pytest.mark.parametrize("ranks", [1, 2])
def test_training_counts_every_rank(ranks: int) -> None:
    """`torchrun train.py` on CPU: each rank reports itself, is counted once, and the loss falls."""
    pytest.importorskip("torch")
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]

    done = python(*launcher, EXAMPLES / "train.py", OMP_NUM_THREADS="1")

    assert done.returncode == 0, done.stderr
    assert ranks == done.stdout.count(f"/{ranks} on ")
    assert f"[TRAIN] world={ranks} ranks counted={ranks} loss " in done.stdout


def test_training_runs_without_torchrun() -> None:
    """Plain python is a world of one, also where the job script left other variables behind."""
    pytest.importorskip("torch")

    done = python(EXAMPLES / "train.py", MASTER_ADDR="192.0.2.1", MASTER_PORT="1", NODE_RANK="1")

    assert done.returncode == 0, done.stderr
    assert "[TRAIN] world=1 ranks counted=1" in done.stdout


def test_check_runs_from_a_copied_folder(tmp_path: Path) -> None:
    """The payload folder runs where rv put it, with nothing else beside it."""
    pytest.importorskip("torch")
    shutil.copytree(CHECK.parent, tmp_path / "payloads")

    assert python(tmp_path / "payloads" / "check.py", "--size", 64).returncode == 0
