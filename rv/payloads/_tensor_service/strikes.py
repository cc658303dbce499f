"""Injected faults of what a server answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Set

LARGE = 1 << 20
LATE_S, EACH = 1.0, 4


class Strikes:
    """The faults of one server, which its connections share."""

    def __init__(self, faults: Set[str]) -> None:
        self.faults = faults
        self._answers = 0
        self._last: dict[Any, Any] = {}

    def struck(self, connection: Any, nbytes: int, result: Any) -> Any:
        """Return what is answered to a request of so many bytes in place of its result."""
        self._answers += 1
        if "late" in self.faults or (
            "late-each-fourth" in self.faults and not self._answers % EACH
        ):
            time.sleep(LATE_S)
        if "wrong-answer" in self.faults:
            return result + 1
        if "wrong-large" in self.faults and nbytes > LARGE:
            result = result.clone()
            result.view(-1)[-1] += 1
        shape = tuple(result.shape)
        before = self._last.get(shape, (connection, result))
        self._last[shape] = connection, result
        if "mixed-clients" in self.faults and before[0] != connection:
            return before[1]
        return before[1] if "stale-answer" in self.faults else result
