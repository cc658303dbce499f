"""A race that waits, on a terminal: one table that is drawn again in its place.

What is worth keeping is said above it, as where there is no terminal; the command's output follows
in its place.
"""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rv.models.race import RaceStatus
from rv.race.output import Chunk
from rv.race.submit import SubmitResult
from rv.race.watch import DetachRequested
from rv.ui.keys import Keys
from rv.ui.progress import Progress
from rv.ui.redraw import Layout, Redrawn, terminal_size
from rv.ui.wait_views import wait_headline, wait_keys, wait_table

_LEAVE: Final = "d"
_KEPT_LINES: Final = 4
"""Lines of the terminal that the jobs' rows leave free: headline, head, cursor and one above."""


class LiveWait:
    """Draws a race until it has a winner, and has all else said by `Progress`.

    `ctrl_c` is what Ctrl-C does meanwhile, cancels or detaches; with `may_leave`, the key d leaves
    the race to Slurm.
    """

    def __init__(self, progress: Progress, *, ctrl_c: str, may_leave: bool) -> None:
        self._progress = progress
        self._ctrl_c = ctrl_c
        self._may_leave = may_leave
        self._drawn = Redrawn()
        self._layout = Layout()
        self._keys = Keys()

    def __enter__(self) -> Self:
        """Nothing is drawn before there is something to show."""
        return self

    def say(self, text: str) -> None:
        """Say a sentence."""
        self._drawn.clear()
        self._progress.say(text)

    def submitted(self, results: Sequence[SubmitResult]) -> None:
        """Say what Slurm took and what it refused."""
        self._drawn.clear()
        self._progress.submitted(results)

    def status(self, status: RaceStatus) -> None:
        """Draw a race that waits. Raises `DetachRequested` where d was pressed."""
        if status.claim or status.state.is_over:
            self._end()
            self._progress.status(status)
            return
        if self._progress.has_news(status):
            self._drawn.clear()
            self._progress.warnings(status)
        if self._may_leave:
            self._keys.open()
        if _LEAVE in self._keys.pressed():
            raise DetachRequested
        self._drawn.show(self._lines(status))

    def output(self, chunk: Chunk) -> None:
        """Pass output on."""
        self._end()
        self._progress.output(chunk)

    def finish(self, status: RaceStatus) -> None:
        """Say how it ended."""
        self._end()
        self._progress.finish(status)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        self._end()

    def _end(self) -> None:
        self._drawn.clear()
        self._keys.close()

    def _lines(self, status: RaceStatus) -> list[str]:
        size = terminal_size()
        keys = wait_keys(self._ctrl_c, leave=_LEAVE if self._keys.is_open else "")
        now_s = time.time()
        table = wait_table(status, now_s, max(1, size.lines - _KEPT_LINES))
        return self._layout.lines([wait_headline(status, now_s, keys, size.columns), table], size)
