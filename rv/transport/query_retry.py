"""Repeat a query that got no answer: only for commands that change nothing."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

Answer = TypeVar("Answer")

RETRY_FOR_S: Final = 6.0
"""Seconds for all tries together: a restart of a controller, not an outage."""

_FIRST_WAIT_S: Final = 0.2
_MOST_WAIT_S: Final = 2.0


def retry_query(
    query: Callable[[], Answer | None],
    *,
    retry_for_s: float = RETRY_FOR_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer | None:
    """Repeat the query until it has an answer or `retry_for_s` seconds have passed; then None.

    The waits between tries grow and are random, so that many who lost the same answer do not come
    back together. A first try that took the whole time is the only one.
    """
    started_s = clock()
    answer = query()
    left_s = retry_for_s - (clock() - started_s)
    if answer is not None or left_s <= 0:
        return answer
    from tenacity import Retrying, retry_if_result, stop_after_delay, wait_random_exponential

    sleep(_FIRST_WAIT_S)
    return Retrying(
        retry=retry_if_result(lambda result: result is None),
        stop=stop_after_delay(left_s),
        wait=wait_random_exponential(multiplier=2 * _FIRST_WAIT_S, max=_MOST_WAIT_S),
        retry_error_callback=lambda _: None,
        sleep=sleep,
    )(query)
