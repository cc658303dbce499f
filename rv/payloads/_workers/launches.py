"""Give a program all GPUs, one, some and none, and see whether it copes: four configurations."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SHOWN = 10
GPU_WORDS = re.compile("gpu|cuda|device", re.IGNORECASE)
ERROR_WORDS = re.compile("error|exception|traceback|failed|deadlock|out of memory", re.IGNORECASE)


@dataclass(frozen=True)
class Launched:
    """How one configuration went: `code` is None where it had to be ended."""

    name: str
    command: list[str]
    code: int | None
    seconds: float
    output: str

    @property
    def passed(self) -> bool:
        """Say whether it ended by itself, with 0."""
        return self.code == 0

    @property
    def gpu_lines(self) -> list[str]:
        """Give the first lines that speak of GPUs."""
        return [line for line in self.output.splitlines() if GPU_WORDS.search(line)][:SHOWN]

    @property
    def error_lines(self) -> list[str]:
        """Give the first lines that speak of errors."""
        return [line for line in self.output.splitlines() if ERROR_WORDS.search(line)][:SHOWN]


def configurations(count: int) -> dict[str, str | None]:
    """Name what is tried with so many GPUs: the ids it is given, None for the CPU."""
    ids = [str(number) for number in range(count)]
    made: dict[str, str | None] = {
        "Single GPU": "0",
        "All GPUs": ",".join(ids),
        "Force CPU": None,
    }
    if count > 1:
        made["Subset GPUs"] = ",".join(ids[:2])
    return made


def command(template: str, ids: str | None) -> list[str]:
    """Fill in `{gpu_ids}`; for the CPU the option it belongs to becomes --force_cpu."""
    words = shlex.split(template)
    if ids is not None:
        return [word.replace("{gpu_ids}", ids) for word in words]
    made: list[str] = []
    for word in words:
        if "{gpu_ids}" not in word:
            made.append(word)
            continue
        if word == "{gpu_ids}" and made and made[-1].startswith("-"):
            made.pop()
        made.append("--force_cpu")
    return made


def launch(name: str, argv: list[str], timeout: float, *, cpu: bool) -> Launched:
    """Run one configuration; it and all it started are ended when its time is over."""
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if cpu else {})
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return Launched(name, argv, 127, 0.0, f"error: {error}")
    try:
        output, _ = process.communicate(timeout=timeout)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        _end(process)
        output, code = process.communicate()[0], None
    finally:
        _end(process)
    return Launched(name, argv, code, time.monotonic() - start, output)


def _end(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def write_log(path: Path, launched: list[Launched]) -> None:
    """Keep the whole output of those that failed."""
    with path.open("w", encoding="utf-8") as log:
        for one in launched:
            if not one.passed:
                code = "timeout" if one.code is None else one.code
                log.write(f"== {one.name}: {shlex.join(one.command)}: {code}\n{one.output}\n")
