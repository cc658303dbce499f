"""A program that is run with a limit, its output in a file, and nothing of it left behind."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import tree

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


def run(
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
    tree.adopt_orphans()
    before = {process.pid for process in tree.below(os.getpid())}
    with log.open("wb") as output, (errors or log).open("ab") as complaints:
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
        own = [process for process in tree.below(os.getpid()) if process.pid not in before]
        tree.end(own, GRACE)
        child.wait()
    return Outcome(child.returncode, time.monotonic() - start, timed_out)
