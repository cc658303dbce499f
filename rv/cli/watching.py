"""Look at something again and again, for commands with --watch."""

import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from rv.errors import ErrorKind, RvError
from rv.transport.query_retry import silent_since
from rv.ui import console

Seen = TypeVar("Seen")

_TICK_S: Final = 1.0
_SHARE: Final = 9.0
"""A look that takes long, such as over ssh, is followed by so many times its length without one."""


def looks(look: Callable[[], Seen], pause_s: float) -> Iterator[Seen]:
    """Yield what is seen, every second, and look anew after `pause_s`, while somebody reads."""
    while console.has_reader():
        began_s = time.monotonic()
        seen = look()
        took_s = time.monotonic() - began_s
        next_look_s = began_s + took_s + max(pause_s, _SHARE * took_s)
        yield seen
        while (left_s := next_look_s - time.monotonic()) > 0 and console.has_reader():
            time.sleep(min(left_s, _TICK_S))
            if left_s > _TICK_S:
                yield seen


def answers_once(option: str) -> RvError:
    """Return the error for an option that makes no sense with --watch."""
    return RvError(ErrorKind.USAGE, f"{option} answers once", hint="leave out --watch")


def watch_notice(where: str, silent_since_s: float | None) -> str:
    """Say what is watched, since when Slurm is silent, where it is, and how to end it."""
    silence = "" if silent_since_s is None else silent_since(silent_since_s)
    return " · ".join(filter(None, (silence, where, "Ctrl-C ends")))
