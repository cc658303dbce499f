"""What `all_reduce_perf` writes: JSON since nccl-tests 2.17 (`-J FILE`), a table always. Pure.

The file of `-J` also holds all environment variables of the run; none of them is taken.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple

MOST_CHARACTERS = 16 << 20
MOST_ROWS = 10_000
MOST_RANKS = 100_000
_MPI_PREFIX = re.compile(r"^\[[\d,]+\]<std\w+>:")
_OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,18})\b")
_TABLE = {13: 5, 12: 4}
"""By the number of a row's columns the place of its first time: older tables have no root."""


class Row(NamedTuple):
    """One size: bus bandwidth out of place and in place, GB/s; a place that was not run is 0.

    `wrong` counts elements, and is None where they were not checked, or not counted by size.
    """

    nbytes: int
    algbw: float
    busbw: float
    busbw_in_place: float
    wrong: int | None


class Table(NamedTuple):
    """All sizes; `wrong` is the count over all of them, None where nothing was checked."""

    rows: tuple[Row, ...]
    wrong: int | None

    @property
    def ranks(self) -> int:
        """The number of ranks: of an all-reduce busbw is 2 (n - 1) / n times algbw."""
        row = max(self.rows, key=lambda each: each.nbytes)
        left = 2 - row.busbw / row.algbw if row.algbw else 2.0
        return min(MOST_RANKS, round(2 / left)) if left > 2 / MOST_RANKS else MOST_RANKS


def parse_report(text: str) -> Table:
    """Read what `-J` wrote. Raises ValueError for anything else, and for a run cut short."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError("the report is too large")
    try:
        document = json.loads(text)
        rows = [_row_of(each) for each in document["results"][:MOST_ROWS]]
        out_of_bounds = _whole(document["out_of_bounds"]["count"])
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no report of nccl-tests: {error}"[:200]) from error
    return _table(rows, out_of_bounds)


def _row_of(result: dict[str, Any]) -> Row:
    places = [result.get(name) or {} for name in ("out_of_place", "in_place")]
    counts = [place["nwrong"] for place in places if place.get("nwrong") is not None]
    first, second = (_figure(place.get("bus_bw", 0.0)) for place in places)
    algbw = _figure((places[0] or places[1]).get("alg_bw", 0.0))
    wrong = sum(map(_whole, counts)) if counts else None
    return Row(_whole(result["size"]), algbw, first or second, second, wrong)


def parse_table(text: str) -> Table:
    """Read the table, behind mpirun's prefixes too. Raises ValueError where there is none."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError("the table is too large")
    lines = [_MPI_PREFIX.sub("", line) for line in text.splitlines()]
    is_counted = any("#wrong" in line for line in lines)
    cells = [line.split() for line in lines]
    rows = [_row_in(row, is_counted=is_counted) for row in cells if _is_row(row)]
    found = [match for line in lines if (match := _OUT_OF_BOUNDS.match(line))]
    if not found:
        raise ValueError("no table of nccl-tests, or one that was cut short")
    return _table(rows[:MOST_ROWS], int(found[-1][1]))


def _is_row(cells: list[str]) -> bool:
    return len(cells) in _TABLE and cells[0].isdecimal() and cells[1].isdecimal()


def _row_in(cells: list[str], *, is_counted: bool) -> Row:
    """Read a row; before `#wrong` its place had the largest error, which is no count."""
    at = _TABLE[len(cells)]
    first, second = cells[at : at + 4], cells[at + 4 : at + 8]
    counts = [float(cell) * is_counted for cell in (first[3], second[3]) if cell != "N/A"]
    wrong = sum(map(_whole, counts)) if counts else None
    algbw, busbw, in_place = (_figure(float(cell)) for cell in (first[1], first[2], second[2]))
    return Row(_whole(int(cells[0][:18])), algbw, busbw, in_place, wrong)


def _table(rows: list[Row], out_of_bounds: int) -> Table:
    if not rows:
        raise ValueError("nccl-tests measured nothing")
    if not max(rows, key=lambda row: row.nbytes).algbw:
        raise ValueError("nccl-tests measured no bandwidth at its largest size")
    counts = [row.wrong for row in rows if row.wrong is not None]
    is_checked = bool(counts) or out_of_bounds > 0
    return Table(tuple(rows), max(sum(counts), out_of_bounds) if is_checked else None)


def _whole(value: Any) -> int:
    return int(_figure(value))


def _figure(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"no figure but {str(value)[:40]!r}")
    number = float(value) if abs(value) < 10**18 else math.inf
    if not 0 <= number < math.inf:
        raise ValueError(f"the figure {number}")
    return number
