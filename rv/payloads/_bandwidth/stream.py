"""STREAM's four kernels on device memory, every result of every round exact.

Bytes moved are counted as STREAM does: copy and scale 2 N, add and triad 3 N. Elements are integers
below 1021, repeated, so that every result is one table's, exactly. Each round has another result
than the one before, is compared before the next, and finds its array poisoned: what is no longer
written is seen, although what it leaves was right once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from _harness.timing import time_each, time_fed

from .patterns import Repeated, count, fill, mismatches

if TYPE_CHECKING:
    from collections.abc import Callable

    Strike = Callable[[str, int, Callable[[], object], Any], object]

FACTOR = 3.0
PERIOD = 1021
POISON = -1e6
WARM_UP = 3


class Kernel(NamedTuple):
    """One kernel: how many arrays it moves, what it runs on (a, b, c, sign), and what c must hold.

    `sign` is 1 and -1 in turn.
    """

    name: str
    arrays: int
    run: Callable[[Any, Any, Any, Any, int], Any]
    expected: Callable[[Any, Any, int], Any]


KERNELS = (
    Kernel(
        "copy",
        2,
        lambda _torch, a, b, c, sign: c.copy_(a if sign > 0 else b),
        lambda a, b, sign: a if sign > 0 else b,
    ),
    Kernel(
        "scale",
        2,
        lambda torch, a, _, c, sign: torch.mul(a, sign * FACTOR, out=c),
        lambda a, _, sign: sign * FACTOR * a,
    ),
    Kernel(
        "add",
        3,
        lambda torch, a, b, c, sign: torch.add(a, b, alpha=sign, out=c),
        lambda a, b, sign: a + sign * b,
    ),
    Kernel(
        "triad",
        3,
        lambda torch, a, b, c, sign: torch.add(a, b, alpha=sign * FACTOR, out=c),
        lambda a, b, sign: a + sign * FACTOR * b,
    ),
)


class Streamed(NamedTuple):
    """One kernel's GB/s in each round; the rounds, the wrong ones, their elements, and the first.

    `first` is -1 where the last round is right; `is_fed` is whether the device never waited for
    this process.
    """

    kernel: str
    rates: list[float]
    rounds: int
    bad: int
    wrong: int
    first: int
    is_fed: bool


def stream(torch: Any, device: str, nbytes: int, rounds: int, strike: Strike) -> list[Streamed]:
    """Run the kernels on arrays of `nbytes` each; `strike(kernel, round, run, c)` runs each."""
    elements = nbytes // 4
    tables = [_table(torch, device, elements, stride) for stride in (1, 7)]
    a, b, c = (torch.empty(elements, dtype=torch.float32, device=device) for _ in "abc")
    for array, table in zip((a, b), tables, strict=True):
        fill(array, Repeated(table))
    return [
        _Measured(torch, kernel, (a, b, c), tables, strike).times(device, rounds)
        for kernel in KERNELS
    ]


class _Measured:
    """One kernel, whose result is compared and poisoned between two rounds."""

    def __init__(
        self,
        torch: Any,
        kernel: Kernel,
        arrays: tuple[Any, Any, Any],
        tables: list[Any],
        strike: Strike,
    ) -> None:
        self.torch, self.kernel, self.arrays, self.strike = torch, kernel, arrays, strike
        a, b = tables
        self.expected = [Repeated(kernel.expected(a, b, sign)) for sign in (1, -1)]
        self.done = 0
        self.counts: list[Any] = []
        arrays[2].fill_(POISON)

    def work(self) -> None:
        """Run one round."""

        def run() -> None:
            a, b, c = self.arrays
            self.kernel.run(self.torch, a, b, c, 1 - 2 * (self.done % 2))

        self.strike(self.kernel.name, self.done, run, self.arrays[2])
        self.done += 1

    def between(self) -> None:
        """Compare what the round before left, if there was one, and poison it."""
        if self.done > len(self.counts):
            self.counts.append(count(self.torch, self.arrays[2], self._right()))
            self.arrays[2].fill_(POISON)

    def _right(self) -> Repeated:
        return self.expected[(self.done - 1) % 2]

    def times(self, device: str, rounds: int) -> Streamed:
        """Warm up, time the rounds, and compare all of them."""
        time_each(self.torch, device, self.work, rounds=WARM_UP, between=self.between)
        timed = time_fed(self.torch, device, self.work, rounds=rounds, between=self.between)
        last = mismatches(self.torch, self.arrays[2], self._right())
        wrong = [*self.torch.stack(self.counts).tolist(), last.total]
        nbytes = self.kernel.arrays * self.arrays[2].numel() * self.arrays[2].element_size()
        rates = [nbytes / seconds / 1e9 for seconds in timed.each]
        bad, name = sum(each > 0 for each in wrong), self.kernel.name
        return Streamed(name, rates, len(wrong), bad, sum(wrong), last.first, timed.is_fed)


def _table(torch: Any, device: str, elements: int, stride: int) -> Any:
    """Return periods of integers, as many as a block of the array has."""
    period = (torch.arange(PERIOD, device=device) * stride % PERIOD).float()
    return period.repeat(min(elements, 1 << 22) // PERIOD + 1)
