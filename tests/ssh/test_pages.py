"""The commands of docs/from-a-laptop.md, typed on a laptop as they stand but for the login's name.

Those that are run elsewhere are in tests/data/not_typed.yaml, with the reason.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ssh.conftest import Laptop
from tests.ssh.server import HOST
from tests.ssh.test_init import user_file
from tests.ssh.test_launch import eventually
from tests.ssh.test_sync import git
from tests.typed_lines import LAPTOP, to_type

__all__ = ["user_file"]

LOGIN = "you@login.site"
BESIDE = ("rv attach -- nvidia-smi",)
"""Commands that need a race that runs."""
SAYS = {
    f"rv init {LOGIN}": "--gpu 1",
    'rv run --gpu 2 -o runs "python3 train.py"': "trained",
    "rv logs -f": "trained",
    "rv logs -f --tail 20": "trained",
    "rv sync pull": "fetched",
    "rv attach -- nvidia-smi": "NVIDIA",
}
"""What a command's output must have in it, where its exit code alone says too little."""


@pytest.fixture
def project(laptop: Laptop) -> Path:
    """A git work tree on the laptop whose program prints, and writes a result."""
    top = laptop.home / "project"
    top.mkdir()
    (top / "train.py").write_text(
        "from pathlib import Path\nPath('runs').mkdir(exist_ok=True)\nPath('runs/a').touch()\nprint('trained')\n"
    )
    git(top, "init", "-q", "-b", "main")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "first")
    return top


def test_every_command_of_the_page_does_what_it_says(
    laptop: Laptop, project: Path, user_file: Path, tmp_path: Path
) -> None:
    """Each ends with 0, in their order, and says what it should."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "rv").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rv "$@"\n')
    (programs / "rv").chmod(0o755)
    path = f"{programs}:{laptop.environment['PATH']}"

    def types(line: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-c", line.replace(LOGIN, HOST)], cwd=project, text=True, timeout=120,
            env={**laptop.environment, "PATH": path}, stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip

    for line in to_type(LAPTOP):
        if line in BESIDE:
            assert types("rv run -d --gpu 1 --time 5m 'sleep 300'").returncode == 0
            eventually(lambda: "RUNNING" in types("rv ps").stdout)
        done = types(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert SAYS.get(line, "") in done.stdout + done.stderr, (
            f"{line}\n{done.stdout}{done.stderr}"
        )
    types("rv stop --all")
