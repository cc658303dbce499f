"""A job's place in the line of its partition."""

from collections.abc import Collection, Iterable
from typing import Final

from rv.models.explanation import Standing, WaitingJob

_NOT_YET: Final = frozenset(
    {"BeginTime", "Dependency", "DependencyNeverSatisfied", "JobHeldAdmin", "JobHeldUser"}
)


def standing(
    job_id: int, partition: str, waiting: Iterable[WaitingJob], own: Collection[int]
) -> Standing | None:
    """Return the place by priority, then by age; None for a job that is held, or not waiting.

    `own` are the jobs of the same race, which are no rivals. Those that may not start yet, whatever
    is free, are not in the line.
    """
    line = [
        job
        for job in waiting
        if partition in job.partitions
        and (job.job_id == job_id or job.job_id not in own)
        and job.priority
        and job.reason not in _NOT_YET
    ]
    order = [job.job_id for job in sorted(line, key=lambda job: (-job.priority, job.job_id))]
    if job_id not in order:
        return None
    return Standing(partition=partition, place=order.index(job_id) + 1, waiting=len(order))
