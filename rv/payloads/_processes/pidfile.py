"""A program that goes on in the background, and the file by which it is found and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from . import identity
from .identity import Identity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class NotStopped(Exception):  # noqa: N818 - an outcome, told to the user
    """There was nothing to stop, or it did not stop."""


def detach(command: Sequence[str], pid_file: Path, log: Path) -> Identity:
    """Start a program that outlives this one, and note who it is.

    It stays in this session and process group, so that the end of a job's step is its end too, and
    ignores the hang-up of a terminal. Raises NotStopped while an earlier one runs, OSError.
    """
    earlier = read(pid_file)
    if earlier and identity.alive(earlier):
        raise NotStopped(f"already running as process {earlier.pid}, see {pid_file}")
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    signal.signal(signal.SIGHUP, handler)
    known = identity.of(child.pid)
    if known is None:
        raise NotStopped(f"it ended at once, see {log}")
    draft = pid_file.with_name(f".{pid_file.name}.{os.getpid()}")
    draft.write_text(json.dumps(asdict(known)))
    draft.replace(pid_file)
    return known


def read(pid_file: Path) -> Identity | None:
    """Read who was started; None for a file that is absent or not one of these."""
    try:
        noted = json.loads(pid_file.read_text())
        return Identity(int(noted["pid"]), int(noted["start"]), str(noted["boot"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def stop(pid_file: Path, patience: float = 30.0) -> Identity:
    """Stop what was started, and wait for its end: TERM, and KILL when the patience is over.

    Its number alone proves nothing: it may have been given to a stranger since. The process is held
    by a descriptor before its start time is compared, so that no stranger can slip in between.
    Raises NotStopped where it does not run any more.
    """
    noted = read(pid_file)
    if noted is None:
        raise NotStopped(f"{pid_file} names no process")
    try:
        held = os.pidfd_open(noted.pid)
    except ProcessLookupError:
        held = -1
    try:
        if held < 0 or identity.of(noted.pid) != noted:
            pid_file.unlink(missing_ok=True)
            raise NotStopped(f"process {noted.pid} ended before, or its number is another's now")
        signal.pidfd_send_signal(held, signal.SIGTERM)
        if not _ended(noted, patience):
            signal.pidfd_send_signal(held, signal.SIGKILL)
            _ended(noted, patience)
    finally:
        if held >= 0:
            os.close(held)
    pid_file.unlink(missing_ok=True)
    return noted


def _ended(noted: Identity, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while identity.alive(noted):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
