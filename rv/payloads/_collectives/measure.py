"""Time one collective at one size and check all of its elements on all ranks.

What a run works on is set again for each iteration, outside of the timed region: a sum that is
reduced again would grow, and an output left over from before would hide one that never came. Ranks
that come late to it are found by the time of equal work on each.
"""

from __future__ import annotations

import statistics
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from contract.verdicts import FAIL, WARN, NotPassed

from .operations import DTYPES, Operation, Pattern, bandwidths, shape
from .outputs import Found, Outputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from .outputs import Strike

WARM_UP = 5
LEAST, MOST = 5, 1000

Limits = tuple[float, float]


@dataclass(frozen=True)
class Field:
    """Where collectives are measured: a group of ranks, seen from one of them.

    `time_each` times rounds on the device (work, rounds, between). Injected faults: `strike` runs
    each iteration, `delay` runs inside of the timed region.
    """

    torch: Any
    dist: Any
    rank: int
    world: int
    device: str
    time_each: Callable[..., list[float]]
    group: Any = None
    dtype: str = "fp32"
    strike: Strike | None = None
    delay: Callable[[], None] | None = None

    @property
    def item_bytes(self) -> int:
        """The bytes of an element."""
        return DTYPES[self.dtype].item_bytes

    def reduce(self, numbers: list[float], how: str) -> list[float]:
        """Reduce numbers over the ranks by MAX, MIN or SUM."""
        kept = self.torch.tensor(numbers, dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(kept, op=getattr(self.dist.ReduceOp, how), group=self.group)
        return list(kept.tolist())

    def gather(self, numbers: list[float]) -> list[list[float]]:
        """Return every rank's numbers, as many from each.

        This rank's own are what it gave, whatever a network that is wrong made of them. Raises
        NotPassed where a part is not the rank's whose place it has.
        """
        marked = [*numbers, float(self.rank)]
        own = self.torch.tensor(marked, dtype=self.torch.float64, device=self.device)
        every = [self.torch.empty_like(own) for _ in range(self.world)]
        self.dist.all_gather(every, own, group=self.group)
        every[self.rank] = own
        parts = [list(one.tolist()) for one in every]
        wrong = next((rank for rank, part in enumerate(parts) if part[-1] != rank), None)
        if wrong is not None:
            reason = f"rank {self.rank}: all_gather delivered another part as rank {wrong}'s"
            raise NotPassed("FAIL", "wrong_collective", reason)
        return [part[:-1] for part in parts]


@dataclass(frozen=True)
class Row:
    """One collective at one size. `seconds` has for each iteration the slowest rank's time."""

    operation: str
    nbytes: int
    elements: int
    seconds: list[float]
    by_rank: list[float]
    algbw: float
    busbw: float
    compared: int
    wrong: int
    where: str

    @property
    def middle(self) -> float:
        """The median time of an iteration, seconds."""
        return statistics.median(self.seconds)

    @property
    def of_median(self) -> float:
        """The rate over all iterations as a part of the median's: 1 of a steady run."""
        return self.middle * len(self.seconds) / sum(self.seconds)


def measure(
    field: Field, operation: Operation, total: int, *, budget_s: float, iters: int | None = None
) -> Row:
    """Measure a collective of `total` elements for about `budget` seconds, or `iters` times."""
    sizes = shape(operation, total, field.world)
    pattern = Pattern(field.torch, field.world, field.device, field.dtype)

    def run(given: Any, out: Any) -> None:
        operation.run(field.dist, field.group, given, out)
        if field.delay is not None:
            field.delay()

    outputs = Outputs(pattern, operation, sizes, field.rank, run, field.strike)
    outputs()  # by itself: it sets up what the others reuse
    rounds = iters or _rounds(field, outputs, budget_s)
    taken = field.time_each(outputs, rounds=rounds, between=outputs.between)
    nbytes = sizes.total * field.item_bytes
    slowest = field.reduce(taken, "MAX")
    compared, wrong, where = _together(field, outputs)
    speed = bandwidths(operation, nbytes, field.world, statistics.median(slowest))
    by_rank = [one[0] for one in field.gather([statistics.median(taken)])]
    times = (slowest, by_rank, *speed)
    return Row(operation.name, nbytes, sizes.total, *times, compared, wrong, where)


def _together(field: Field, outputs: Outputs) -> tuple[int, int, str]:
    """Add up all ranks' iterations and wrong elements; say where the first of these are."""
    every = field.gather([float(number) for number in outputs.found()])
    found = [Found(*(int(number) for number in numbers)) for numbers in every]
    named = [_named(rank, one) for rank, one in enumerate(found) if one.total]
    return outputs.done, sum(one.total for one in found), "; ".join(named[:8])


def _named(rank: int, found: Found) -> str:
    place = f" element {found.place}" if found.place >= 0 else ""
    many = f"{found.total} wrong there, in {found.iterations} iterations"
    return f"rank {rank}{place} of iteration {found.first} ({many})"


def _rounds(field: Field, outputs: Outputs, budget_s: float) -> int:
    """Warm up, and return the iterations that fill the budget: the same number on every rank."""
    start = time.perf_counter()
    taken = field.time_each(outputs, rounds=WARM_UP, between=outputs.between)
    whole = (time.perf_counter() - start) / WARM_UP
    one = field.reduce([max(statistics.median(taken), whole)], "MAX")[0]
    return max(LEAST, min(MOST, round(budget_s / max(one, 1e-7))))


def bare(field: Field, total: int, rounds: int) -> float:
    """Time all_reduce called again and again on one buffer, nothing around it; seconds of a call.

    What `measure` finds is held against this, taken in the same run.
    """
    buffer = field.torch.zeros(total, device=field.device)

    def call() -> None:
        field.dist.all_reduce(buffer, group=field.group)

    call()
    taken = field.time_each(call, rounds=rounds, between=None)
    return statistics.median(field.reduce(taken, "MAX"))


def ladder(least: int, most: int, factor: int) -> list[int]:
    """Return sizes from `least` in steps of `factor`, always ending with `most`."""
    sizes = []
    while least < most:
        sizes.append(least)
        least *= factor
    return [*sizes, most]


ARRIVAL_ROUNDS = 8


@dataclass(frozen=True)
class Arrival:
    """One rank's equal work (best of the rounds) and its wait at the barrier (median), seconds.

    `model` is a number of its GPU's model, equal for equal ones.
    """

    rank: int
    work: float
    wait: float
    model: float = 0.0


def arrivals(
    field: Field, work: Callable[[], None], model: str = "", rounds: int = ARRIVAL_ROUNDS
) -> list[Arrival]:
    """Time equal work and a barrier on every rank, `rounds` times; return each rank's times.

    `model` is the product's name of this rank's GPU.

    On a CPU the processor time counts, which other programs on the machine do not lengthen. The
    work then has one thread: of two, one may spin while the other is kept waiting for a core.
    """
    threads = field.torch.get_num_threads()
    if field.device == "cpu":
        field.torch.set_num_threads(1)
    clock = time.thread_time if field.device == "cpu" else time.perf_counter
    worked, waited = [], []
    for _ in range(rounds):
        field.dist.barrier(group=field.group)
        start = clock()
        work()
        worked.append(clock() - start)
        met = time.perf_counter()
        field.dist.barrier(group=field.group)
        waited.append(time.perf_counter() - met)
    field.torch.set_num_threads(threads)
    number = float(zlib.crc32(model.encode()))  # only numbers are gathered
    every = field.gather([min(worked), statistics.median(waited), number])
    return [Arrival(rank, *numbers) for rank, numbers in enumerate(every)]


def equal_work(torch: Any, device: str, size: int, repeats: int) -> Callable[[], None]:
    """Return work that is the same on every rank: products of two matrices, waited for."""
    left, right = (torch.rand(size, size, device=device) for _ in "ab")
    out = torch.empty_like(left)

    def work() -> None:
        for _ in range(repeats):
            torch.mm(left, right, out=out)
        if device != "cpu":
            torch.cuda.synchronize(device)

    work()
    return work


class Late(NamedTuple):
    """A rank that was late, how many times as long as its peers it worked, and WARN or FAIL."""

    one: Arrival
    ratio: float
    status: str


def stragglers(measured: list[Arrival], limits: Limits, of_two: Limits) -> list[Late]:
    """Return the ranks that took longer than their peers' median, slowest first.

    Peers are the other ranks with a GPU of the same model; with one peer `of_two` holds. `limits`
    are the multiples of the median from which a rank is a warning, and a failure.
    """
    late = []
    for one in measured:
        alike = [other for other in measured if other.model == one.model]
        peers = [other.work for other in alike if other.rank != one.rank]
        ratio = one.work / max(statistics.median(peers), 1e-9) if peers else 1.0
        warn, fail = of_two if len(peers) == 1 else limits
        if ratio > warn:
            late.append(Late(one, ratio, FAIL if ratio >= fail else WARN))
    return sorted(late, key=lambda each: -each.ratio)
