"""Running gpu-burn, and judging its text: its exit code is 0 when GPUs are faulty.

Its last table says nothing either of a GPU that hung: no answer is no error there, so that a GPU
passes only when products were counted for it to the end.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from _processes import programs
from contract.schema import HIGHER, metric

from .verdicts import Rate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _harness.report import Report
    from _telemetry.sampler import Sampler

PROGRESS = re.compile(r"([\d.]+)%\s+proc'd:(.*?)\s+errors:(.*?)\s+temps:(.*?)(?:power:.*)?$")
COUNT = re.compile(r"(-?\d+) \((\d+) Gflop/s\)")
TABLE = re.compile(r"GPU (\d+): (OK|FAULTY)")
NO_START = re.compile(r"Couldn't init[^\n]*|No CUDA devices|Failure during compute[^\n]*")
HUNG_PERCENT = 25.0  # of the run without a new product
ENDING_S = 120.0  # over its time: it gives its own processes 30 to end
SIZE, DTYPE = 8192, "float32"  # of its products, without -d and -tc
TAIL = 2000  # characters of its text that go into the result

Verdict = tuple[str, str, str]  # status, code, reason


@dataclass
class Gpu:
    """What was printed of one GPU."""

    products: int = 0
    rates: list[int] = field(default_factory=list)  # Gflop/s, each change
    errors: int = 0
    died: bool = False
    moved_at: float = 0.0  # per cent of the run when the last product was counted
    hottest: int | None = None
    word: str | None = None  # of the last table: OK or FAULTY


@dataclass
class Burn:
    """What a whole run printed."""

    gpus: list[Gpu] = field(default_factory=list)
    elapsed: float = 0.0  # per cent
    trouble: str = ""
    whole: bool = False  # the last table was begun

    def gpu(self, index: int) -> Gpu:
        """Return the GPU of this number, a new one where it was not printed yet."""
        while len(self.gpus) <= index:
            self.gpus.append(Gpu())
        return self.gpus[index]


class Period:
    """The time in which gpu-burn burns: it prepares before, and waits half a minute after."""

    def __init__(self, sampler: Sampler | None, log: Path, seconds: float) -> None:
        self._sampler, self._log = sampler, log
        self._end_s, self._burning = time.monotonic() + seconds, False

    def follow(self) -> None:
        """Let the sampler count from the first progress until its time is over."""
        if self._sampler is None:
            return
        if not self._burning and self._log.exists() and b"proc'd" in self._log.read_bytes():
            self._burning = True
            self._sampler.restart()
        if time.monotonic() > self._end_s:
            self._sampler.freeze()


def burn(
    program: Path, seconds: float, memory: float, log: Path, watch: Callable[[], object]
) -> Burn:
    """Run it on all visible GPUs; return what it printed.

    `memory` is a share up to 1, or bytes, as the flag has it.
    """
    amount = f"{memory:.0%}" if memory <= 1 else str(max(1, round(memory / 2**20)))
    command = [str(program), "-m", amount, str(max(1, round(seconds)))]
    ended = programs.run_limited(
        command, log=log, timeout=seconds + ENDING_S, cwd=program.parent, watch=watch
    )  # its kernel is read from the working directory
    burned = parse(log.read_text(errors="replace"))
    if ended.timed_out:
        burned.whole, burned.elapsed = False, min(burned.elapsed, 99.0)
    return burned


def add(report: Report, burned: Burn, devices: list[str], log: Path) -> None:
    """Add a test a GPU; the exit code is no part of it."""
    tail = log.read_text(errors="replace")[-TAIL:]
    for index, (status, code, reason) in enumerate(judge(burned, len(devices))):
        gpu, device = burned.gpu(index), devices[index]
        details = {
            "size": SIZE,
            "dtype": DTYPE,
            "products": gpu.products,
            "wrong_elements": gpu.errors,
            "gflops_last": gpu.rates[-1] if gpu.rates else None,
            "temp_max": gpu.hottest,
            "word": gpu.word,
            "text": tail,
        }
        rates = [rate / 1000 for rate in steady(gpu)]
        metrics = [metric("tflops", rates, "TFLOPS", HIGHER, value=fmean(rates))] if rates else []
        report.add(
            "stress.gpu_burn", status, code=code, reason=f"{device}: {reason}" if reason else "",
            device=device, details=details, metrics=metrics,
        )  # fmt: skip


def steady(gpu: Gpu) -> list[int]:
    """Return a GPU's rates in Gflop/s without the first, in which it was still starting."""
    return gpu.rates[1:] or gpu.rates


def rates(burned: Burn, devices: list[str], models: dict[str, str]) -> list[Rate]:
    """Return what each GPU reached on average; one that did nothing is judged by itself."""
    reached = ((device, steady(burned.gpu(at))) for at, device in enumerate(devices))
    return [
        Rate(device, models.get(device, ""), SIZE, DTYPE, fmean(rates) / 1000)
        for device, rates in reached
        if rates
    ]


def parse(text: str) -> Burn:
    """Read everything that gpu-burn printed; lines end with a newline or a carriage return."""
    burned = Burn()
    for line in re.split(r"[\r\n]+", text):
        if progress := PROGRESS.search(line):
            _progress(burned, progress)
        elif row := TABLE.search(line):
            burned.gpu(int(row[1])).word = row[2]
        elif re.match(r"Tested (\d+) GPUs", line.strip()):
            burned.whole = True
        elif trouble := NO_START.search(line):
            burned.trouble = burned.trouble or trouble[0]
    return burned


def _progress(burned: Burn, line: re.Match[str]) -> None:
    burned.elapsed = float(line[1])
    for index, (count, rate) in enumerate(COUNT.findall(line[2])):
        gpu = burned.gpu(index)
        if int(count) > gpu.products:
            gpu.products, gpu.moved_at = int(count), burned.elapsed
            gpu.rates.append(int(rate))
        gpu.died |= int(count) < 0
    for index, errors in enumerate(line[3].split("- ")):  # "(WARNING!)- 0" too
        number = re.match(r"(-?\d+)", errors.strip())
        gpu = burned.gpu(index)
        gpu.died |= "DIED" in errors
        if number and int(number[1]) and not gpu.died:
            gpu.errors = max(gpu.errors, abs(int(number[1])))  # its counter runs over
    for index, heat in enumerate(re.findall(r"(\d+) C|--", line[4])):
        if heat:
            gpu = burned.gpu(index)
            gpu.hottest = max(gpu.hottest or 0, int(heat))


def judge(burned: Burn, expected: int) -> list[Verdict]:
    """Judge each GPU that was to be tested; all PASS only when each was seen working to the end."""
    worked = any(gpu.products for gpu in burned.gpus)
    if not burned.gpus or (burned.trouble and not worked):
        why = burned.trouble or "it printed no progress"
        return [("ERROR", "engine_failed", f"gpu-burn did not start: {why}")] * expected
    if not burned.whole and burned.elapsed < 100:
        ended = f"gpu-burn ended or was ended at {burned.elapsed:.0f} %, without its last table"
        return [("FAIL", "engine_failed", ended)] * expected
    return [_judge(burned.gpu(index), burned.elapsed) for index in range(expected)]


def _judge(gpu: Gpu, elapsed: float) -> Verdict:
    if gpu.errors or gpu.word == "FAULTY":
        return "FAIL", "wrong_result", f"{gpu.errors} wrong elements, {gpu.word}"
    if gpu.died:
        reason = f"its burn died after {gpu.products} products"
    elif not gpu.products:
        reason = "not one product was counted"
    elif elapsed - gpu.moved_at > HUNG_PERCENT:
        reason = f"hung: no product counted after {gpu.moved_at:.0f} % of the time"
    elif gpu.word != "OK":
        reason = "gpu-burn's last table does not name it"
    else:
        return "PASS", "", ""
    return "FAIL", "engine_failed", reason
