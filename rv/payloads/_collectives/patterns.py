"""Inputs of small integers whose reductions are known exactly, element by element.

Element i of rank r is (i + 7 r) mod m. With a prime m, data that lands some power of two away from
its place is seen; sums of all ranks stay below what the type counts exactly, so that no order of
adding can round. As in nccl-tests' verifiable inputs, the tolerance is zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

SHIFT = 7
PRIMES = (1021, 251, 61, 31, 13, 7, 5, 3, 2)
EXACT = {"float32": 2**24, "float64": 2**53, "float16": 2**11, "bfloat16": 2**8, "int32": 2**31}
"""The largest integer below which a type has every integer."""

SUM = -1
"""The source of what all ranks reduced together."""

BLOCK = 1 << 22
"""Elements compared at a time: the memory that a check needs beside the buffer."""


class Piece(NamedTuple):
    """A stretch of a buffer: whose input it holds, from which element of it, and how many."""

    source: int
    start: int
    length: int


class Wrong(NamedTuple):
    """How many elements of a buffer are not what they must be, and the first of them."""

    total: int
    first: int


class Pattern:
    """The inputs of `world` ranks, on a device; fills and checks buffers in blocks."""

    def __init__(self, torch: Any, world: int, dtype: str, device: str) -> None:
        self.torch, self.world = torch, world
        self.dtype, self.device = getattr(torch, dtype), device
        self.modulus = modulus(world, dtype)
        self._numbers = torch.arange(self.modulus, device=device)

    def table(self, source: int, start: int, length: int) -> Any:
        """Give the elements of a source from `start` on: whole periods, for `length` or a block."""
        ranks = range(self.world) if source == SUM else [source]
        period = self.torch.zeros_like(self._numbers)
        for rank in ranks:
            period += (self._numbers + start + SHIFT * rank) % self.modulus
        repeats = min(BLOCK, max(length, 1)) // self.modulus + 1
        return period.to(self.dtype).repeat(repeats)

    def fill(self, buffer: Any, rank: int) -> None:
        """Write a rank's input into a buffer."""
        table = self.table(rank, 0, buffer.numel())
        for block in buffer.split(len(table)):
            block.copy_(table[: len(block)])

    def wrong(self, buffer: Any, pieces: list[Piece]) -> Wrong:
        """Compare every element of a buffer with the pieces it must hold; NaN is wrong too."""
        total, first, offset = 0, -1, 0
        for piece in pieces:
            part = buffer[offset : offset + piece.length]
            found = self._wrong_of(part, self.table(piece.source, piece.start, piece.length))
            if found.total and first < 0:
                first = offset + found.first
            total += found.total
            offset += piece.length
        return Wrong(total, first)

    def _wrong_of(self, part: Any, table: Any) -> Wrong:
        blocks = part.split(len(table))
        counts = [(block != table[: len(block)]).sum() for block in blocks]
        totals = self.torch.stack(counts).tolist()
        for number, bad_here in enumerate(totals):
            if bad_here:
                bad = (blocks[number] != table[: len(blocks[number])]).nonzero()
                return Wrong(sum(totals), number * len(table) + int(bad[0].item()))
        return Wrong(0, -1)


def modulus(world: int, dtype: str) -> int:
    """Give the largest prime whose sums over all ranks the type counts exactly."""
    for prime in PRIMES:
        if world * (prime - 1) <= EXACT[dtype]:
            return prime
    raise ValueError(f"{dtype} cannot count over {world} ranks")
