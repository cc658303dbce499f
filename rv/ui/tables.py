"""The one table that answers are made of, and its plain columns for pipes and files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rv.slurm.values import printable

GAP: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of cells below `head`, with rv's own `title` on a line above; `str` is plain text."""

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    title: str = ""

    def __str__(self) -> str:
        """Align the cells; the last column keeps its length."""
        cells = self.cells()
        widths = column_widths(cells)
        lines = [self.title] if self.title else []
        for row in cells:
            padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
            lines.append((" " * GAP).join([*padded, row[-1]]).rstrip())
        return "\n".join(lines)

    def cells(self) -> list[list[str]]:
        """Return head and rows without anything that could control a terminal."""
        rows = [self.head, *self.rows] if self.head else self.rows
        return [[printable(cell) for cell in row] for row in rows]


Part = str | Table
"""A paragraph of an answer; `rv.ui.console.answer` parts them with an empty line."""


def plain_text(parts: Sequence[Part]) -> str:
    """Return an answer as `rv.ui.console.answer` writes it to a pipe."""
    return "\n\n".join(map(str, parts))


def column_widths(rows: Sequence[Sequence[str]], length: Callable[[str], int] = len) -> list[int]:
    """Return the length of each column's longest cell."""
    return [max(length(row[at]) for row in rows) for at in range(len(rows[0]))]
