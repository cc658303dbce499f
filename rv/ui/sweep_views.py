"""A sweep: its plan, and its progress as it is followed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rv.models.plan import Plan
from rv.models.race import Race, RaceState, RaceStatus
from rv.models.sweep import Sweep, Task, TaskCounts, TaskRuns, TaskState, count
from rv.race.output import Chunk
from rv.race.submit import SubmitResult
from rv.ui.progress import Progress
from rv.ui.race_views import tasks_text
from rv.ui.redraw import Redrawn, can_redraw, terminal_size
from rv.ui.tables import Part, Table, cropped

_SHOWN: Final = 3
_STEPS: Final = 10
"""Where there is no terminal a line says each time that another tenth of the tasks has ended."""


def sweep_text(
    plan: Plan,
    commands: Sequence[str],
    workers: Mapping[int, int],
    lines: Mapping[int, str],
    limits: Iterable[str],
) -> list[Part]:
    """Lay out what a sweep would submit; `workers` and sbatch `lines` are by submission."""
    head = ("JOB", "STRATEGIES", "WORKERS", "TASKS EACH")
    rows = [
        (str(job.number), ", ".join(s.id for s in job.strategies), str(workers[job.number]),
         str(job.slots))
        for job in plan.submissions
    ]  # fmt: skip
    left = len(commands) - _SHOWN
    more = [f"  … {left} more"] if left > 0 else []
    return [
        "\n".join([f"{len(commands)} tasks:", *(f"  {c}" for c in commands[:_SHOWN]), *more]),
        Table(head=head, rows=rows),
        "\n".join(f"job {number}: {line}" for number, line in lines.items()),
        "Limits: " + "; ".join(limits),
        *plan.notes,
        *plan.job_notes,
    ]


def sweep_document(
    plan: Plan,
    commands: Sequence[str],
    workers: Mapping[int, int],
    lines: Mapping[int, str],
    limits: Iterable[str],
) -> dict[str, Any]:
    """Describe the same."""
    return {
        "tasks": len(commands),
        "commands": list(commands[:_SHOWN]),
        "arrays": [
            {
                "submission": job.number,
                "strategies": [strategy.id for strategy in job.strategies],
                "workers": workers[job.number],
                "tasks_each": job.slots,
                "sbatch": lines[job.number],
            }
            for job in plan.submissions
        ],
        "limits": list(limits),
        "notes": [*plan.notes, *plan.job_notes],
    }


def tasks_lines(race: Race, tasks: Sequence[Task], runs: TaskRuns) -> Iterator[str]:
    """Say how far a sweep is, and of each task that failed or was lost how it ended."""
    counts = count(race.sweep or Sweep(tasks=len(tasks)), runs)
    yield f"sweep {race.race_id}: {tasks_text(counts)}"
    for task in runs.of_states(tasks, TaskState.FAILED, TaskState.LOST):
        run = runs.runs[task.number]
        state = runs.state(task.number)
        end = f"exit code {run.code}" if state is TaskState.FAILED else runs.end_of(run)
        yield f"task {task.number} {state}, {end}: rv logs {race.race_id} --task {task.number}"


def tasks_document(race: Race, tasks: Sequence[Task], runs: TaskRuns) -> dict[str, Any]:
    """Describe each task of a sweep."""
    names = race.sweep.names if race.sweep else ()
    return {
        "race": race.race_id,
        "tasks": [
            {
                "task": task.number,
                "values": dict(zip(names, task.values, strict=False)),
                "state": runs.state(task.number),
                "exit_code": run.code if run else None,
                "job_id": int(run.worker.partition(".")[0]) if run else None,
            }
            for task in tasks
            for run in [runs.runs.get(task.number)]
        ],
    }


class SweepProgress:
    """Follows a sweep: in one line that is drawn again, or in a few where there is no terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._drawn = Redrawn() if can_redraw() else None
        self._said: tuple[int, bool] = (0, False)

    def say(self, text: str) -> None:
        """Say a sentence."""
        self.clear()
        self._progress.say(text)

    def submitted(self, results: Sequence[SubmitResult]) -> None:
        """Say what Slurm took and what it refused."""
        self.clear()
        self._progress.submitted(results)

    def output(self, chunk: Chunk) -> None:
        """Tasks write to files of their own."""

    def status(self, status: RaceStatus) -> None:
        """Say how far it is."""
        if self._progress.has_news(status):
            self.clear()
            self._progress.warnings(status)
        counts = status.tasks
        if counts is None or status.state.is_over:
            return
        if not counts.has_started:
            self._progress.status(status)
        elif self._drawn:
            line = f"sweep {status.race.race_id}: {tasks_text(counts)} · Ctrl-C detaches"
            self._drawn.show([cropped(line, terminal_size().columns)])
        else:
            self._say_step(status, counts)

    def finish(self, status: RaceStatus) -> None:
        """Say how it ended."""
        self.clear()
        self._progress.finish(status)

    def clear(self) -> None:
        """Leave the terminal as it was."""
        if self._drawn:
            self._drawn.clear()

    def _say_step(self, status: RaceStatus, counts: TaskCounts) -> None:
        """Say it at the first start, the first failure, and as each tenth of the tasks ended."""
        ended = counts.done + counts.failed + counts.lost
        step = (1 + ended * _STEPS // counts.tasks, counts.failed + counts.lost > 0)
        if step != self._said and status.state is RaceState.RUNNING:
            self._said = step
            self._progress.say(f"sweep {status.race.race_id}: {tasks_text(counts)}")
