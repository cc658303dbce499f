"""Which processes `rv sandbox down` ends."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rv.sandbox import daemons, ports, processes
from rv.sandbox.records import Record

Start = Callable[..., int]

# The daemon of a step, from Slurm 23.11 on: nothing in its environment, a session of its own, a
# socket in the spool, and the step's processes as its children.
STEP_DAEMON = """
import socket, subprocess, sys, time
socket = socket.socket(socket.AF_UNIX)
socket.bind(sys.argv[1])
socket.listen()
subprocess.run(["sleep", "600"], env={})
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process in a session of its own; it ends with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*argv: str, **env: str) -> int:
        running.append(subprocess.Popen(argv, env=env, start_new_session=True))
        return running[-1].pid

    yield begin
    for process in running:
        with contextlib.suppress(ProcessLookupError):  # the test may have ended all of it
            os.killpg(process.pid, 9)
        process.wait()


def pids(record: Record) -> set[int]:
    return {process.pid for process in daemons.all_processes(record)}


def test_the_daemon_of_a_step_is_found_by_its_socket(record: Record, start: Start) -> None:
    """It has no environment, and its step needs none."""
    spool = record.layout.spool / "v1"
    spool.mkdir()
    (spool / "cred_state").touch()
    path = spool / "v1_16.4294967291"
    daemon = start(sys.executable, "-c", STEP_DAEMON, str(path))
    assert processes.wait_until(lambda: ports.listener(str(path)) == daemon, timeout_s=10)
    assert processes.wait_until(lambda: len(pids(record)) == 2, timeout_s=10)
    assert daemon in pids(record)
    processes.end(daemons.all_processes(record))
    assert pids(record) == set()


@pytest.mark.skipif(os.getuid() != 0, reason="only root's sandboxes serve other users")
@pytest.mark.parametrize(
    ("user", "is_ended"), [("nobody", True), ("daemon", False), ("root", True)]
)
def test_the_mark_of_a_stranger_counts_for_nothing(
    record: Record, start: Start, user: str, is_ended: bool
) -> None:
    """Anybody can set a variable; only those who may submit have jobs here."""
    sleep = start("setpriv", f"--reuid={user}", "/bin/sleep", "600", RV_SANDBOX=record.identity)
    comm = Path(f"/proc/{sleep}/comm")
    assert processes.wait_until(lambda: comm.read_text() == "sleep\n", timeout_s=10)
    assert (sleep in pids(record)) == is_ended
