"""An answer that is looked at again and again: drawn in its place, or said as it changes.

On a terminal it is drawn in the place of the one before, and Ctrl-C leaves the last one standing.
In a pipe or a file what has changed is written, a line each.
"""

import os
import time
from collections.abc import Mapping

from rv.ui import console
from rv.ui.redraw import STDOUT, Layout, Redrawn, can_redraw, terminal_size
from rv.ui.tables import Part


class Watched:
    """One such answer, on stdout."""

    def __init__(self) -> None:
        self.is_drawn = can_redraw(STDOUT)
        self._drawn = Redrawn(STDOUT)
        self._layout = Layout()
        self._said: tuple[Part, ...] = ()
        self._lines: dict[str, str] = {}

    @property
    def size(self) -> os.terminal_size:
        """The columns and lines of the terminal."""
        return terminal_size(STDOUT)

    def show(self, *parts: Part) -> None:
        """Show an answer as a whole, where it is another one than the last."""
        if self.is_drawn:
            self._drawn.show(self._layout.lines(parts, terminal_size(STDOUT)))
        elif parts != self._said:
            console.answer(*parts)
            self._said = parts

    def say_changes(self, lines: Mapping[str, str]) -> None:
        """Write each line that is not as it was under its key, and when that was seen."""
        now = time.strftime("%H:%M:%S")
        for key, line in lines.items():
            if self._lines.get(key) != line:
                console.answer(f"{now} {line}")
        self._lines = dict(lines)
