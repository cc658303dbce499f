"""By the values of which software is a series judged, when its software changes? Pure.

Values of one software are comparable with each other, whatever ran between. Few of them are no
reference, so those of another software stand in until there are enough.
"""

from collections import Counter
from collections.abc import Sequence

from rv.accept.charts import LEAST_RUNS
from rv.accept.measurements import SOUND, Point


def reference_software(earlier: Sequence[Point], newest: str) -> set[str]:
    """Name the software whose values are the reference of a value that has the software `newest`.

    It is the same software where `LEAST_RUNS` of its values are sound; else the latest other one
    that has so many; else all, where they have so many together; else the same after all. `earlier`
    are the values that count, oldest first, of any software.
    """
    sound = Counter(point.fingerprint for point in earlier if point.standing == SOUND)
    if sound[newest] >= LEAST_RUNS:
        return {newest}
    other = _latest_other(earlier, newest)
    if other is not None:
        return {other}
    if sound.total() >= LEAST_RUNS:
        return {point.fingerprint for point in earlier}
    return {newest}


def _latest_other(earlier: Sequence[Point], newest: str) -> str | None:
    """Name the latest software that had enough sound values with none of `newest` between them.

    Of two that run in turn neither is new: each waits for values of its own.
    """
    found, sound = None, Counter[str]()
    for point in earlier:
        if point.fingerprint == newest:
            sound.clear()
        elif point.standing == SOUND:
            sound[point.fingerprint] += 1
            if sound[point.fingerprint] >= LEAST_RUNS:
                found = point.fingerprint
    return found
