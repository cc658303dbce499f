"""Programs of this machine that have nothing to do with a cluster, such as git."""

import os
import subprocess
from collections.abc import Sequence

from rv.errors import ErrorKind, RvError


def output_of(command: Sequence[str]) -> bytes:
    """Run a program and return its output. Raises `RvError(CONFIG)` where it cannot or fails."""
    try:
        done = subprocess.run(
            list(command), stdin=subprocess.DEVNULL, capture_output=True, check=False,
            env={**os.environ, "LC_ALL": "C"},  # what it fails with is read
        )  # fmt: skip
    except OSError as error:
        why = error.strerror or "it cannot be started"
        raise RvError(
            ErrorKind.CONFIG, f"{command[0]}: {why}", hint=f"install {command[0]}"
        ) from error
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it failed"]
        raise RvError(
            ErrorKind.CONFIG, f"{command[0]}: {lines[0]}", hint=f"try: {' '.join(command)}"
        )
    return done.stdout
