"""An answer that is drawn again in its place; in a pipe or a file, one answer after the other."""

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rv.ui import console
from rv.ui.tables import Part

if TYPE_CHECKING:
    from rich.live import Live


class Screen:
    """Shows answers, each in the place of the one before, where stdout is a terminal."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def __enter__(self) -> Self:
        """Begin to draw. rich is imported here, for terminals alone."""
        if sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb"):
            from rich.live import Live

            self._live = Live(auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live.start()
        return self

    def show(self, *parts: Part) -> None:
        """Show an answer."""
        if self._live is None:
            console.answer(*parts)
            return
        from rich.text import Text

        self._live.update(Text.from_ansi(console.answer_text(*parts)), refresh=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the last answer where it stands."""
        if self._live is not None:
            self._live.stop()
