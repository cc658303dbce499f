"""What nvidia-smi tells of memory in use, and a file of its readings beside a run."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def used_memory() -> dict[str, int]:
    """Give MiB in use by GPU UUID; {} where nvidia-smi is absent or does not say."""
    words = ["nvidia-smi", "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = [line.split(", ") for line in asked.stdout.splitlines()]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


@contextlib.contextmanager
def telemetry(path: Path | None) -> Iterator[None]:
    """Let nvidia-smi write utilisation and memory once a second into a file, where it is there."""
    if path is None:
        yield
        return
    fields = "timestamp,index,utilization.gpu,memory.used"
    words: list[Any] = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv", "-l", "1"]
    with path.open("w") as file:
        try:
            recorder = subprocess.Popen(words, stdout=file, stderr=subprocess.DEVNULL)
        except OSError:
            yield
            return
        try:
            yield
        finally:
            recorder.kill()
            recorder.wait()
