"""Columns chosen and cells cut so that a table fits a width, and nothing is folded. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Self

from rv.dataclass import dataclass
from rv.slurm.printable import printable
from rv.ui.tables import GAP, Table, cropped, narrowed, text_width

NOTHING: Final = "-"
EXTRA: Final = 5
"""Columns from this rank on are shown where the others have what they want."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column of a table that is laid out for a width.

    Where there is no room, `short` cells take the place of the others, then the columns of the
    highest `rank` are left out, then cells are cut, to `least` columns each where that is not 0.
    A column of rank 0 is always shown; those of rank `EXTRA` on only where this one has `wanted`.
    """

    title: str
    cells: Sequence[str]
    short: Sequence[str] = ()
    rank: int = 0
    least: int = 0
    wanted: int = 0

    @property
    def is_told(self) -> bool:
        """Whether the column is always shown, or has something to say."""
        return not self.rank or bool(set(self.cells) - {NOTHING})

    def with_cells(self, cells: Sequence[str]) -> Self:
        """Return the column with other cells, as they can be printed."""
        return replace(self, cells=list(map(printable, cells)))

    @property
    def width(self) -> int:
        """The length of the longest cell, or of the title."""
        return max(map(text_width, (self.title, *self.cells)))

    def at_least(self, columns: int) -> int:
        """What the column needs to show so much of its cells, or all of them."""
        return min(self.width, max(columns, text_width(self.title))) if self.least else self.width


def fitted(columns: Sequence[Column], width: int) -> Table:
    """Lay columns out within `width` columns of a terminal, all of them in full for 0.

    One that has nothing to say is left out, unless its rank is 0.
    """
    told = [column for column in columns if column.is_told]
    if not width:
        return _table(told)
    kept = [column.with_cells(column.cells) for column in told]
    if _total([column.width for column in kept]) > width:
        kept = [column.with_cells(column.short or column.cells) for column in told]
    return _table(_cut_to(width, _shown(kept, width)))


def _shown(columns: Sequence[Column], width: int) -> list[Column]:
    """Leave out the columns for which there is no room."""
    kept = list(columns)
    while _needed(kept) > width and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
    return kept


def _needed(columns: Sequence[Column]) -> int:
    has_extras = any(column.rank >= EXTRA for column in columns)
    return _total([c.at_least(max(c.least, c.wanted) if has_extras else c.least) for c in columns])


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _cut_to(width: int, columns: Sequence[Column]) -> list[Column]:
    least = [column.at_least(column.least) for column in columns]
    widths = narrowed([column.width for column in columns], least, width)
    return list(map(_cut, columns, widths))


def _cut(column: Column, most: int) -> Column:
    return replace(column, cells=[cropped(cell, most) for cell in column.cells])


def _table(columns: Sequence[Column]) -> Table:
    rows = list(zip(*(column.cells for column in columns), strict=True))
    return Table(head=[column.title for column in columns], rows=rows)
