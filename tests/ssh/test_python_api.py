"""`import rv` on a laptop: the cluster is behind a login node."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ssh.conftest import Laptop

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, concurrent.futures, os, sys
import rv

def where(number):
    print("number", number)
    return number, os.environ.get("ONLY_ON_THE_CLUSTER"), "ONLY_ON_THE_LAPTOP" in os.environ

race = rv.launch("echo $PWD; cat given.txt", gpus=1, time="5m")
assert race.result(60).endswith("from the laptop\\n"), race.result()
assert rv.Race(race.id).exit_code == 0

executor = rv.Executor("logs", python=sys.argv[1])
executor.update_parameters(timeout_min=5, cpus_per_task=1, mem_gb=1)
jobs = executor.map_array(where, range(3))
assert [job.result(60) for job in jobs] == [(n, "yes", False) for n in range(3)]
assert jobs[1].stdout() == "number 1\\n"
assert str(jobs[0].paths.stdout).startswith(jobs[0].race.directory)
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert len(set(pool.map(lambda job: job.state, jobs * 4))) == 1
assert asyncio.run(jobs[2].awaitable().result()) == jobs[2].future().result(60)
if not os.fork():
    code = 1
    try:
        code = 0 if rv.Job("logs", jobs[0].job_id).result()[0] == 0 else 2
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
assert rv.launch("echo after a fork", gpus=0).result(60) == "after a fork\\n"
assert not os.path.exists("logs")
"""


@pytest.mark.parametrize("ssh", ["openssh", "paramiko"])
def test_races_and_functions_go_over_ssh(laptop: Laptop, ssh: str) -> None:
    """With the folder's code; results come back, and nothing is left here."""
    laptop = replace(laptop, ssh=ssh)
    project = laptop.home / "project"
    project.mkdir()
    (project / "given.txt").write_text("from the laptop\n")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    python = f"PYTHONPATH={ROOT} {sys.executable}"
    done = subprocess.run(
        # From 3.12 on Python warns of a fork beside threads, of which a connection has some.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, python],
        cwd=project,
        env=laptop.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
