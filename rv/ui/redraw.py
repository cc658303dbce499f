"""A few lines at the bottom of the terminal that are written again in their place, on stderr."""

import os
import sys
from collections.abc import Sequence
from typing import Final

from rv.ui import console

_UP: Final = "\x1b[{}F"
_CLEAR_BELOW: Final = "\x1b[J"


def can_redraw() -> bool:
    """Return whether stderr is a terminal on which the cursor can be moved."""
    return sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def terminal_size() -> os.terminal_size:
    """Return the columns and lines of the terminal that stderr is."""
    try:
        size = os.get_terminal_size(2)
    except OSError:
        size = os.terminal_size((80, 24))
    return size if size.columns and size.lines else os.terminal_size((80, 24))


class Redrawn:
    """Lines that stand above the cursor until they are cleared or replaced.

    The terminal may be resized meanwhile: what it has folded by then is counted as it stands.
    """

    def __init__(self) -> None:
        self._lines: tuple[str, ...] = ()
        self._columns = 0

    def show(self, lines: Sequence[str]) -> None:
        """Replace the lines, each at most as wide as the terminal; write nothing for the same."""
        columns = terminal_size().columns
        if tuple(lines) == self._lines and columns == self._columns:
            return
        console.draw(self._back() + "".join(f"{line}\n" for line in lines))
        self._lines, self._columns = tuple(lines), columns

    def clear(self) -> None:
        """Remove the lines."""
        if self._lines:
            console.draw(self._back())
            self._lines = ()

    def _back(self) -> str:
        """Return what brings the cursor to the first line and clears all below it."""
        if not self._lines:
            return ""
        from rich.text import Text

        columns = terminal_size().columns
        lengths = (Text.from_ansi(line).cell_len for line in self._lines)
        rows = sum(max(1, -(-length // columns)) for length in lengths)
        return _UP.format(rows) + _CLEAR_BELOW
