"""Whether the races of many calls fit into what their user may still submit."""

from collections import Counter
from collections.abc import Sequence

from rv.errors import ErrorKind, RvError
from rv.models.plan import Plan


def require_room(plans: Sequence[Plan]) -> None:
    """Raise `RvError(LIMIT)` where not each of the races can have a job in the queue.

    A plan alone is known to fit; jobs that wait for others are submitted too, and count.
    """
    taken: Counter[str] = Counter()
    for fitting, plan in enumerate(plans):
        rooms = [dict(plan.room.get(job.number, ())) for job in plan.submissions]
        free = [room for room in rooms if all(taken[name] < left for name, left in room.items())]
        if not free:
            names = ", ".join(sorted({name for room in rooms for name in room}))
            raise RvError(
                ErrorKind.LIMIT,
                f"{len(plans)} races are more than you may submit now: {names} leaves room for"
                f" {fitting} (MaxSubmit)",
                hint=f"submit {fitting} at a time, and the next when those have ended; what waits"
                " counts too, so that slurm_array_parallelism makes no room",
            )
        taken.update(free[0].keys())
