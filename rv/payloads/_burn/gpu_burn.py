"""Running gpu-burn: with a limit, its text kept in a file and judged from there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from _processes import programs

from .output import Burn, Gpu, judge, parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _harness.report import Report
    from _telemetry import Sampler

ENDING = 120.0  # seconds over its time: it gives its own processes 30 to end
TAIL = 2000  # characters of its text that go into the result


class Period:
    """The time in which gpu-burn burns: it prepares before, and waits half a minute after."""

    def __init__(self, sampler: Sampler | None, log: Path, seconds: float) -> None:
        self._sampler, self._log, self._seconds = sampler, log, seconds
        self._start, self._burning = time.monotonic(), False

    def follow(self) -> None:
        """Let the sampler count from the first progress until its time is over."""
        if self._sampler is None:
            return
        if not self._burning and self._log.exists() and b"proc'd" in self._log.read_bytes():
            self._burning = True
            self._sampler.restart()
        if time.monotonic() - self._start > self._seconds:
            self._sampler.freeze()


def burn(
    program: Path, seconds: float, memory: float, log: Path, watch: Callable[[], object]
) -> tuple[Burn, bool]:
    """Run it on all visible GPUs; give what it said, and whether it had to be ended.

    `memory` is a share up to 1, or bytes, as the flag has it.
    """
    amount = f"{memory:.0%}" if memory <= 1 else str(max(1, round(memory / 2**20)))
    command = [str(program), "-m", amount, str(max(1, round(seconds)))]
    ended = programs.run_limited(
        command, log=log, timeout=seconds + ENDING, cwd=program.parent, watch=watch
    )  # its kernel is read from the working directory
    return parse(log.read_text(errors="replace")), ended.timed_out


def add(report: Report, burned: Burn, devices: list[str], log: Path) -> None:
    """Add a test a GPU; the exit code is no part of it."""
    for device, verdict, gpu in zip(
        devices, judge(burned, len(devices)), _all(burned, len(devices)), strict=True
    ):
        details = {
            "products": gpu.products,
            "wrong_elements": gpu.errors,
            "gflops_last": gpu.rates[-1] if gpu.rates else None,
            "temp_max": gpu.hottest,
            "word": gpu.word,
            "text": log.read_text(errors="replace")[-TAIL:],
        }
        reason = f"{device}: {verdict.reason}" if verdict.reason else ""
        report.add(
            "stress.gpu_burn", verdict.status, code=verdict.code or "", reason=reason,
            device=device, details=details,
        )  # fmt: skip


def _all(burned: Burn, count: int) -> list[Gpu]:
    return [burned.gpu(index) for index in range(count)]
