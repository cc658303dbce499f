"""The five collectives: each one's input, expected output and bus bandwidth factor.

S is the total bytes of the operation as nccl-tests counts them: the whole buffer for all_reduce and
broadcast; for the others the side that holds the data of all ranks. Buffers hold a pattern of whole
numbers whose sums the type has exactly, so that each element has one right value, and all of its
bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from _bandwidth.patterns import CHUNK, Repeated, fill, mismatches

if TYPE_CHECKING:
    from collections.abc import Callable


SHIFT = 7
PERIODS = (1021, 509, 251, 127, 61, 31, 13, 5, 3)
"""Of the pattern: primes, so that no buffer's size is one of its own, and none the shift."""

SUM = -1
"""The source of a sum over all ranks' inputs."""


class DType(NamedTuple):
    """A type of numbers: torch's name of it, the bytes of one, and how far it has all integers."""

    torch_name: str
    item_bytes: int
    exact: int


DTYPES = {
    "fp32": DType("float32", 4, 2**24),
    "fp16": DType("float16", 2, 2**11),
    "bf16": DType("bfloat16", 2, 2**8),
}


def most_ranks(dtype: str) -> int:
    """Return how many ranks' inputs a type can sum exactly."""
    return DTYPES[dtype].exact // (PERIODS[-1] - 1)


class Piece(NamedTuple):
    """Part of a buffer: `length` elements of rank `source`'s input, from element `start` on."""

    source: int
    start: int
    length: int


class Wrong(NamedTuple):
    """The number of wrong elements in a buffer, and the index of the first."""

    total: int
    first: int


class Pattern:
    """The inputs of `world` ranks, on a device; fills and checks buffers of a type of `DTYPES`.

    For at most `most_ranks` ranks.
    """

    def __init__(self, torch: Any, world: int, device: str, dtype: str = "fp32") -> None:
        self.torch, self.world, self.device = torch, world, device
        self.dtype = getattr(torch, DTYPES[dtype].torch_name)
        self.item_bytes = DTYPES[dtype].item_bytes
        each = DTYPES[dtype].exact // world
        self._period = next(period for period in PERIODS if period - 1 <= each)
        self._numbers = torch.arange(self._period, device=device)
        # Odd, so that low bits differ too; sums over all ranks are exact.
        self._factor = max(1, (each // self._period - 1) | 1)

    def table(self, source: int, start: int, length: int) -> Any:
        """Return the elements of a source from `start` on: whole periods, at most a block."""
        ranks = range(self.world) if source == SUM else [source]
        period = self.torch.zeros_like(self._numbers)
        for rank in ranks:
            period += (self._numbers + start + SHIFT * rank) % self._period
        values = (period * self._factor).to(self.dtype)
        return values.repeat(min(CHUNK, length) // self._period + 1)

    def fill(self, buffer: Any, rank: int) -> None:
        """Write a rank's input into a buffer."""
        fill(buffer, Repeated(self.table(rank, 0, buffer.numel())))

    def wrong(self, buffer: Any, pieces: list[Piece]) -> Wrong:
        """Compare every element of a buffer with the pieces it must hold; NaN is wrong too."""
        total, first, offset = 0, -1, 0
        for piece in pieces:
            part = buffer[offset : offset + piece.length]
            table = self.table(piece.source, piece.start, piece.length)
            mismatch = mismatches(self.torch, part, Repeated(table))
            if mismatch.total and first < 0:
                first = offset + mismatch.first
            total += mismatch.total
            offset += piece.length
        return Wrong(total, first)


ROOT = 0


class Operation(NamedTuple):
    """One collective. `run` takes the group, the input, the output and ROOT's global rank.

    `sizes` gives the elements of input and output for a total and a world; `expected` the pieces
    of a rank's output; `factor` busbw over algbw, for n ranks.
    """

    name: str
    factor: Callable[[int], float]
    sizes: Callable[[int, int], tuple[int, int]]
    expected: Callable[[int, int, int], list[Piece]]
    run: Callable[[Any, Any, Any, Any], None]


class Shape(NamedTuple):
    """The elements of one run: in all, into a rank, and out of it."""

    total: int
    inside: int
    outside: int


def shape(operation: Operation, total: int, world: int) -> Shape:
    """Return the shape for about `total` elements: rounded up to a whole share for each rank."""
    whole = -(-total // world) * world if operation.name in SHARED else total
    return Shape(whole, *operation.sizes(whole, world))


def _all_reduce(dist: Any, group: Any, _given: Any, out: Any) -> None:
    dist.all_reduce(out, group=group)


def _broadcast(dist: Any, group: Any, _given: Any, out: Any) -> None:
    source = dist.get_global_rank(group, ROOT) if group is not None else ROOT
    dist.broadcast(out, src=source, group=group)


def _all_gather(dist: Any, group: Any, given: Any, out: Any) -> None:
    # Newer versions of torch call these two by other names, and warn of the old ones.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(out, given, group=group)


def _reduce_scatter(dist: Any, group: Any, given: Any, out: Any) -> None:
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    scatter(out, given, group=group)


def _all_to_all(dist: Any, group: Any, given: Any, out: Any) -> None:
    dist.all_to_all_single(out, given, group=group)


def _same(total: int, _world: int) -> tuple[int, int]:
    return total, total


def _reduced(_rank: int, _world: int, total: int) -> list[Piece]:
    return [Piece(SUM, 0, total)]


def _roots(_rank: int, _world: int, total: int) -> list[Piece]:
    return [Piece(ROOT, 0, total)]


def _gathered(_rank: int, world: int, total: int) -> list[Piece]:
    return [Piece(source, 0, total // world) for source in range(world)]


def _share(rank: int, world: int, total: int) -> list[Piece]:
    return [Piece(SUM, rank * (total // world), total // world)]


def _exchanged(rank: int, world: int, total: int) -> list[Piece]:
    share = total // world
    return [Piece(source, rank * share, share) for source in range(world)]


def _ring(ranks: int) -> float:
    return (ranks - 1) / ranks


IN_PLACE = ("all_reduce", "broadcast")
SHARED = ("all_gather", "reduce_scatter", "all_to_all")
OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("all_reduce", lambda n: 2 * _ring(n), _same, _reduced, _all_reduce),
        Operation("all_gather", _ring, lambda s, n: (s // n, s), _gathered, _all_gather),
        Operation("reduce_scatter", _ring, lambda s, n: (s, s // n), _share, _reduce_scatter),
        Operation("broadcast", lambda _: 1.0, _same, _roots, _broadcast),
        Operation("all_to_all", _ring, _same, _exchanged, _all_to_all),
    )
}
"""busbw factors: NVIDIA/nccl-tests, doc/PERFORMANCE.md."""


def bandwidths(
    operation: Operation, nbytes: int, world: int, seconds: float
) -> tuple[float, float]:
    """Return (algbw, busbw) in GB/s: algbw = S / t, busbw = algbw times the factor."""
    algbw = nbytes / seconds / 1e9
    return algbw, algbw * operation.factor(world)
