"""The one table that answers are made of, and its plain columns for pipes and files."""

from collections.abc import Callable, Sequence
from typing import Final

from rv.dataclass import dataclass
from rv.slurm.printable import printable

GAP: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of cells below `head`, with rv's own `title` on a line above; `str` is plain text.

    `below` are texts that a terminal shows below each row, "" where there is none.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    title: str = ""
    below: Sequence[str] = ()

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


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cropped(line: str, columns: int) -> str:
    """Cut a line of text to so many columns of a terminal, with nothing that could control it."""
    text = printable(line)
    if text_width(text) <= columns:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, columns - 1).rstrip() + "…"


def narrowed(widths: Sequence[int], least: Sequence[int], total: int) -> list[int]:
    """Narrow the widest columns, none below its least width, until all fit into the total."""
    kept = list(widths)
    room = total - GAP * (len(widths) - 1)
    while sum(kept) > room:
        column = max(range(len(kept)), key=lambda at: (kept[at] > least[at], kept[at]))
        if kept[column] <= least[column]:
            break
        kept[column] -= 1
    return kept
