"""The one table: plain columns for pipes and files, rich columns that fit a terminal's width."""

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rv.slurm.text import printable

_GAP: Final = 2
_SHORT: Final = 12
"""Columns up to this width, such as ids and states, stay whole on a narrow terminal."""

_STYLES: Final = {
    "COMPLETED": "green", "PASS": "green", "RUNNING": "cyan", "FAILED": "red", "FAIL": "red",
    "LOST": "red", "ERROR": "red", "WARN": "yellow",
}  # fmt: skip
"""The colour of a cell that is one of these words: race states and verdicts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of cells below `head`, with rv's own `title` on a line above; `str` is plain text."""

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    title: str = ""

    def __str__(self) -> str:
        """Align the cells; the last column keeps its length."""
        cells = self._cells()
        widths = _widths(cells)
        lines = [self.title] if self.title else []
        for row in cells:
            padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
            lines.append((" " * _GAP).join([*padded, row[-1]]).rstrip())
        return "\n".join(lines)

    def _cells(self) -> list[list[str]]:
        """Return head and rows without anything that could control a terminal."""
        rows = [self.head, *self.rows] if self.head else self.rows
        return [[printable(cell) for cell in row] for row in rows]

    def on_terminal(self, width: int) -> str:
        """Lay the table out for a terminal of so many columns; long cells are folded.

        Colours follow NO_COLOR and TERM. rich is imported here, as no other output needs it.
        """
        from rich import table as rich_table
        from rich.console import Console
        from rich.text import Text

        cells = self._cells()
        whole = _whole_columns(cells, width)
        head = cells.pop(0) if self.head else [""] * len(whole)
        laid_out = rich_table.Table(
            box=None, padding=(0, _GAP, 0, 0), pad_edge=False, show_header=bool(self.head)
        )
        for title, is_whole in zip(head, whole, strict=True):
            laid_out.add_column(Text(title), overflow="fold", no_wrap=is_whole)
        for row in cells:
            laid_out.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
        no_color = "NO_COLOR" in os.environ
        console = Console(
            file=io.StringIO(), force_terminal=not no_color, no_color=no_color, width=width
        )
        with console.capture() as captured:
            console.print(laid_out)
        lines = [self.title] if self.title else []
        lines.extend(line.rstrip() for line in captured.get().splitlines())
        return "\n".join(lines)


Part = str | Table
"""A paragraph of an answer; `rv.ui.console.answer` parts them with an empty line."""


def plain_text(parts: Sequence[Part]) -> str:
    """Return an answer as `rv.ui.console.answer` writes it to a pipe."""
    return "\n\n".join(map(str, parts))


def _widths(rows: Sequence[Sequence[str]], length: Callable[[str], int] = len) -> list[int]:
    return [max(length(row[at]) for row in rows) for at in range(len(rows[0]))]


def _whole_columns(rows: Sequence[Sequence[str]], width: int) -> list[bool]:
    """Say which columns are not to be folded: the short ones, where that leaves the others room."""
    from rich.cells import cell_len

    widths = _widths(rows, cell_len)
    short = [column for column in widths if column <= _SHORT]
    others = len(widths) - len(short)
    has_room = sum(short) + _GAP * len(widths) + _SHORT * others <= width
    return [has_room and column <= _SHORT for column in widths]
