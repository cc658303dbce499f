"""End a payload that hangs or is signalled to stop, with its result written.

A collective that waits for ever blocks the main thread in C, where no Python signal handler runs.
So a thread of its own waits for the end of the time, and for signals on Python's wakeup descriptor.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

GRACE = 5.0  # seconds for the main thread to end by itself after a signal


def watch(timeout_s: float, end: Callable[[str, int], None]) -> Callable[[], None]:
    """Call `end(why, exit code)` in a thread of its own after `timeout_s`, or after a signal.

    TERM and INT become KeyboardInterrupt in the main thread; `end` follows after a grace if that
    did not end it. The function returned stops the watch. Call from the main thread.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    stopped = threading.Event()
    previous = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _interrupt)
    os.register_at_fork(after_in_child=_forget)

    def wait() -> None:
        deadline, why, code = time.monotonic() + timeout_s, f"not done after {timeout_s:g} s", 124
        while not stopped.is_set():
            ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
            signals = os.read(reading, 64) if ready else b""
            number = next((n for n in signals if n in (signal.SIGTERM, signal.SIGINT)), 0)
            if number:
                why, code = f"stopped by {signal.Signals(number).name}", 128 + number
                deadline = time.monotonic() + GRACE
            elif not ready and not stopped.is_set():
                end(why, code)

    def stop() -> None:
        stopped.set()
        signal.set_wakeup_fd(previous)
        os.write(writing, b"\0")

    threading.Thread(target=wait, name="deadline", daemon=True).start()
    return stop


def _forget() -> None:
    """Restore TERM's default in a forked child, which shares the pipe with its parent."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(number)
