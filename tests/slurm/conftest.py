"""Real Slurm clusters for the tests, in folders of their own.

`small` and `campus` come up once a session. `on_small` and `on_campus` also point SLURM_CONF at
them, for code and `rv` processes that find their cluster as a user's would. `fresh_sandbox` makes
clusters that a test may break.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rv import sandbox
from tests.slurm.launching import end_login_nodes
from tests.ssh.login_node import OVER

NO_CLUSTER = "a-test-that-is-not-over-ssh"
FOREIGN = ("SLURM", "SBATCH_", "SALLOC_", "SQUEUE_", "SINFO_", "SACCT")


@pytest.fixture(scope="session")
def sandbox_home() -> Iterator[Path]:
    """The state, cache and config folders of the session; short, for the sake of sockets."""
    home = Path(tempfile.mkdtemp(prefix="rvt-", dir="/tmp"))
    home.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("STATE", "CACHE", "CONFIG", "DATA"):
            (home / kind.lower()).mkdir()
            patch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
        for key in [key for key in os.environ if key.startswith(FOREIGN)]:
            patch.delenv(key)
        if OVER:  # for rv that is not called through a login node, and would be found out here
            patch.setenv("RV_CLUSTER", NO_CLUSTER)
        yield home
        end_login_nodes()
        for box in sandbox.list_all():
            sandbox.down(box.name)
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def small(sandbox_home: Path) -> sandbox.Sandbox:
    """Four nodes, one partition, two GPU models."""
    return sandbox.up("small", "small")


@pytest.fixture(scope="session")
def campus(sandbox_home: Path) -> sandbox.Sandbox:
    """The findings' cluster."""
    return sandbox.up("campus", "campus")


@pytest.fixture
def on_small(small: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch) -> sandbox.Sandbox:
    """`small`, with SLURM_CONF pointing at it."""
    monkeypatch.setenv("SLURM_CONF", str(small.slurm_conf))
    return small


@pytest.fixture
def on_campus(campus: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch) -> sandbox.Sandbox:
    """`campus`, with SLURM_CONF pointing at it."""
    monkeypatch.setenv("SLURM_CONF", str(campus.slurm_conf))
    return campus


@pytest.fixture
def fresh_sandbox(sandbox_home: Path, tmp_path: Path) -> Iterator[Callable[..., sandbox.Sandbox]]:
    """Make sandboxes for one test: `fresh_sandbox("small")`, a file, or a dict as in the YAML."""
    made: list[str] = []

    def make(
        profile: str | Path | dict[str, object] = "small", *, users: tuple[str, ...] = ()
    ) -> sandbox.Sandbox:
        name = f"t{os.getpid()}-{len(made)}"
        if isinstance(profile, dict):
            path = tmp_path / f"{name}.yaml"
            path.write_text(yaml.safe_dump(profile), encoding="utf-8")
            profile = path
        made.append(name)
        return sandbox.up(name, profile, users=users)

    yield make
    for name in made:
        sandbox.down(name)


@pytest.fixture(scope="session")
def slurm() -> Callable[..., str]:
    """Run a Slurm command on a sandbox and return what it printed."""

    def run(box: sandbox.Sandbox, *argv: str, check: bool = True) -> str:
        env = os.environ | {"SLURM_CONF": str(box.slurm_conf)}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
        assert not check or done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout if check else done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Any]:
    """Wait for a condition, asking for half of the time at most, and return what it was at last.

    A test that asks once more may get another answer.
    """

    def wait(condition: Callable[[], Any], timeout: float = 30) -> Any:
        deadline = asked = time.monotonic()
        deadline += timeout
        while not (last := condition()):
            now = time.monotonic()
            assert now < deadline, f"not within {timeout} s; last seen: {last!r}"
            time.sleep(max(0.05, now - asked))
            asked = time.monotonic()
        return last

    return wait


@pytest.fixture
def run_job(slurm: Callable[..., str], tmp_path: Path) -> Callable[..., str]:
    """Run a script as a job on a sandbox, wait for its end and return its output."""
    count = 0

    def run(box: sandbox.Sandbox, script: str, *options: str) -> str:
        nonlocal count
        count += 1
        out = tmp_path / f"job{count}.out"
        path = tmp_path / f"job{count}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        slurm(box, "sbatch", "--wait", "-o", str(out), *options, str(path), check=False)
        return out.read_text(encoding="utf-8")

    return run
