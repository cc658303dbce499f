"""What gpu-burn's text says. Its exit code says nothing: it is 0 when GPUs are faulty.

Its last table says nothing either of a GPU that hung: no answer is no error there, so that a GPU
passes only when products were counted for it to the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

PROGRESS = re.compile(r"([\d.]+)%\s+proc'd:(.*?)\s+errors:(.*?)\s+temps:(.*?)(?:power:.*)?$")
COUNT = re.compile(r"(-?\d+) \((\d+) Gflop/s\)")
TABLE = re.compile(r"GPU (\d+): (OK|FAULTY)")
NO_START = re.compile(r"Couldn't init[^\n]*|No CUDA devices|Failure during compute[^\n]*")
STILL = 25.0  # per cent of the run without a new product: hung


@dataclass
class Gpu:
    """What was said of one GPU."""

    products: int = 0
    rates: list[int] = field(default_factory=list)  # Gflop/s, each change
    errors: int = 0
    died: bool = False
    moved_at: float = 0.0  # per cent of the run when the last product was counted
    hottest: int | None = None
    word: str | None = None  # of the last table: OK or FAULTY


@dataclass
class Burn:
    """What a whole run said."""

    gpus: list[Gpu] = field(default_factory=list)
    elapsed: float = 0.0  # per cent
    trouble: str | None = None
    tested: int | None = None

    def gpu(self, index: int) -> Gpu:
        """Give the GPU of this number."""
        while len(self.gpus) <= index:
            self.gpus.append(Gpu())
        return self.gpus[index]


@dataclass(frozen=True)
class Judgement:
    """One GPU's or the whole run's verdict."""

    status: str
    code: str | None
    reason: str | None


def parse(text: str) -> Burn:
    """Read everything that gpu-burn printed; lines end with a newline or a carriage return."""
    burn = Burn()
    for line in re.split(r"[\r\n]+", text):
        progress = PROGRESS.search(line)
        if progress:
            _progress(burn, progress)
        elif row := TABLE.search(line):
            burn.gpu(int(row[1])).word = row[2]
        elif tested := re.match(r"Tested (\d+) GPUs", line.strip()):
            burn.tested = int(tested[1])
        elif trouble := NO_START.search(line):
            burn.trouble = burn.trouble or trouble[0]
    return burn


def judge(burn: Burn, expected: int) -> list[Judgement]:
    """Judge each GPU that was to be tested; all PASS only when each was seen working to the end."""
    if not burn.gpus or (burn.trouble and not any(gpu.products for gpu in burn.gpus)):
        why = burn.trouble or "it printed no progress"
        return [Judgement("ERROR", "engine_failed", f"gpu-burn did not start: {why}")] * expected
    if burn.tested is None and burn.elapsed < 100:
        ended = f"gpu-burn ended or was ended at {burn.elapsed:.0f} %, without its last table"
        return [Judgement("FAIL", "engine_failed", ended)] * expected
    return [_judge(burn, index) for index in range(expected)]


def _judge(burn: Burn, index: int) -> Judgement:
    gpu = burn.gpus[index] if index < len(burn.gpus) else Gpu()
    if gpu.errors or gpu.word == "FAULTY":
        return Judgement("FAIL", "wrong_result", f"{gpu.errors} wrong elements, {gpu.word}")
    if gpu.died:
        return Judgement("FAIL", "engine_failed", f"its burn died after {gpu.products} products")
    if not gpu.products:
        return Judgement("FAIL", "engine_failed", "not one product was counted")
    if burn.elapsed - gpu.moved_at > STILL:
        still = f"hung: no product counted after {gpu.moved_at:.0f} % of the time"
        return Judgement("FAIL", "engine_failed", still)
    if gpu.word != "OK":
        return Judgement("FAIL", "engine_failed", "gpu-burn's last table does not name it")
    return Judgement("PASS", None, None)


def _progress(burn: Burn, line: re.Match[str]) -> None:
    burn.elapsed = float(line[1])
    for index, (count, rate) in enumerate(COUNT.findall(line[2])):
        gpu = burn.gpu(index)
        if int(count) > gpu.products:
            gpu.products, gpu.moved_at = int(count), burn.elapsed
            gpu.rates.append(int(rate))
        gpu.died |= int(count) < 0
    for index, errors in enumerate(line[3].split("- ")):  # "(WARNING!)- 0" too
        number = re.match(r"(-?\d+)", errors.strip())
        gpu = burn.gpu(index)
        gpu.died |= "DIED" in errors
        if number and int(number[1]) and not gpu.died:
            gpu.errors = max(gpu.errors, abs(int(number[1])))  # its counter runs over
    for index, heat in enumerate(re.findall(r"(\d+) C|--", line[4])):
        if heat:
            gpu = burn.gpu(index)
            gpu.hottest = max(gpu.hottest or 0, int(heat))
