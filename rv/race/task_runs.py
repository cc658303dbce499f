"""What the workers of a sweep wrote: a line as a task starts, and one as it ends.

Each worker has a file of its own in `workers/`, so that looking costs the number of workers and
what is new, whatever the number of tasks. `ended/WORKER` says that a worker is over, and why.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Final

from rv.models.race import Race
from rv.models.sweep import TaskRun, TaskRuns
from rv.slurm.printable import printable
from rv.transport import Transport

ENDED: Final = "workers-ended"
ABSENT: Final = f"{ENDED}/absent"
"""Its files `absent.WORKER` say since when Slurm has not known a worker's job; empty: it does."""
WORKERS: Final = "workers"
FOLDERS: Final = (ENDED, WORKERS, "seats", "tasks")
_NAME: Final = re.compile(r"(\d{1,18}\.\d{1,18}\.[0-9a-f]{1,32})", re.ASCII)
_START: Final = re.compile(r"start (\d{1,9}) (\d{1,11}(?:\.\d{1,9})?) \.", re.ASCII)
_END: Final = re.compile(
    r"end (\d{1,9}) (\d{1,3}) (-|[A-Z]{1,9}) (\d{1,11}(?:\.\d{1,9})?) \.", re.ASCII
)
_MOMENT: Final = re.compile(r"\d{1,11}", re.ASCII)
_PIECE_BYTES: Final = 4 << 20


@dataclass(kw_only=True, slots=True)
class _Reader:
    """What was read of one sweep, and up to where in each worker's file."""

    runs: dict[int, TaskRun] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)

    def read_on(self, directory: str, transport: Transport) -> None:
        """Read the lines that are new; one that is not whole yet is left for the next time."""
        while True:
            pieces = transport.read_new(directory, [f"{WORKERS}/*"], self.offsets, _PIECE_BYTES)
            for name, data in pieces.items():
                whole = data[: data.rfind(b"\n") + 1]
                self.offsets[name] = self.offsets.get(name, 0) + len(whole)
                self._add(name.rpartition("/")[2], whole.decode("utf-8", errors="replace"))
            if sum(map(len, pieces.values())) < _PIECE_BYTES:
                return

    def _add(self, worker: str, text: str) -> None:
        if not _NAME.fullmatch(worker):
            return
        for line in text.splitlines():
            if match := _START.fullmatch(line):
                self._note(TaskRun(number=int(match[1]), worker=worker, started_at=float(match[2])))
            elif match := _END.fullmatch(line):
                self._note_end(worker, match)

    def _note(self, run: TaskRun) -> None:
        """Keep a start; what has ended is not undone by one that comes to light later."""
        known = self.runs.get(run.number)
        if known is None or known.code is None:
            self.runs[run.number] = run

    def _note_end(self, worker: str, match: re.Match[str]) -> None:
        number, ended_at = int(match[1]), float(match[4])
        known = self.runs.get(number)
        if known is None or known.worker != worker:
            known = TaskRun(number=number, worker=worker, started_at=ended_at)
        signal = match[3].removeprefix("-")
        self.runs[number] = replace(known, code=int(match[2]), signal=signal, ended_at=ended_at)


_readers: Final[dict[str, _Reader]] = {}


def task_runs_of(race: Race, transport: Transport) -> TaskRuns:
    """Read what the workers of a sweep wrote since this process read it last."""
    reader = _readers.setdefault(race.directory, _Reader())
    reader.read_on(race.directory, transport)
    files = transport.read_tree(race.directory, [f"{ENDED}/[0-9]*", f"{ABSENT}.*"])
    texts = {name: data.decode("utf-8", errors="replace").strip() for name, data in files.items()}
    since = {name.removeprefix(f"{ABSENT}."): text for name, text in texts.items() if text}
    return TaskRuns(
        runs=dict(reader.runs),
        ended_workers={
            name.removeprefix(f"{ENDED}/"): printable(text)
            for name, text in texts.items()
            if not name.startswith(ABSENT)
        },
        absent_since={
            worker: float(text) for worker, text in since.items() if _MOMENT.fullmatch(text)
        },
    )


def worker_job(worker: str) -> tuple[int, int]:
    """Return the job and the restart of a worker."""
    job, restart, _ = worker.split(".")
    return int(job), int(restart)
