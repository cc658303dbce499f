"""Do the same on several devices at once: a thread for each, started by a barrier."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Found = TypeVar("Found")


def together(devices: Sequence[str], work: Callable[[str], Found]) -> list[Found]:
    """Run `work(device)` on all devices at the same time; give what each found, in order.

    Raises what the first that failed raised, when all are done.
    """
    if len(devices) == 1:
        return [work(devices[0])]
    gate = threading.Barrier(len(devices))

    def after_all(device: str) -> Found:
        gate.wait()
        return work(device)

    with ThreadPoolExecutor(len(devices)) as pool:
        return list(pool.map(after_all, devices))
