"""Show how far a transfer is: a bar on a terminal, nothing elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SHOWN_AFTER_S: Final = 1.0


class TransferBar:
    """A bar of bytes that shows itself where a transfer takes more than a second."""

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._done = 0
        self._began_s = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def add(self, size: int) -> None:
        """Count bytes that were transferred."""
        self._done += size
        if self._bar is None and time.monotonic() - self._began_s > _SHOWN_AFTER_S:
            self._show()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )  # fmt: skip

        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
            TimeRemainingColumn(), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task(self._title, total=self._total)
        self._bar.start()

    def __enter__(self) -> "TransferBar":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def transfer(title: str, total: int) -> Iterator[TransferBar | None]:
    """Show a transfer of so many bytes on the terminal; None where stderr is none."""
    if not sys.stderr.isatty():
        yield None
        return
    with TransferBar(title, total) as bar:
        yield bar
