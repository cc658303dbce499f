"""How often one client asks Slurm: soon at first, then more and more seldom."""

import random
from datetime import timedelta
from typing import Final

FIRST_ASK_S: Final = 3.0
_LAST_ASK_S: Final = 60.0
_RUNNING_ASK_S: Final = (30.0, 60.0)
_GROWTH: Final = 1.3
_SHARED_S: Final = 10.0


class Pace:
    """When to ask next, and how old an answer may be. Seconds since the epoch."""

    def __init__(self, now_s: float) -> None:
        self.asked_s = now_s
        self.next_ask_s = now_s + FIRST_ASK_S
        self._step_s = FIRST_ASK_S

    def most_age(self, now_s: float) -> timedelta:
        """Return how old an answer may be that another client got, to be news to this one."""
        return timedelta(seconds=min(now_s - self.asked_s, _SHARED_S))

    def ask_soon(self, now_s: float) -> None:
        """Ask in a few seconds at the latest: something is about to change."""
        self._step_s = FIRST_ASK_S
        self.next_ask_s = min(self.next_ask_s, now_s + FIRST_ASK_S)

    def begin_anew(self, now_s: float) -> None:
        """Ask as at first: something has changed, and more may follow."""
        self._step_s = FIRST_ASK_S
        self._ask_in(FIRST_ASK_S, now_s)

    def slow_down(self, now_s: float) -> None:
        """Ask later than the last time, as for what waits."""
        self._step_s = min(self._step_s * _GROWTH, _LAST_ASK_S)
        self._ask_in(self._step_s, now_s)

    def ask_seldom(self, now_s: float) -> None:
        """Ask as for a command that runs, whose exit file tells; and soon for what follows it."""
        self._step_s = FIRST_ASK_S
        self._ask_in(random.uniform(*_RUNNING_ASK_S), now_s)  # noqa: S311 - spreads load only

    def _ask_in(self, seconds: float, now_s: float) -> None:
        self.next_ask_s = now_s + seconds * random.uniform(0.9, 1.1)  # noqa: S311 - the same
