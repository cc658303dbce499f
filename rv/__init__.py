"""rv: get GPUs on a busy Slurm cluster sooner. What is listed here is its Python API."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rv import helpers
    from rv.api.delayed import Checkpointable, DelayedSubmission
    from rv.api.environment import JobEnvironment
    from rv.api.errors import FailedJobError, UncompletedJobError
    from rv.api.executor import Executor
    from rv.api.executor import Executor as AutoExecutor
    from rv.api.job import Job
    from rv.api.launch import launch, launch_async, plan, plan_async
    from rv.api.race import Race
    from rv.errors import ErrorKind, RvError
    from rv.models.race import RaceState

__version__ = "0.2.0"

_WHERE = {
    "AutoExecutor": "rv.api.executor:Executor",
    "Checkpointable": "rv.api.delayed:Checkpointable",
    "DelayedSubmission": "rv.api.delayed:DelayedSubmission",
    "ErrorKind": "rv.errors:ErrorKind",
    "Executor": "rv.api.executor:Executor",
    "FailedJobError": "rv.api.errors:FailedJobError",
    "Job": "rv.api.job:Job",
    "JobEnvironment": "rv.api.environment:JobEnvironment",
    "Race": "rv.api.race:Race",
    "RaceState": "rv.models.race:RaceState",
    "RvError": "rv.errors:RvError",
    "UncompletedJobError": "rv.api.errors:UncompletedJobError",
    "helpers": "rv.helpers:",
    "launch": "rv.api.launch:launch",
    "launch_async": "rv.api.launch:launch_async",
    "plan": "rv.api.launch:plan",
    "plan_async": "rv.api.launch:plan_async",
}

__all__ = [
    "AutoExecutor",
    "Checkpointable",
    "DelayedSubmission",
    "ErrorKind",
    "Executor",
    "FailedJobError",
    "Job",
    "JobEnvironment",
    "Race",
    "RaceState",
    "RvError",
    "UncompletedJobError",
    "helpers",
    "launch",
    "launch_async",
    "plan",
    "plan_async",
]


def __getattr__(name: str) -> object:
    """Load a public name when it is first used: `import rv` costs nothing."""
    if name not in _WHERE:
        raise AttributeError(f"module 'rv' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _WHERE[name].partition(":")
    loaded = import_module(module)
    value: object = getattr(loaded, attribute) if attribute else loaded
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
