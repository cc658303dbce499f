"""STREAM's four kernels on device memory, each result exact.

Bytes moved are counted as STREAM does: copy and scale 2 N, add and triad 3 N. Elements are integers
below 1021, repeated, so that every result is one table's, exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .patterns import Repeated, fill, mismatches

if TYPE_CHECKING:
    from collections.abc import Callable

    Timed = Callable[..., list[float]]

FACTOR = 3.0
PERIOD = 1021


class Kernel(NamedTuple):
    """One kernel: how many arrays it moves, what it runs on (a, b, c), and what c must hold."""

    name: str
    arrays: int
    run: Callable[[Any, Any, Any, Any], Any]
    expected: Callable[[Any, Any], Any]


KERNELS = (
    Kernel("copy", 2, lambda _torch, a, _, c: c.copy_(a), lambda a, _: a),
    Kernel("scale", 2, lambda torch, a, _, c: torch.mul(a, FACTOR, out=c), lambda a, _: FACTOR * a),
    Kernel("add", 3, lambda torch, a, b, c: torch.add(a, b, out=c), lambda a, b: a + b),
    Kernel(
        "triad",
        3,
        lambda torch, a, b, c: torch.add(a, b, alpha=FACTOR, out=c),
        lambda a, b: a + FACTOR * b,
    ),
)


class Streamed(NamedTuple):
    """One kernel's GB/s in each round, its wrong elements and the first of them."""

    kernel: str
    rates: list[float]
    wrong: int
    first: int


def stream(
    torch: Any,
    device: str,
    nbytes: int,
    rounds: int,
    time_each: Timed,
    spoil: Callable[[Any, str], None],
) -> list[Streamed]:
    """Run the kernels on arrays of `nbytes` each; `spoil(c, kernel)` may damage a result."""
    count = nbytes // 4
    tables = [_table(torch, device, count, stride) for stride in (1, 7)]
    a, b, c = (torch.empty(count, dtype=torch.float32, device=device) for _ in "abc")
    for array, table in zip((a, b), tables, strict=True):
        fill(array, Repeated(table))
    return [
        _measured(torch, kernel, (a, b, c), tables, rounds, time_each, spoil) for kernel in KERNELS
    ]


def _measured(
    torch: Any,
    kernel: Kernel,
    arrays: tuple[Any, Any, Any],
    tables: list[Any],
    rounds: int,
    time_each: Timed,
    spoil: Callable[[Any, str], None],
) -> Streamed:
    """Time one kernel, and check the last round's result."""
    c = arrays[2]
    c.fill_(-1.0)

    def work() -> None:
        kernel.run(torch, *arrays)

    time_each(work, rounds=3)
    taken = time_each(work, rounds=rounds)
    spoil(c, kernel.name)
    bad = mismatches(torch, c, Repeated(kernel.expected(*tables)))
    rates = [kernel.arrays * c.numel() * c.element_size() / seconds / 1e9 for seconds in taken]
    return Streamed(kernel.name, rates, bad.total, bad.first)


def _table(torch: Any, device: str, count: int, stride: int) -> Any:
    """Return periods of integers, as many as a block of the array has."""
    period = (torch.arange(PERIOD, device=device) * stride % PERIOD).float()
    return period.repeat(min(count, 1 << 22) // PERIOD + 1)
