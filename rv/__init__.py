"""rv: get GPUs on a busy Slurm cluster sooner."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rv.api.errors import FailedJobError, UncompletedJobError
    from rv.api.launch import launch, launch_async, plan, plan_async
    from rv.api.race import Race
    from rv.errors import ErrorKind, RvError
    from rv.models.race import RaceState

__version__ = "0.1.0"

_WHERE = {
    "ErrorKind": "rv.errors",
    "FailedJobError": "rv.api.errors",
    "Race": "rv.api.race",
    "RaceState": "rv.models.race",
    "RvError": "rv.errors",
    "UncompletedJobError": "rv.api.errors",
    "launch": "rv.api.launch",
    "launch_async": "rv.api.launch",
    "plan": "rv.api.launch",
    "plan_async": "rv.api.launch",
}

__all__ = [
    "ErrorKind",
    "FailedJobError",
    "Race",
    "RaceState",
    "RvError",
    "UncompletedJobError",
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

    value: object = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
