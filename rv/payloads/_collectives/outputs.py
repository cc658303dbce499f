"""The outputs of one collective, set before each iteration and compared after it.

As many as fit lie side by side, each for an iteration of its own: so small collectives need nothing
between two of them. When all are used they are compared and set again, on the device and outside of
the timed region. Seven inputs take turns. So a collective is seen that is wrong in any iteration,
writes nothing, or gives what an earlier one gave, unless that was a multiple of seven before.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from .operations import IN_PLACE, Operation, Pattern, Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    Strike = Callable[[int, Callable[[], object], Any], object]

POISON = -1
TOGETHER, MOST = 64 << 20, 1000
"""Bytes of outputs that lie side by side, and how many."""
STEP = 64
"""Elements by which the pattern is moved on from one input to the next."""
WAYS = 7
"""Inputs that take turns: a prime, for buffers that libraries use in turn are powers of two."""
SPAN = 1 << 16
"""Elements of the tables that outputs are compared with, which repeat: there are many."""


class Found(NamedTuple):
    """Wrong elements of a rank: how many, in how many iterations, the first of these, and where.

    `place` is -1 where it is no longer there to be looked at.
    """

    total: int
    iterations: int
    first: int
    place: int


class Outputs:
    """Calling it runs the next iteration; `strike(iteration, run, output)` runs it with a fault."""

    def __init__(
        self,
        pattern: Pattern,
        operation: Operation,
        sizes: Shape,
        rank: int,
        run: Callable[[Any, Any], object],
        strike: Strike | None,
    ) -> None:
        self.pattern, self.run, self.strike = pattern, run, strike
        self.torch = pattern.torch
        new = functools.partial(self.torch.empty, dtype=pattern.dtype, device=pattern.device)
        self.given = new(sizes.inside + (WAYS - 1) * STEP)
        pattern.fill(self.given, rank)
        self.inside = sizes.inside
        slots = min(MOST, TOGETHER // (max(STEP, sizes.outside) * pattern.item_bytes))
        aligned = -(-sizes.outside // STEP) * STEP  # where a library copies whole words
        room = new((max(1, slots), aligned))
        self.slots = room[:, : sizes.outside]
        self.in_place = operation.name in IN_PLACE
        pieces = operation.expected(rank, pattern.world, sizes.total)
        self.pieces = [
            [piece._replace(start=piece.start + way * STEP) for piece in pieces]
            for way in range(WAYS)
        ]
        self.tables = [
            [pattern.table(piece.source, piece.start, min(SPAN, piece.length)) for piece in way]
            for way in self.pieces
        ]
        self.done = 0
        self._used = 0
        self._counts: list[tuple[int, Any]] = []
        self._place = -1
        self._set()

    def _input(self, way: int) -> Any:
        return self.given[way * STEP : way * STEP + self.inside]

    def _set(self) -> None:
        """Set the outputs for the next iterations."""
        for row in range(WAYS if self.in_place else 0):
            self.slots[row::WAYS] = self._input((self.done + row) % WAYS)
        if not self.in_place:
            self.slots.fill_(POISON)

    def __call__(self) -> None:
        """Run one iteration into an output of its own."""
        out, number = self.slots[self._used], self.done

        def run() -> None:
            self.run(self._input(number % WAYS), out)

        if self.strike is None:
            run()
        else:
            self.strike(number, run, out)
        self._used += 1
        self.done += 1

    def between(self) -> None:
        """Make room where no output is left."""
        if self._used == len(self.slots):
            self.compare()

    def compare(self) -> None:
        """Compare the outputs that were used, and set all again; nothing waits for it."""
        if not self._used:
            return
        first = self.done - self._used
        for row in range(min(WAYS, self._used)):
            outputs, way = self.slots[row : self._used : WAYS], (first + row) % WAYS
            self._counts.append((first + row, self._compared(outputs, way)))
        self._used = 0
        self._set()

    def _compared(self, outputs: Any, way: int) -> Any:
        """Count the wrong elements of each of these outputs."""
        counts, offset = [], 0
        for piece, table in zip(self.pieces[way], self.tables[way], strict=True):
            part = outputs[:, offset : offset + piece.length]
            counts.append(_wrong(part, table, piece.length))
            offset += piece.length
        return sum(counts)

    def found(self) -> Found:
        """Compare what is left, wait for all comparisons, and add them up."""
        if self._used:
            last = (self.done - 1) % WAYS
            self._place = self.pattern.wrong(self.slots[self._used - 1], self.pieces[last]).first
        self.compare()
        bad = {
            first + WAYS * at: count
            for first, counts in self._counts
            for at, count in enumerate(counts.tolist())
            if count
        }
        return Found(sum(bad.values()), len(bad), min(bad, default=-1), self._place)


def _wrong(part: Any, table: Any, length: int) -> Any:
    """Count each row's elements that differ from a table, which repeats where it is shorter."""
    period = min(len(table), length)
    whole = length // period * period
    repeated = part[:, :whole].unflatten(1, (-1, period))
    wrong = (repeated != table[:period]).sum(dim=(1, 2))
    if whole < length:
        wrong = wrong + (part[:, whole:] != table[: length - whole]).sum(dim=1)
    return wrong
