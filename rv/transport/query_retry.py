"""Repeat a query that got no answer: only for commands that change nothing."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError

Answer = TypeVar("Answer")

RETRY_FOR_S: Final = 6.0
"""Seconds for all tries together: a restart of a controller, not an outage."""

_FIRST_WAIT_S: Final = 0.2
_MOST_WAIT_S: Final = 2.0
_MOST_LOSS_WAIT_S: Final = 30.0
"""A site may close its door to who fails to log in too often."""


def _say_nothing(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """For how many seconds reads are tried again, and who hears that there is no answer."""

    limit_s: float = RETRY_FOR_S
    say: Callable[[str], None] = _say_nothing

    def silent(self, since_s: float) -> None:
        """Say since when there is no answer, in seconds since the epoch."""
        self.say(f"{silent_since(since_s)}: it is asked again for {self.limit_s:.0f} s")


def silent_since(since_s: float) -> str:
    """Say since when there is no answer, in seconds since the epoch."""
    since = time.strftime("%H:%M:%S", time.localtime(since_s))
    return f"Slurm has not answered since {since}"


def retry_query(
    query: Callable[[], Answer | None],
    *,
    retry_for_s: float = RETRY_FOR_S,
    on_silence: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer | None:
    """Repeat the query until it has an answer or `retry_for_s` seconds have passed; then None.

    The waits between tries grow and are random, so that many who lost the same answer do not come
    back together. A first try that took the whole time is the only one; before any other
    `on_silence` is called, once.
    """
    started_s = clock()
    answer = query()
    if answer is not None or clock() - started_s >= retry_for_s:
        return answer
    if on_silence:
        on_silence()
    from tenacity import Retrying, retry_if_result, wait_random_exponential

    sleep(_FIRST_WAIT_S)
    return Retrying(
        retry=retry_if_result(lambda result: result is None),
        stop=lambda _: clock() - started_s >= retry_for_s,
        wait=wait_random_exponential(multiplier=2 * _FIRST_WAIT_S, max=_MOST_WAIT_S),
        retry_error_callback=lambda _: None,
        sleep=sleep,
    )(query)


def outlast_loss(
    query: Callable[[], Answer],
    *,
    limit_s: float,
    say: Callable[[str], None],
    wait: Callable[[float], object] = time.sleep,
) -> Answer:
    """Do what may be done twice, again while it raises `RvError(UNREACHABLE)`, and say so once.

    The error is raised on once `limit_s` seconds have passed since the first, or where `wait`,
    which waits so many seconds, returns what is true.
    """
    lost_at_s: float | None = None
    wait_s = 0.0
    while True:
        try:
            return query()
        except RvError as error:
            now_s = time.monotonic()
            first_s = now_s if lost_at_s is None else lost_at_s
            if error.kind is not ErrorKind.UNREACHABLE or now_s - first_s >= limit_s:
                raise
            if lost_at_s is None:
                say(f"{error.message}; trying again until it is there")
            lost_at_s = first_s
            wait_s = min(2 * wait_s or 1.0, _MOST_LOSS_WAIT_S)
            if wait(wait_s):
                raise
