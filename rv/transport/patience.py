"""Repeat a question while nobody answers it: only for what changes nothing."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

Answer = TypeVar("Answer")

BUDGET_S: Final = 6.0
"""Seconds for all tries together: a restart of a controller, not an outage."""

_FIRST_WAIT_S: Final = 0.2
_MOST_WAIT_S: Final = 2.0


def ask_again(
    ask: Callable[[], Answer | None],
    *,
    budget: float = BUDGET_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer | None:
    """Ask until there is an answer, or until `budget` seconds have passed; then None.

    The waits between tries grow and are drawn at random, so that many who lost the same answer do
    not come back together. A first try that took the whole budget is the only one.
    """
    begun = clock()
    answer = ask()
    left = budget - (clock() - begun)
    if answer is not None or left <= 0:
        return answer
    from tenacity import Retrying, retry_if_result, stop_after_delay, wait_random_exponential

    sleep(_FIRST_WAIT_S)
    return Retrying(
        retry=retry_if_result(lambda found: found is None),
        stop=stop_after_delay(left),
        wait=wait_random_exponential(multiplier=2 * _FIRST_WAIT_S, max=_MOST_WAIT_S),
        retry_error_callback=lambda _: None,
        sleep=sleep,
    )(ask)
