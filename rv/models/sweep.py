"""A sweep: one command run for each of many tasks, and what is known of these tasks."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from itertools import takewhile
from typing import Final

from rv.dataclass import dataclass

_NUMBER: Final = re.compile(r"\d{1,9}", re.ASCII)

BY_ITSELF: Final = ""
"""The signal of a task that ended by itself."""

TASKS_A_FOLDER: Final = 1000
"""Tasks whose files share a folder of `tasks/`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """What the record of a sweep holds; its tasks are in the file `task-list`.

    `names` are those of the --set options, () for --array; `gpus` is what one task has, and
    `most_running` how many may run at a time, 0 for any number. `carried` tasks had succeeded in
    the sweep that this one runs again.
    """

    tasks: int
    names: tuple[str, ...] = ()
    gpus: int = 1
    most_running: int = 0
    carried: int = 0

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that hold a task's values, in the order of the names."""
        return tuple(map(variable, self.names))


def variable(name: str) -> str:
    """Name the variable that holds the value of a --set option."""
    return f"RV_SET_{name.upper().replace('-', '_')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One task: its number, and its values in the order of the sweep's names."""

    number: int
    values: tuple[str, ...] = ()


def write_tasks(tasks: Iterable[Task]) -> bytes:
    """Write the file `task-list`: each task's number and values, each ended by a NUL."""
    words = (word for task in tasks for word in (str(task.number), *task.values))
    return "".join(f"{word}\0" for word in words).encode("utf-8", "surrogateescape")


def read_tasks(data: bytes, width: int) -> tuple[Task, ...]:
    """Read that file of a sweep with so many names, as far as it makes sense."""
    words = data.decode("utf-8", "surrogateescape").split("\0")[:-1]
    rows = [words[at : at + width + 1] for at in range(0, len(words), width + 1)]
    whole = takewhile(lambda row: len(row) == width + 1 and _NUMBER.fullmatch(row[0]), rows)
    return tuple(Task(number=int(row[0]), values=tuple(row[1:])) for row in whole)


class TaskState(StrEnum):
    """What is known of one task. LOST: it started, and its worker ended before it had."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    LOST = "LOST"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRun:
    """The run of a task: its worker, times in seconds since the epoch, and how it ended.

    `code` is None until it has ended; `signal` is what ended it, "" by itself.
    """

    number: int
    worker: str
    started_at: float
    ended_at: float | None = None
    code: int | None = None
    signal: str = BY_ITSELF


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRuns:
    """The tasks that were started, by number, and the workers that are known to have ended.

    `ended_workers` holds why, by worker; a worker is named by job, restart and a random token.
    `absent_since` holds, in seconds since the epoch, since when Slurm has not known a worker's job.
    """

    runs: Mapping[int, TaskRun] = field(default_factory=dict)
    ended_workers: Mapping[str, str] = field(default_factory=dict)
    absent_since: Mapping[str, float] = field(default_factory=dict)

    def state(self, number: int) -> TaskState:
        """Return the state of a task. Its own exit code is believed before all else."""
        run = self.runs.get(number)
        if run is None:
            return TaskState.WAITING
        if run.code is not None and run.signal == BY_ITSELF:
            return TaskState.FAILED if run.code else TaskState.COMPLETED
        if run.code is not None or run.worker in self.ended_workers:
            return TaskState.LOST
        return TaskState.RUNNING

    def unexplained(self) -> frozenset[str]:
        """Return the workers that left a task without an end of its own, and nobody says why."""
        open_runs = (
            run.worker for run in self.runs.values() if run.code is None or run.signal != BY_ITSELF
        )
        return frozenset(open_runs) - self.ended_workers.keys()

    def end_of(self, run: TaskRun) -> str:
        """Say what ended a task that did not end by itself."""
        known = self.ended_workers.get(run.worker, "")
        return known or (f"ended by {run.signal}" if run.signal else "")

    def of_states(self, tasks: Sequence[Task], *states: TaskState) -> tuple[Task, ...]:
        """Return the tasks that are in one of these states."""
        return tuple(task for task in tasks if self.state(task.number) in states)


NO_RUNS: Final = TaskRuns()


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskCounts:
    """How many tasks of a sweep are in which state; `carried` ones are not among `tasks`."""

    tasks: int
    done: int = 0
    failed: int = 0
    lost: int = 0
    running: int = 0
    carried: int = 0

    @property
    def waiting(self) -> int:
        """Those that were not started."""
        return self.tasks - self.done - self.failed - self.lost - self.running

    @property
    def is_settled(self) -> bool:
        """Whether each task has ended."""
        return self.done + self.failed + self.lost >= self.tasks

    @property
    def has_started(self) -> bool:
        """Whether a task ever ran."""
        return self.waiting < self.tasks


def count(sweep: Sweep, runs: TaskRuns) -> TaskCounts:
    """Count the tasks of a sweep by state."""
    states = [runs.state(number) for number in runs.runs]
    return TaskCounts(
        tasks=sweep.tasks,
        done=states.count(TaskState.COMPLETED),
        failed=states.count(TaskState.FAILED),
        lost=states.count(TaskState.LOST),
        running=states.count(TaskState.RUNNING),
        carried=sweep.carried,
    )
