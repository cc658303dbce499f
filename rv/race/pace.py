"""How often a client looks: a race directory costs the controller nothing, a query of it does."""

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

FIRST_ASK_S: Final = 3.0
_LAST_ASK_S: Final = 60.0
_RUNNING_ASK_S: Final = (30.0, 60.0)
_GROWTH: Final = 1.3
_TICK_S: Final = 1.0
_QUICK_TICK_S: Final = 0.1
_QUICK_FOR_S: Final = 10.0
_QUIET_TICK_S: Final = 2.0
_QUIET_AFTER_S: Final = 60.0
_SHARED_S: Final = 10.0


@dataclass(kw_only=True, slots=True)
class Pace:
    """When a client that began at `began_s` asks Slurm next. Times are seconds since the epoch."""

    began_s: float
    next_ask_s: float
    asked_s: float
    pause_s: float = FIRST_ASK_S

    def max_age(self, now_s: float) -> timedelta:
        """How old an answer may be that another client got: this one would learn nothing older."""
        return timedelta(seconds=min(now_s - self.asked_s, _SHARED_S))

    def ask_soon(self, now_s: float) -> None:
        """Ask again soon: something has just changed."""
        self.pause_s = FIRST_ASK_S
        self.next_ask_s = min(self.next_ask_s, now_s + FIRST_ASK_S)

    def plan_next(self, now_s: float, *, is_settled: bool) -> None:
        """Choose the next time to ask, after an answer.

        Where all is settled, as while a command runs, whose exit file tells of its end, that is
        late. Where a state is in question, such as that of a job that only accounting calls
        running, it is as soon, at first, as for a job that waits.
        """
        if is_settled:
            self.pause_s = FIRST_ASK_S
            pause_s = random.uniform(*_RUNNING_ASK_S)  # noqa: S311 - spreads load only
        else:
            self.pause_s = pause_s = min(self.pause_s * _GROWTH, _LAST_ASK_S)
        self.next_ask_s = now_s + pause_s * random.uniform(0.9, 1.1)  # noqa: S311

    def tick_s(self, now_s: float, quiet_since_s: float) -> float:
        """How long to wait before the next look at the directory: longer once all is quiet."""
        if now_s - self.began_s < _QUICK_FOR_S:
            return _QUICK_TICK_S
        return _QUIET_TICK_S if now_s - quiet_since_s > _QUIET_AFTER_S else _TICK_S


def start_pace(now_s: float, first_ask_s: float = FIRST_ASK_S) -> Pace:
    """Return the pace of a client that begins now, and asks first in so many seconds."""
    return Pace(began_s=now_s, next_ask_s=now_s + first_ask_s, asked_s=now_s)
