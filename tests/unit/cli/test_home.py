"""`rv` alone: where things stand and three commands, each of which rv takes."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rv.slurm.cache import SnapshotCache

ROOT = Path(__file__).parents[3]
RACES = [
    {"race_id": "k3f9a2qd", "name": "train", "state": "runs", "command": "torchrun train.py"},
    {"race_id": "b7c1x0pz", "name": "", "state": "waits", "command": "python " + 60 * "x"},
    {"race_id": "c8c1x0pz", "name": "", "state": "over", "command": "python done.py"},
]


def rv_alone(home: Path, code: str = "", **changes: str) -> subprocess.CompletedProcess[str]:
    """Run `rv` in a home of its own, where no Slurm is on PATH, and some code at its end."""
    folders = {f"XDG_{kind}_HOME": str(home / kind) for kind in ("STATE", "CACHE", "CONFIG")}
    env = {"HOME": str(home), "PATH": str(home), "PYTHONPATH": str(ROOT), **folders}
    run = "import sys; sys.argv = ['rv']\nfrom rv.__main__ import main\n"
    text = f"{run}try: main()\nexcept SystemExit as end: assert end.code == 0\n{code}"
    return subprocess.run(
        [sys.executable, "-c", text], env=env | changes, cwd=home, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def following(text: str) -> list[str]:
    """The commands that it says to type next."""
    _, _, rows = text.partition("\nnext:\n")
    return [row.strip().partition("  ")[0] for row in rows.splitlines()]


def test_races_that_wait_or_run_and_what_to_do_about_them(tmp_path: Path) -> None:
    """Of a cluster that nobody could connect to, within 80 columns, and without typer."""
    cache = SnapshotCache(directory=tmp_path / "CACHE" / "rv", key="ssh:you@login.invalid")
    cache.store("races", json.dumps([race | {"submitted_at": time.time()} for race in RACES]), "")
    heavy = "print({'typer', 'rich', 'paramiko', 'rv.planner'} & set(sys.modules))"
    done = rv_alone(tmp_path, heavy, RV_CLUSTER="you@login.invalid")
    text, _, loaded = done.stdout.rstrip().rpartition("\n")
    assert (done.stderr, loaded) == ("", "set()")
    assert "cluster: Slurm behind you@login.invalid\n" in text
    assert re.search(r"^  k3f9a2qd  train  runs +\d+s  torchrun train.py$", text, re.MULTILINE)
    assert "b7c1x0pz" in text
    assert "c8c1x0pz" not in text
    assert following(text) == ["rv logs -f train", "rv explain b7c1x0pz", "rv ps"]
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.skipif(Path("/etc/slurm/slurm.conf").exists(), reason="this machine has a Slurm")
@pytest.mark.parametrize(
    ("cluster", "says", "first"),
    [
        ("", "cluster: none yet", "rv init you@login.site"),
        ("nonesuch", "no cluster 'nonesuch' is known", "rv init you@login.site"),
        ("sandbox:none", "rv sandbox up --name none", "rv init you@login.site"),
        ("you@login.invalid", "cluster: Slurm behind you@login.invalid", "rv status"),
    ],
)
def test_without_races(tmp_path: Path, cluster: str, says: str, first: str) -> None:
    """What is wrong is said with its remedy, and the code is 0 all the same."""
    done = rv_alone(tmp_path, RV_CLUSTER=cluster)
    assert (done.returncode, done.stderr) == (0, "")
    assert says in done.stdout
    assert following(done.stdout)[0] == first
    assert len(following(done.stdout)) == 3
    assert os.linesep + "next:" in done.stdout
