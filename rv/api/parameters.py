"""submitit's parameters, read as rv's options."""

from collections.abc import Mapping
from typing import Any, Final

from rv.api.options import Options
from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.spelling import suggestion

_SAME: Final[Mapping[str, str]] = {
    "name": "name",
    "slurm_job_name": "name",
    "slurm_partition": "partition",
    "slurm_account": "account",
    "slurm_qos": "qos",
    "slurm_constraint": "constraint",
    "slurm_exclude": "exclude",
    "slurm_mem": "mem",
    "slurm_setup": "setup",
    "slurm_additional_parameters": "sbatch",
}
"""Parameters that are an option of rv under another name."""

_COUNTED: Final[Mapping[str, str]] = {
    "gpus_per_node": "gpus_per_node",
    "slurm_gpus_per_node": "gpus_per_node",
    "slurm_gpus_per_task": "gpus_per_task",
    "nodes": "nodes",
    "slurm_nodes": "nodes",
    "tasks_per_node": "tasks_per_node",
    "slurm_ntasks_per_node": "tasks_per_node",
    "cpus_per_task": "cpus_per_task",
    "slurm_cpus_per_task": "cpus_per_task",
    "slurm_cpus_per_gpu": "cpus_per_gpu",
    "timeout_min": "timeout_min",
    "slurm_time": "timeout_min",
    "slurm_signal_delay_s": "signal_delay_s",
    "slurm_array_parallelism": "array_parallelism",
}
"""Parameters that are numbers, from which options are computed."""

_OTHERS: Final = ("mem_gb", "stderr_to_stdout", "slurm_stderr_to_stdout", "slurm_use_srun")

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
    for name in given:
        if name in _INSTEAD and given[name] is not None:
            raise RvError(
                ErrorKind.USAGE, f"rv takes no {name}", hint=f"use instead: {_INSTEAD[name]}"
            )
        if not name.startswith("slurm_") and name not in _known():
            hint = suggestion(name, _known(), "slurm_NAME passes an option on to sbatch")
            raise RvError(ErrorKind.USAGE, f"{name!r} is no parameter", hint=hint)
    return {name: value for name, value in given.items() if value is not None}


def is_known(name: str) -> bool:
    """Whether a parameter of this name is one without Slurm's prefix."""
    return name in _known()


def _known() -> list[str]:
    return [*_SAME, *_COUNTED, *_OTHERS, *Options.__annotations__]


def as_options(given: Mapping[str, Any]) -> tuple[Options, Shape]:
    """Return rv's options, and how the job is spread. Raises `RvError(USAGE)`."""
    options: dict[str, Any] = {
        name: value for name, value in given.items() if name in Options.__annotations__
    }
    counts: dict[str, int] = {}
    extra: dict[str, object] = {}
    for name, value in given.items():
        if name in _SAME:
            options[_SAME[name]] = value
        elif name in _COUNTED:
            counts[_COUNTED[name]] = _count(name, value)
        elif name.startswith("slurm_") and name not in _OTHERS:
            extra[name.removeprefix("slurm_").replace("_", "-")] = value
    if "mem_gb" in given:
        options["mem"] = f"{given['mem_gb']}G"
    if extra:
        options["sbatch"] = {**options.get("sbatch", {}), **extra}
    shape = _shape(counts, given)
    options |= _spread(shape, counts, options)
    return options, shape  # type: ignore[return-value] # its values are read by launch_options


def _count(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        hint = "time='2h' takes a text" if "time" in name else ""
        raise RvError(ErrorKind.USAGE, f"{name} is no number: {value!r}", hint=hint) from None


def _shape(counts: Mapping[str, int], given: Mapping[str, Any]) -> Shape:
    tasks = counts.get("tasks_per_node", 1)
    gpus = counts.get("gpus_per_node", counts.get("gpus_per_task", 0) * tasks)
    nodes = counts.get("nodes", 1)
    if min(tasks, nodes) < 1 or gpus < 0:
        raise RvError(ErrorKind.USAGE, "a job has one node and one task at least", hint="nodes=1")
    if nodes > 1 and not gpus:
        raise RvError(
            ErrorKind.USAGE, "several nodes without GPUs are not raced", hint="gpus_per_node=1"
        )
    return Shape(
        nodes=nodes,
        tasks_per_node=tasks,
        gpus_per_node=gpus,
        array_parallelism=counts.get("array_parallelism", 0),
        stderr_to_stdout=any(given.get(name) for name in _OTHERS[1:3]),
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
