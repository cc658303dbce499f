"""Memory tests after memtest86 and DCGM: walking bits, addresses, moving inversions, random words.

Memory is taken in blocks of 64-bit words; every word is written, read back and compared. A word's
address is its place among all words of the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


CHUNK = 1 << 22
"""Elements asked for at a time: the memory that a check needs beside the array."""


class Repeated(NamedTuple):
    """The elements of a table, again and again: one kernel writes, or compares, all of them."""

    table: Any


Contents = Repeated | Callable[[int, int], Any]


class Mismatch(NamedTuple):
    """How many elements differ, the first's place, what it holds and what it must hold."""

    total: int
    first: int = -1
    held: Any = None
    expected: Any = None


def fill(array: Any, contents: Contents) -> None:
    """Write the contents."""
    for _, part, expected in _parts(array, contents):
        part.copy_(expected)


def count(torch: Any, array: Any, contents: Contents) -> Any:
    """Count the elements that differ; the number stays on the device, and nothing waits for it."""
    counts = [(part != expected).sum() for _, part, expected in _parts(array, contents)]
    return torch.stack(counts).sum()


def mismatches(torch: Any, array: Any, contents: Contents) -> Mismatch:
    """Compare every element; waits for the device once, and again only if something differs."""
    total = int(count(torch, array, contents).item())
    if not total:
        return Mismatch(0)
    for offset, part, expected in _parts(array, contents):
        bad = (part != expected).flatten().nonzero()
        if len(bad):
            place = int(bad[0].item())
            held, right = part.flatten()[place], expected[place % len(expected)]
            return Mismatch(total, offset + place, held.item(), right.item())
    return Mismatch(total)


def _parts(array: Any, contents: Contents) -> Iterator[tuple[int, Any, Any]]:
    """Yield stretches of the array as (offset, elements, expected elements)."""
    done = 0
    if isinstance(contents, Repeated):
        length = len(contents.table)
        done = len(array) // length * length
        if done:
            yield 0, array[:done].view(-1, length), contents.table
        if done < len(array):
            yield done, array[done:], contents.table[: len(array) - done]
        return
    while done < len(array):
        part = array[done : done + CHUNK]
        yield done, part, contents(done, len(part))
        done += len(part)


BLOCK = 1 << 27
"""Words of a block (1 GiB): what one allocation takes."""

BITS = 64
ALTERNATING = 0x5555555555555555
WORD = 8


class Found(NamedTuple):
    """What one test found: mismatching words, the first's byte offset, and its wrong bits."""

    test: str
    passes: int
    total: int
    offset: int
    bits: int


class Memory:
    """Blocks of words on a device; `chunk` is how many words are done at a time."""

    def __init__(self, torch: Any, device: str, nbytes: int) -> None:
        self.torch, self.device = torch, device
        left = max(1, nbytes // WORD)
        self.blocks: list[tuple[int, Any]] = []
        start = 0
        while left > 0:
            count = min(BLOCK, left)
            words = torch.empty(count, dtype=torch.int64, device=device)
            self.blocks.append((start, words))
            start, left = start + count, left - count
        self.count = start
        self.chunk = min(CHUNK, -(-start // BITS) * BITS)

    def write(self, contents: Contents) -> None:
        """Write contents, given by the words' addresses."""
        for start, block in self.blocks:
            fill(block, _moved(contents, start))

    def compare(self, contents: Contents) -> Mismatch:
        """Compare every word with the contents."""
        total, first = 0, Mismatch(0)
        for start, block in self.blocks:
            bad = mismatches(self.torch, block, _moved(contents, start))
            if bad.total and not total:
                first = bad._replace(first=start + bad.first)
            total += bad.total
        return first._replace(total=total)

    def invert(self) -> None:
        """Invert every bit in place."""
        for _, block in self.blocks:
            block.bitwise_not_()

    def flip(self, address: int, bit: int) -> None:
        """Flip one bit of a word, as a broken cell would."""
        for start, block in self.blocks:
            if start <= address < start + len(block):
                block[address - start] ^= _signed(1 << bit)


def _moved(contents: Contents, start: int) -> Contents:
    if isinstance(contents, Repeated):
        return contents  # a block begins where a table does
    return lambda offset, length: contents(start + offset, length)


def _signed(word: int) -> int:
    return word - (1 << BITS) if word >> (BITS - 1) else word


def walking(memory: Memory, shift: int, *, zeros: bool) -> Contents:
    """Return words with one bit set (or clear): in word i bit (i + shift) mod 64."""
    torch = memory.torch
    bits = [_signed(1 << ((place + shift) % BITS)) for place in range(BITS)]
    words = torch.tensor(bits, dtype=torch.int64, device=memory.device)
    words = words.repeat(memory.chunk // BITS)
    return Repeated(~words if zeros else words)


def addresses(torch: Any, device: str) -> Contents:
    """Return words that hold their own address: two addresses of one cell are detected."""
    return lambda offset, length: torch.arange(offset, offset + length, device=device)


def constant(memory: Memory, word: int) -> Contents:
    """Return words of the same bits."""
    torch = memory.torch
    words = torch.full((memory.chunk,), _signed(word), dtype=torch.int64, device=memory.device)
    return Repeated(words)


def random_words(torch: Any, device: str, seed: int) -> Contents:
    """Return random words, the same for the same seed and address."""
    least, most = -(1 << (BITS - 1)), (1 << (BITS - 1)) - 1

    def words(offset: int, length: int) -> Any:
        generator = torch.Generator(device).manual_seed(seed * 1_000_003 + offset)
        return torch.randint(least, most, (length,), generator=generator, device=device)

    return words


def inverted(contents: Contents) -> Contents:
    """Return the contents with every bit inverted."""
    if isinstance(contents, Repeated):
        return Repeated(~contents.table)
    return lambda offset, length: ~contents(offset, length)


def run(
    memory: Memory, shifts: int, seed: int, spoil: Callable[[str, Memory], None]
) -> Iterator[Found]:
    """Run the tests; `shifts` walking positions of 64. `spoil` may damage memory before a read."""
    torch, device = memory.torch, memory.device
    places = range(0, BITS, max(1, BITS // shifts))
    for name, zeros in (("walking_ones", False), ("walking_zeros", True)):
        contents = (walking(memory, shift, zeros=zeros) for shift in places)
        yield _passes(memory, name, contents, spoil)
    addressed = addresses(torch, device)
    yield _passes(memory, "address", iter((addressed, inverted(addressed))), spoil)
    yield _moving_inversions(memory, spoil)
    yield _random_and_complement(memory, random_words(torch, device, seed), spoil)


def _passes(
    memory: Memory, name: str, contents: Iterator[Contents], spoil: Callable[[str, Memory], None]
) -> Found:
    """Write, then read, for each contents."""
    compared = []
    for expected in contents:
        memory.write(expected)
        spoil(name, memory)
        compared.append(memory.compare(expected))
    return _summed(name, compared)


def _moving_inversions(memory: Memory, spoil: Callable[[str, Memory], None]) -> Found:
    """Read a word and write its inverse, upwards through all blocks and then downwards."""
    name = "moving_inversions"
    plain = constant(memory, ALTERNATING)
    other = inverted(plain)
    memory.write(plain)
    spoil(name, memory)
    compared = []
    for blocks, held, after in (
        (memory.blocks, plain, other),
        (memory.blocks[::-1], other, plain),
    ):
        for start, block in blocks:
            bad = mismatches(memory.torch, block, held)
            compared.append(bad._replace(first=start + bad.first))
            fill(block, after)
    compared.append(memory.compare(plain))
    return _summed(name, compared, passes=3)


def _random_and_complement(
    memory: Memory, words: Contents, spoil: Callable[[str, Memory], None]
) -> Found:
    name = "random"
    memory.write(words)
    spoil(name, memory)
    compared = [memory.compare(words)]
    memory.invert()
    compared.append(memory.compare(inverted(words)))
    return _summed(name, compared)


def _summed(name: str, compared: list[Mismatch], passes: int = 0) -> Found:
    first = next((bad for bad in compared if bad.total), None)
    total = sum(bad.total for bad in compared)
    if first is None:
        return Found(name, passes or len(compared), 0, -1, 0)
    bits = (int(first.held) ^ int(first.expected)) & ((1 << BITS) - 1)
    return Found(name, passes or len(compared), total, first.first * WORD, bits)
