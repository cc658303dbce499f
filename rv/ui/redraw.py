"""A few lines at the bottom of the terminal that are written again in their place."""

import os
from collections.abc import Sequence
from typing import Final

from rv.ui import console
from rv.ui.tables import Part, cropped

_UP: Final = "\x1b[{}F"
_CLEAR_BELOW: Final = "\x1b[J"


STDOUT: Final = 1
STDERR: Final = 2


def can_redraw(fd: int = STDERR) -> bool:
    """Return whether an output is a terminal on which the cursor can be moved."""
    return os.isatty(fd) and os.environ.get("TERM") not in (None, "", "dumb")


def terminal_size(fd: int = STDERR) -> os.terminal_size:
    """Return the columns and lines of the terminal that an output is."""
    try:
        size = os.get_terminal_size(fd)
    except OSError:
        size = os.terminal_size((80, 24))
    return size if size.columns and size.lines else os.terminal_size((80, 24))


class Layout:
    """Parts of an answer as a terminal shows them; one that did not change is not laid out again.

    Texts are cut to the terminal's columns, tables fit them. No more lines are returned than stand
    above the cursor on the terminal; the last of these says how many there would be.
    """

    def __init__(self) -> None:
        self._columns = 0
        self._laid_out: list[tuple[Part, list[str]]] = []

    def lines(self, parts: Sequence[Part], size: os.terminal_size) -> list[str]:
        """Lay the parts out, one below the other."""
        kept = self._laid_out if size.columns == self._columns else []
        self._columns = size.columns
        self._laid_out = [(part, _kept(part, kept) or _laid_out(part, size)) for part in parts]
        lines = [line for _, laid_out in self._laid_out for line in laid_out]
        most = max(1, size.lines - 1)
        if len(lines) <= most:
            return lines
        return [*lines[: most - 1], cropped(f"… {len(lines) - most + 1} more lines", size.columns)]


def _kept(part: Part, kept: Sequence[tuple[Part, list[str]]]) -> list[str] | None:
    return next((lines for other, lines in kept if other == part), None)


def _laid_out(part: Part, size: os.terminal_size) -> list[str]:
    if isinstance(part, str):
        return [cropped(line, size.columns) for line in part.split("\n")]
    return console.part_text(part, size.columns).split("\n")


class Redrawn:
    """Lines that stand above the cursor until they are cleared or replaced.

    The terminal may be resized meanwhile: what it has folded by then is counted as it stands.
    """

    def __init__(self, fd: int = STDERR) -> None:
        self._fd = fd
        self._lines: tuple[str, ...] = ()
        self._columns = 0

    def show(self, lines: Sequence[str]) -> None:
        """Replace the lines, each at most as wide as the terminal; write nothing for the same."""
        columns = terminal_size(self._fd).columns
        if tuple(lines) == self._lines and columns == self._columns:
            return
        console.draw(self._back() + "".join(f"{line}\n" for line in lines), self._fd)
        self._lines, self._columns = tuple(lines), columns

    def clear(self) -> None:
        """Remove the lines."""
        if self._lines:
            console.draw(self._back(), self._fd)
            self._lines = ()

    def _back(self) -> str:
        """Return what brings the cursor to the first line and clears all below it."""
        if not self._lines:
            return ""
        from rich.text import Text

        columns = terminal_size(self._fd).columns
        lengths = (Text.from_ansi(line).cell_len for line in self._lines)
        rows = sum(max(1, -(-length // columns)) for length in lengths)
        return _UP.format(rows) + _CLEAR_BELOW
