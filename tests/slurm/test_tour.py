"""docs/tour.md: its commands, typed one after another by who has a checkout and nothing else."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SHOWS = {
    "rv up --gpu 2 --time 10m --dry-run": "sbatch -p ",
    "rv run --gpu 2 --time 10m -- python3 examples/what_i_got.py": "GPU",
    "rv logs -f count": "step 3",
    "rv ps -a": "count",
    "rv explain late": "h200",
    "rv run --checkpoint --time 1h --gpu 1 -- python3 examples/resume.py 3": "",
    "rv run check.py --mig": "[RESULT] PASS",
    "rv accept history": "check",
}
"""What a command's output must have in it, where its exit code alone says too little."""


def commands() -> list[str]:
    """Every line of a block that is typed, but the one that activates an environment."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "tour.md").read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if not line.startswith("source ")]


def test_what_is_shown_is_typed() -> None:
    """A command that left the tour leaves the table too."""
    assert set(SHOWS) <= set(commands())


def test_every_command_does_what_the_tour_says(tmp_path: Path, sandbox_home: Path) -> None:
    """Each ends with 0, in their order, on a cluster that the first one made."""
    folders = ("RV_RACE_ROOT", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    environment = {
        **{key: value for key, value in os.environ.items() if key != "RV_CLUSTER"},
        **{key: str(tmp_path / key.lower()) for key in folders},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    try:
        for line in commands():
            done = subprocess.run(
                ["bash", "-c", line], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=240,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            assert SHOWS.get(line, "") in done.stdout, f"{line}\n{done.stdout}{done.stderr}"
    finally:
        subprocess.run(["bash", "-c", "rv sandbox down"], env=environment, capture_output=True)
