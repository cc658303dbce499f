"""submitit's parameters, read as rv's options."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from rv.api.options import Options, launch_options, unfit
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.spelling import suggestion

_COUNTS: Final[Sequence[str]] = (
    "gpus_per_node",
    "gpus_per_task",
    "nodes",
    "tasks_per_node",
    "cpus_per_task",
    "cpus_per_gpu",
    "timeout_min",
    "signal_delay_s",
    "array_parallelism",
)
"""Parameters that are whole numbers, from which options are computed."""

_SHARED: Final = (
    *("name", "nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task"),
    *("mem_gb", "timeout_min", "stderr_to_stdout"),
)
"""Parameters that submitit has for every kind of cluster; `slurm_` before one wins over it."""

_SAME: Final = ("partition", "account", "qos", "constraint", "exclude", "mem", "setup")
"""Parameters for Slurm that are options of rv."""

_OF_SLURM: Final[Mapping[str, str]] = {
    **{name: name for name in (*_COUNTS, *_SHARED, *_SAME, "use_srun")},
    "job_name": "name",
    "time": "timeout_min",
    "ntasks_per_node": "tasks_per_node",
    "additional_parameters": "sbatch",
}
"""What a parameter means that has `slurm_` before it; any other goes on to sbatch."""

_INSTEAD: Final[Mapping[str, str]] = {
    "slurm_gres": "gpus_per_node=4, and types=['a100'] where it must be that model",
    "slurm_num_gpus": "gpus_per_node=4",
    "slurm_mem_per_gpu": "mem_gb, which is of a node",
    "slurm_mem_per_cpu": "mem_gb, which is of a node",
    "slurm_dependency": "wait for the other job, then submit",
    "slurm_comment": "name",
    "slurm_max_num_timeout": "Executor(folder, max_num_timeout=3)",
    "slurm_srun_args": "tasks_per_node",
    "slurm_teardown": "a finally: in the function",
}
"""What is asked for in another way."""

_OTHER_CLUSTERS: Final = ("local_", "debug_")
"""What begins so is for submitit's other executors, and nothing here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How a job is spread: tasks on nodes. `array_parallelism` 0 is for no limit."""

    nodes: int = 1
    tasks_per_node: int = 1
    gpus_per_node: int = 0
    array_parallelism: int = 0
    stderr_to_stdout: bool = False


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that are set. Raises `RvError(USAGE)` for one that nobody knows."""
    kept = {}
    for name, value in given.items():
        if value is None or name.startswith(_OTHER_CLUSTERS):
            continue
        if name in _INSTEAD:
            hint = f"use instead: {_INSTEAD[name]}"
            raise RvError(ErrorKind.USAGE, f"rv takes no {name}", hint=hint)
        if not name.startswith("slurm_") and not is_known(name):
            known = [*_SHARED, *Options.__annotations__, *(f"slurm_{each}" for each in _OF_SLURM)]
            hint = suggestion(name, known, "slurm_NAME passes an option on to sbatch")
            raise RvError(ErrorKind.USAGE, f"{name!r} is no parameter", hint=hint)
        kept[name] = value
    return kept


def is_known(name: str) -> bool:
    """Whether a parameter of this name is one without Slurm's prefix."""
    return name in _SHARED or name in Options.__annotations__


def require_fit(given: Mapping[str, Any]) -> None:
    """Raise `RvError(USAGE)` for values that no job can have."""
    launch_options(as_options(given)[0])


def as_options(given: Mapping[str, Any]) -> tuple[Options, Shape]:
    """Return rv's options, and how the job is spread. Raises `RvError(USAGE)`."""
    found, extra = _separated(given)
    found.pop("use_srun", None)
    counts = {name: _count(name, found.pop(name)) for name in _COUNTS if name in found}
    shape = _shape(counts, stderr_to_stdout=bool(found.pop("stderr_to_stdout", False)))
    if "mem_gb" in found:
        found.setdefault("mem", _gigabytes(found.pop("mem_gb")))
    if extra:
        found["sbatch"] = {**found.get("sbatch", {}), **extra}
    return cast("Options", found | _spread(shape, counts, found)), shape


def _separated(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what rv knows, by its own name, and what goes on to sbatch."""
    found = {name: value for name, value in given.items() if not name.startswith("slurm_")}
    extra = {}
    for name, value in given.items():
        of_slurm = name.removeprefix("slurm_")
        if of_slurm == name:
            continue
        if of_slurm in _OF_SLURM:
            found[_OF_SLURM[of_slurm]] = value
        else:
            extra[of_slurm.replace("_", "-")] = value
    return found, extra


def _count(name: str, value: Any) -> int:
    expected = "int; time='2h' takes a text" if name == "timeout_min" else "int"
    if isinstance(value, bool):
        raise unfit(name, value, expected)
    try:
        return operator.index(value)
    except TypeError:
        raise unfit(name, value, expected) from None


def _gigabytes(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise unfit("mem_gb", value, "number; mem='500M' takes a text")
    return f"{value}G"


def _shape(counts: Mapping[str, int], *, stderr_to_stdout: bool) -> Shape:
    tasks, nodes = counts.get("tasks_per_node", 1), counts.get("nodes", 1)
    gpus = counts.get("gpus_per_node", counts.get("gpus_per_task", 0) * tasks)
    if min(tasks, nodes) < 1 or gpus < 0:
        raise RvError(ErrorKind.USAGE, "a job has one node and one task at least", hint="nodes=1")
    if nodes > 1 and not gpus:
        raise RvError(
            ErrorKind.USAGE, "several nodes without GPUs are not raced", hint="gpus_per_node=1"
        )
    if counts.get("array_parallelism", 1) < 1:
        raise unfit("array_parallelism", counts["array_parallelism"], "1 or more")
    return Shape(
        nodes=nodes,
        tasks_per_node=tasks,
        gpus_per_node=gpus,
        array_parallelism=counts.get("array_parallelism", 0),
        stderr_to_stdout=stderr_to_stdout,
    )


def _spread(shape: Shape, counts: Mapping[str, int], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that follow from the numbers."""
    found: dict[str, Any] = {}
    if "gpus" not in options and not options.get("mig"):
        found["gpus"] = shape.gpus_per_node * shape.nodes
    if shape.gpus_per_node > 1 or shape.nodes > 1:
        found["multi_node" if shape.nodes > 1 else "single_node"] = True
    if "cpus_per_task" in counts:
        found["cpus"] = counts["cpus_per_task"] * shape.tasks_per_node
    elif "cpus_per_gpu" in counts:
        found["cpus"] = counts["cpus_per_gpu"] * max(1, shape.gpus_per_node)
    if "timeout_min" in counts:
        found["time"] = f"{counts['timeout_min']}m"
    if "signal_delay_s" in counts:
        found["checkpoint_buffer"] = f"{counts['signal_delay_s']}s"
    return found
