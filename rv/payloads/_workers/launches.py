"""Give a program all GPUs, one, some and none, and see whether it copes: four configurations."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from _harness.files import opened

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
    def ended(self) -> str:
        """How it ended, in words."""
        return "timeout" if self.code is None else f"code {self.code}"

    def lines(self, words: re.Pattern[str]) -> list[str]:
        """Return the first lines of its output with one of these words."""
        return [line for line in self.output.splitlines() if words.search(line)][:SHOWN]

    def as_json(self) -> dict[str, Any]:
        """Return what a result file has of it."""
        return {
            "name": self.name, "command": self.command, "code": self.code, "seconds": self.seconds,
            "gpu_lines": self.lines(GPU_WORDS), "error_lines": self.lines(ERROR_WORDS),
        }  # fmt: skip


def configurations(count: int) -> dict[str, str | None]:
    """Name what is tried with so many GPUs: the ids it is given, None for the CPU."""
    ids = [str(number) for number in range(count)]
    tried: dict[str, str | None] = {"Single GPU": "0", "All GPUs": ",".join(ids), "Force CPU": None}
    if count > 1:
        tried["Subset GPUs"] = ",".join(ids[:2])
    return tried


def command(template: str, ids: str | None) -> list[str]:
    """Fill in `{gpu_ids}`; for the CPU the option it belongs to becomes --force_cpu."""
    words = shlex.split(template)
    if ids is not None:
        return [word.replace("{gpu_ids}", ids) for word in words]
    argv: list[str] = []
    for word in words:
        if "{gpu_ids}" not in word:
            argv.append(word)
            continue
        if word == "{gpu_ids}" and argv and argv[-1].startswith("-"):
            argv.pop()
        argv.append("--force_cpu")
    return argv


@dataclass(frozen=True)
class Configuration:
    """One way to start the program; `cpu` hides every GPU from it."""

    name: str
    command: list[str]
    cpu: bool


def launch(group: list[Configuration], timeout: float) -> list[Launched]:
    """Run these at the same time; they and all that they started are ended when it is over."""
    start_s = time.monotonic()
    begun: list[subprocess.Popen[str] | OSError] = []
    try:
        begun.extend(map(_begin, group))
        return [
            _finish(one, process, start_s, timeout)
            for one, process in zip(group, begun, strict=True)
        ]
    finally:
        for process in begun:
            if not isinstance(process, OSError):
                _end(process)


def _begin(one: Configuration) -> subprocess.Popen[str] | OSError:
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if one.cpu else {})
    try:
        return subprocess.Popen(
            one.command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return error


def _finish(
    one: Configuration, process: subprocess.Popen[str] | OSError, start_s: float, timeout: float
) -> Launched:
    """Wait for one, and for what it prints; its seconds end where that was seen."""
    if isinstance(process, OSError):
        return Launched(one.name, one.command, 127, 0.0, f"error: {process}")
    try:
        left_s = max(0.0, start_s + timeout - time.monotonic())
        output, _ = process.communicate(timeout=left_s)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        _end(process)
        output, code = process.communicate()[0], None
    return Launched(one.name, one.command, code, time.monotonic() - start_s, output)


def _end(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def write_log(path: Path, failed: list[Launched]) -> None:
    """Keep the whole output of launches that failed."""
    with opened(path) as log:
        for one in failed:
            code = "timeout" if one.code is None else one.code
            log.write(f"== {one.name}: {shlex.join(one.command)}: {code}\n{one.output}\n")
