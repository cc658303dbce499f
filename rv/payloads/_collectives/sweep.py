"""The table of a sweep of collectives over sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract.fabrics import LARGE, LONG_S

from .measure import Field, Row, ladder, measure
from .operations import OPERATIONS, bandwidths

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


MOST_BYTES = 4 << 30
LONGEST_S = 1.0
"""Of one collective: on a slow network 4 GiB would take the time of the whole payload."""
ON_CPU, QUICK_ON_CPU = 1 << 20, 1 << 14
SECONDS = {("cuda", False): 60.0, ("cuda", True): 10.0, ("cpu", False): 4.0, ("cpu", True): 0.5}


def most_bytes(field: Field, options: argparse.Namespace) -> int:
    """Return the largest size: 4 GiB or a quarter of the least free memory; little on a CPU."""
    if options.max_bytes:
        return int(options.max_bytes)
    if field.device == "cpu":
        return QUICK_ON_CPU if options.quick else ON_CPU
    free = field.torch.cuda.mem_get_info(field.device)[0]
    quarter = int(field.reduce([free / 4], "MIN")[0])
    return min(MOST_BYTES, 1 << (quarter.bit_length() - 1))


def totals(field: Field, options: argparse.Namespace) -> list[int]:
    """Return the sizes to measure, in elements."""
    if options.numel:
        return [int(options.numel)]
    least, most = 8 // field.item_bytes, most_bytes(field, options) // field.item_bytes
    large = LARGE // field.item_bytes  # on every ladder, so that slow and fast ones have it
    sizes = ladder(least, max(least, most), 8 if options.quick else 2)
    return sorted({*sizes, *([large] if large < most else [])})


def sweep(
    field: Field, options: argparse.Namespace, say: Callable[[str], object]
) -> dict[str, list[Row]]:
    """Measure every collective at every size, or one of all_reduce; return the rows by name."""
    sizes = totals(field, options)
    names = ["all_reduce"] if options.numel else list(OPERATIONS)
    kind = "cpu" if field.device == "cpu" else "cuda"
    seconds = options.duration or SECONDS[kind, options.quick]
    budget_s = seconds / (len(sizes) * len(names))
    table: dict[str, list[Row]] = {}
    for name in names:
        say(HEADER.format(name))
        rows = table.setdefault(name, [])
        for total in sizes:
            if not options.max_bytes and not fits(rows, total):
                break
            row = measure(field, OPERATIONS[name], total, budget_s=budget_s, iters=options.iters)
            rows.append(row)
            say(line(row))
    return table


def fits(rows: list[Row], total: int) -> bool:
    """Whether a collective of so many elements would not take too long, by that of the last size.

    All ranks have the same rows, so that they agree.
    """
    return not rows or rows[-1].middle * total / rows[-1].elements <= LONGEST_S


HEADER = "{:<14}      bytes      time us   algbw GB/s   busbw GB/s   #wrong"


def line(row: Row) -> str:
    """Return a row as a line of text."""
    wrong = f"{row.wrong:>8}" + (f"  {row.where}" if row.wrong else "")
    speed = f"{row.algbw:>12.3f} {row.busbw:>12.3f}"
    return f"{'':<14} {row.nbytes:>10} {row.middle * 1e6:>12.1f} {speed} {wrong}"


def size_word(nbytes: int) -> str:
    """Return bytes as `4GiB`, `256MiB`, `24B`."""
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << bits and nbytes % (1 << bits) == 0:
            return f"{nbytes >> bits}{unit}"
    return f"{nbytes}B"


def as_details(row: Row) -> dict[str, Any]:
    """Return a row as a result file has it."""
    return {
        "bytes": row.nbytes,
        "iters": len(row.seconds),
        "time_us": row.middle * 1e6,
        "algbw": row.algbw,
        "busbw": row.busbw,
        "compared": row.compared,
        "wrong": row.wrong,
        "by_rank_us": [seconds * 1e6 for seconds in row.by_rank],
    }


def busbw_samples(row: Row, world: int) -> list[float]:
    """Return the bus bandwidth of each iteration, GB/s."""
    operation = OPERATIONS[row.operation]
    return [bandwidths(operation, row.nbytes, world, seconds)[1] for seconds in row.seconds]


def measures_link(row: Row) -> bool:
    """Whether a bandwidth is the link's, and no latency."""
    return row.nbytes >= LARGE or row.middle >= LONG_S


def gated(rows: list[Row]) -> list[Row]:
    """Return the rows whose bandwidth is reported: the large ones, or else the largest."""
    return [row for row in rows if row.nbytes >= LARGE] or rows[-1:]
