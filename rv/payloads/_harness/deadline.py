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
ENDS = (signal.SIGTERM, signal.SIGINT)


class _Masks(threading.local):
    """The signals that were blocked before each fork that this thread is in."""

    def __init__(self) -> None:
        self.before: list[set[int | signal.Signals]] = []


_masks = _Masks()


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
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_forget)

    def wait() -> None:
        deadline, why, code = time.monotonic() + timeout_s, f"not done after {timeout_s:g} s", 124
        while not stopped.is_set():
            ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
            signals = os.read(reading, 64) if ready else b""
            number = next((n for n in signals if n in ENDS), 0)
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


def interrupt_no_more(then: Callable[[], object]) -> None:
    """Let TERM and INT call `then` from now on, in the main thread; `end` follows as before."""
    for number in ENDS:
        signal.signal(number, lambda *_: then())


def _hold() -> None:
    """Block signals while a child is forked, which shares the pipe with its parent.

    A pool or a loader may end a worker at once: the parent would read that as a signal of its own,
    and the child, which forgets what came before its handlers were reset, would not end.
    """
    _masks.before.append(signal.pthread_sigmask(signal.SIG_BLOCK, ENDS))


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before.pop())


def _forget() -> None:
    """Restore TERM's default in a forked child; one that came meanwhile ends it now."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release()


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(number)
