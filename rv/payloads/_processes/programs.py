"""Programs: run with a time limit, or detached and stopped by their pid file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from _harness.files import opened

from . import processes
from .processes import Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


TICK = 0.1  # seconds
GRACE = 3.0  # seconds to end after TERM


@dataclass(frozen=True)
class Outcome:
    """How a program ended; a code below zero is the signal that ended it."""

    returncode: int
    seconds: float
    timed_out: bool


def run_limited(
    command: Sequence[str],
    *,
    log: Path,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    errors: Path | None = None,
    watch: Callable[[], object] = lambda: None,
) -> Outcome:
    """Run a program to its end or for `timeout` seconds; `watch` is called again and again.

    Its output goes to a file, because a pipe that nobody reads stops the writer; what it says on
    stderr goes to `errors`, where given. It stays in this process group, so that what ends this
    ends it too. Raises OSError where it cannot be started.
    """
    start, timed_out = time.monotonic(), False
    processes.adopt_orphans()
    before = {process.pid for process in processes.below(os.getpid())}
    with opened(log, "wb") as output, opened(errors or log, "ab") as complaints:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, cwd=cwd, env=env,
            stderr=complaints if errors else subprocess.STDOUT,
        )  # fmt: skip
    try:
        while child.poll() is None and not timed_out:
            watch()
            time.sleep(TICK)
            timed_out = time.monotonic() - start > timeout
    finally:
        own = [process for process in processes.below(os.getpid()) if process.pid not in before]
        processes.end(own, GRACE)
        child.wait()
    return Outcome(child.returncode, time.monotonic() - start, timed_out)


class NotStopped(Exception):  # noqa: N818 - an outcome, told to the user
    """There was nothing to stop, or it did not stop."""


def detach(command: Sequence[str], pid_file: Path, log: Path) -> Identity:
    """Start a program that outlives this one, and write its identity to `pid_file`.

    It stays in this session and process group, so that the end of a job's step is its end too, and
    ignores the hang-up of a terminal. Raises NotStopped while an earlier one runs, OSError.
    """
    earlier = read_pid_file(pid_file)
    if earlier and processes.is_alive(earlier):
        raise NotStopped(f"already running as process {earlier.pid}, see {pid_file}")
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with opened(log, "ab") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    signal.signal(signal.SIGHUP, handler)
    identity = processes.identify(child.pid)
    if identity is None:
        raise NotStopped(f"it ended at once, see {log}")
    draft = pid_file.with_name(f".{pid_file.name}.{os.urandom(4).hex()}")
    with draft.open("x") as file:
        json.dump(asdict(identity), file)
    draft.replace(pid_file)
    return identity


def read_pid_file(pid_file: Path) -> Identity | None:
    """Read who was started; None for a file that is absent or not one of these."""
    try:
        noted = json.loads(pid_file.read_text())
        return Identity(int(noted["pid"]), int(noted["start"]), str(noted["boot"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def stop(pid_file: Path, patience_s: float = 30.0) -> Identity:
    """Stop what was started, and wait for its end: TERM, and KILL after `patience_s`.

    The process id may have been reused, so a pidfd is opened before start times are compared.
    Raises NotStopped where it does not run any more.
    """
    noted = read_pid_file(pid_file)
    if noted is None:
        raise NotStopped(f"{pid_file} names no process")
    try:
        held = os.pidfd_open(noted.pid)
    except ProcessLookupError:
        held = -1
    try:
        if held < 0 or processes.identify(noted.pid) != noted:
            pid_file.unlink(missing_ok=True)
            raise NotStopped(f"process {noted.pid} ended before, or its number is another's now")
        signal.pidfd_send_signal(held, signal.SIGTERM)
        if not _ended(noted, patience_s):
            signal.pidfd_send_signal(held, signal.SIGKILL)
            _ended(noted, patience_s)
    finally:
        if held >= 0:
            os.close(held)
    pid_file.unlink(missing_ok=True)
    return noted


def _ended(noted: Identity, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while processes.is_alive(noted):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
