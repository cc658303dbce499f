"""Payloads as users run them by name, through `rv run` on a real Slurm: verdicts and exit codes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rv import sandbox
from tests.slurm.launching import Rv

SHORT = "--device cpu --epochs 1 --steps 10 --timeout 120"


@pytest.fixture
def rv(small: sandbox.Sandbox, tmp_path: Path) -> Rv:
    pytest.importorskip("torch")
    return Rv(box=small, home=tmp_path)


def result(rv: Rv, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((rv.last().directory / "results" / name).read_text())
    return loaded


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("check.py", 0),
        ("torchrun --nproc_per_node=2 check.py", 0),
        ("check.py --skip-exit-code 77", 77),
        ("python -c 'raise SystemExit(77)'", 77),
        ("python check.py; exit 3", 3),
        ("python check.py --device cpu --quick --dtypes fp32 --inject wrong-product | tee log", 1),
    ],
)
def test_a_skip_is_done_and_everything_else_is_what_it_is(rv: Rv, command: str, code: int) -> None:
    """A payload's SKIP is 0 also under torchrun, its FAIL is 1 in a pipe; a user's own code stays."""
    done = rv("run", command, "--gpu", "0", "--time", "5m")

    said = done.stdout + done.stderr
    assert done.returncode == code, said + rv.last().logs()
    assert rv.state()["state"] == ("FAILED" if code else "COMPLETED")
    if code == 0:
        assert "[RESULT] SKIP: no GPU was asked for, and there is none" in done.stdout
        assert "SKIP: no GPU was asked for" in done.stderr
        assert result(rv, "check_result.json")["summary"]["status"] == "SKIP"


def test_train_runs_by_name_on_two_ranks(rv: Rv) -> None:
    """With the sandbox's fake GPUs the CPU trains; the verdict is in the race's results."""
    done = rv("run", f"torchrun --nproc_per_node=2 train.py {SHORT}", "--gpu", "2", "--time", "5m")

    assert done.returncode == 0, done.stdout + done.stderr + rv.last().logs()
    assert "[TRAIN] cpu: world=2 ranks counted=2 loss " in done.stdout
    summary = result(rv, "train_result.json")["summary"]
    assert (summary["status"], summary["failed"], summary["errors"]) == ("PASS", 0, 0)


def test_an_error_under_torchrun_has_the_payloads_code(rv: Rv) -> None:
    """torchrun says 1 for everything; a run that was impossible is no failure of a node."""
    command = "torchrun --nproc_per_node=1 train_fsdp.py --device cpu --hf-model none/such"
    done = rv("run", command, "--gpu", "0", "--time", "5m")
    assert done.returncode == 99, done.stdout + done.stderr
    assert "[RESULT] ERROR: " in done.stdout


def test_races_share_one_copy_of_the_payloads(rv: Rv) -> None:
    """It lies beside their directories, whole again where a purge took a part of it away."""
    folders = set()
    for _ in range(2):
        done = rv("run", "check.py", "--gpu", "0", "--time", "5m")
        assert done.returncode == 0, done.stdout + done.stderr
        directory = rv.last().directory
        record = json.loads((directory / "race.json").read_text())
        folder = directory.parent / f".payloads-{os.geteuid()}" / record["payload_hash"]
        assert f"export RV_PAYLOADS={folder}\n" in (directory / "jobs" / "1.sh").read_text()
        assert not (directory / "payloads").exists()
        (folder / "_harness" / "main.py").unlink()
        folders.add(folder)
    assert list(folders.pop().parent.iterdir()) == [folder]
    assert rv("ps", "-a").returncode == 0
