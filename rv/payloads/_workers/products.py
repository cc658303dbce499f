"""The products of a worker, each compared, and whether it went on making them.

The two matrices are multiplied both ways round in turn, into a matrix that is poisoned first. The
bits of each row are added up, and of the next two products those of each column: where a sum is not
that of the first product of its way round, the product is wrong. Right elements at wrong places of
a row change no sum of rows. The first products are proven by Freivalds' test.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from _matmul.dtypes import KINDS, Factors
from _matmul.exact import require_small
from contract.verdicts import NotPassed

COLUMNS, ROWS = 0, 1  # the dimension that is summed over: what is left has a sum each
SCHEDSTAT = Path("/proc/thread-self/schedstat")


class WrongProduct(Exception):  # noqa: N818 - an outcome
    """The first product of a worker is wrong already."""


class Products:
    """The products of two matrices; calling it makes the next one."""

    def __init__(self, torch: Any, matrices: list[Any], device: str, faults: Any) -> None:
        self.torch, self.device, self.faults = torch, device, faults
        left, right, self.out = matrices
        self.ways = ((left, right), (right, left))
        self.made = 0
        self._wrong = torch.zeros(1, dtype=torch.int64, device=device)
        self._sums = [self._proven(*way) for way in self.ways]

    def _proven(self, left: Any, right: Any) -> tuple[Any, Any]:
        """Make the product that others are compared with; return the sums of its columns, rows."""
        self.out.fill_(float("nan"))
        self.torch.mm(left, right, out=self.out)
        given = Factors(self.torch, KINDS["fp32"], left, right)
        try:
            require_small(given, self.out, self.device, 0)
        except NotPassed as outcome:
            raise WrongProduct(outcome.reason) from outcome
        return self._added(COLUMNS), self._added(ROWS)

    def _added(self, over: int) -> Any:
        bits = self.out.view(self.torch.int32)
        return bits.sum(dim=over, dtype=self.torch.int64)

    def __call__(self) -> None:
        """Make one product, and wait for it."""
        way, over = self.made % 2, (ROWS, COLUMNS)[self.made // 2 % 2]
        if "nan" in self.faults:
            self.out.fill_(float("nan"))
        elif "hollow" not in self.faults:
            self.torch.mm(*self.ways[way], out=self.out)
        if "swapped" in self.faults:
            self.out[:, :2] = self.out[:, :2].flip(1)
        self._wrong += (self._added(over) != self._sums[way][over]).any()
        self.out.fill_(float("nan"))
        self.made += 1
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    @property
    def wrong(self) -> int:
        """How many products were wrong."""
        return int(self._wrong.item())


class Pace(NamedTuple):
    """How a worker went on: seconds of its longest pause, and the share of its time in none."""

    longest_s: float
    idle: float | None


class Pulse:
    """Watches that a worker goes on; on a CPU a wait for the processor is no pause."""

    def __init__(self) -> None:
        self._start_s = self._last_s = time.perf_counter()
        self._longest_s, self._busy_s = 0.0, _busy_s()

    def beat(self) -> None:
        """Note that one more operation is done."""
        now_s = time.perf_counter()
        self._longest_s, self._last_s = max(self._longest_s, now_s - self._last_s), now_s

    def pace(self) -> Pace:
        """Return how it went; `idle` is the share that it neither ran nor waited to run."""
        self.beat()
        busy_s, spent_s = _busy_s(), self._last_s - self._start_s
        known = busy_s is not None and self._busy_s is not None and spent_s > 0
        idle = 1 - (busy_s - self._busy_s) / spent_s if known else None  # type: ignore[operator]
        return Pace(self._longest_s, idle)


def _busy_s() -> float | None:
    """Return the seconds that this thread ran or waited for a processor; None if not told."""
    try:
        ran, waited, _ = SCHEDSTAT.read_text().split()
    except (OSError, ValueError):
        return None
    return (int(ran) + int(waited)) / 1e9
