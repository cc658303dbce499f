"""The names of `submitit.helpers`: with `import rv as submitit` its users change one line."""

import concurrent.futures
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rv.api.delayed import Checkpointable, DelayedSubmission
from rv.api.environment import TorchDistributedEnvironment
from rv.api.job import Job, R

__all__ = [
    "Checkpointable",
    "DelayedSubmission",
    "FunctionSequence",
    "TorchDistributedEnvironment",
    "as_completed",
]


class FunctionSequence(Checkpointable):
    """Calls that are made one after the other; interrupted, those that were made are not again."""

    def __init__(self, verbose: bool = False) -> None:  # noqa: FBT001, FBT002 - submitit's
        self.verbose = verbose
        self.delayed_functions: list[DelayedSubmission] = []

    def add(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Add a call."""
        self.delayed_functions.append(DelayedSubmission(func, *args, **kwargs))

    def __len__(self) -> int:
        return len(self.delayed_functions)

    def __iter__(self) -> Iterator[DelayedSubmission]:
        return iter(self.delayed_functions)

    def __call__(self) -> list[Any]:
        """Make those that are left; return what each returned."""
        return [call.result() for call in self.delayed_functions]


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
