"""A Jupyter whose client is gone: it ends when it is idle, and not before."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rv.workflow.jupyter import jupyter_command
from tests.slurm.test_forward import STAND_IN

LEASE_S = 4


@pytest.fixture
def jupyter(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """One in a race directory, with a lease of four seconds; `in-use` there says whether it is."""
    shutil.copy(STAND_IN, tmp_path / "jupyter-program")
    (tmp_path / "bin").mkdir()
    (tmp_path / "jupyter-program").rename(tmp_path / "bin" / "jupyter")
    (tmp_path / "bin" / "jupyter").chmod(0o755)
    line = jupyter_command().line.replace("3600", str(LEASE_S))
    environment = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "RV_RACE_DIR": str(tmp_path),
        "RV_PYTHON": sys.executable,
        "JUPYTER_TOKEN": "secret",
        "SLURM_JOB_ID": "1",
        "IN_USE": str(tmp_path / "in-use"),
    }
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(["/bin/bash", "-c", line], env=environment, stderr=said)
    yield process
    process.kill()
    process.wait()


def held_for(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether it runs all that time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    return process.returncode is None


def test_an_idle_one_without_a_client_ends(
    jupyter: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    """The client was killed, or its machine crashed."""
    assert jupyter.wait(60) == -15
    assert "no client for 4 s" in (tmp_path / "said").read_text()


@pytest.mark.parametrize("use", ["cell", "browser", "terminal", "unknown"])
def test_one_in_use_goes_on(jupyter: "subprocess.Popen[bytes]", tmp_path: Path, use: str) -> None:
    """As a cell that runs while the laptop sleeps; when it is over, so is the Jupyter."""
    (tmp_path / "in-use").write_text(use)
    assert held_for(jupyter, 2 * LEASE_S)
    (tmp_path / "in-use").unlink()
    assert jupyter.wait(60) == -15


def test_one_with_a_client_goes_on(jupyter: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    """The client writes another word now and then."""
    deadline = time.monotonic() + 2 * LEASE_S
    while time.monotonic() < deadline:
        (tmp_path / "lease").write_text(str(time.monotonic()))
        assert held_for(jupyter, 0.2)
