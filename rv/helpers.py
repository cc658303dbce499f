"""The names of `submitit.helpers`: with `import rv as submitit` its users change one line."""

import concurrent.futures
from collections.abc import Iterator, Sequence

from rv.api.delayed import Checkpointable, DelayedSubmission
from rv.api.environment import TorchDistributedEnvironment
from rv.api.job import Job, R

__all__ = ["Checkpointable", "DelayedSubmission", "TorchDistributedEnvironment", "as_completed"]


def as_completed(
    jobs: Sequence[Job[R]], timeout: float | None = None, poll_frequency: float | None = None
) -> Iterator[Job[R]]:
    """Yield jobs as they end, however they end. Raises `TimeoutError`.

    `poll_frequency` is not needed: rv decides how often it looks.
    """
    del poll_frequency
    of_future = {job.future(): job for job in jobs}
    for future in concurrent.futures.as_completed(of_future, timeout):
        yield of_future[future]
