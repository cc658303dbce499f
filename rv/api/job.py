"""A submitted call: its state, its result, its output, in submitit's shape."""

import asyncio
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from rv.api.connection import LOG
from rv.api.delayed import DelayedSubmission
from rv.api.errors import FailedJobError, UncompletedJobError
from rv.api.pickles import (
    SUBMITTED,
    CallHeader,
    read_call_header,
    read_result_header,
    result_file,
    unpickled,
)
from rv.api.race import Race, Timeout
from rv.errors import ErrorKind, RvError
from rv.models.race import RaceState

R = TypeVar("R")

_LATE_S: Final = 30.0
_HEADER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class JobPaths:
    """Where a job's files lie: links in the executor's folder, or the race's own on a cluster."""

    folder: Path
    submitted_pickle: Path
    result_pickle: Path
    stdout: Path
    stderr: Path


class Job(Generic[R]):
    """A call that was submitted. `job_id` is its race's, of which `rv logs` and the others know.

    `folder` is the executor's. Raises `RvError(USAGE)` for an id that the cluster does not have.
    """

    def __init__(self, folder: str | Path, job_id: str, *, cluster: str = "") -> None:
        self._folder = Path(folder).expanduser().absolute()
        self._race: Race | None = Race(job_id, cluster=cluster)
        self._task: int | None = None
        self._known: CallHeader | None = None
        self._future: Future[R] | None = None

    @classmethod
    def waiting(cls, folder: Path) -> "Job[R]":
        """Return a job that is to be submitted at the end of a batch."""
        job: Job[R] = cls.__new__(cls)
        job._folder, job._race = folder, None
        job._task = job._known = job._future = None
        return job

    def submitted(self, race: Race) -> None:
        """Take the race that the call has become, and link to its files."""
        self._race = race
        if not race.is_here:
            return
        linked, own = self.paths, self._own_paths()
        try:
            linked.folder.mkdir(parents=True, exist_ok=True)
            for link, file in zip(_files(linked), _files(own), strict=True):
                link.symlink_to(file)
        except OSError as failure:  # the job runs, and has its files: only the links are missing
            LOG.info("no links for job %s: %s", race.id, failure)

    @property
    def race(self) -> Race:
        """The race behind it. Raises `RvError(USAGE)` inside of `with executor.batch()`."""
        if self._race is None:
            raise RvError(
                ErrorKind.USAGE,
                "the job is not submitted before its batch ends",
                hint="use it after the block of `with executor.batch():`",
            )
        return self._race

    @property
    def job_id(self) -> str:
        """The id of its race."""
        return self.race.id

    @property
    def task_id(self) -> int | None:
        """Which task of the job this is; None for the job itself where it has several."""
        return self._task if self.num_tasks > 1 or self._task else 0

    @property
    def num_tasks(self) -> int:
        """How many tasks it has, on all nodes; 1 of a task."""
        if self._task is not None:
            return 1
        return self._header.nodes * self._header.tasks_per_node

    def task(self, task_id: int) -> "Job[R]":
        """Return one of its tasks. Raises `ValueError` for a number that it does not have."""
        if not 0 <= task_id < self.num_tasks:
            raise ValueError(f"task_id {task_id} must be between 0 and {self.num_tasks - 1}")
        task: Job[R] = Job.waiting(self._folder)
        task._race, task._known, task._task = self._race, self._known, task_id
        return task

    @property
    def paths(self) -> JobPaths:
        """Its files."""
        return self._links() if self.race.is_here else self._own_paths()

    @property
    def state(self) -> str:
        """The state of its race: PENDING, RUNNING, COMPLETED, FAILED, TIMEOUT and so on."""
        state = self.race.state
        return str(RaceState.PENDING if state is RaceState.STAGED else state)

    def done(self, force_check: bool = False) -> bool:  # noqa: ARG002, FBT001, FBT002 - submitit's
        """Whether it is over, however it ended."""
        return self.race.done()

    def wait(self, timeout: Timeout = None) -> None:
        """Wait for its end. Raises `TimeoutError`; Ctrl-C ends the waiting alone."""
        self.race.wait(timeout)

    def result(self, timeout: Timeout = None) -> R:
        """Wait, and return what the function returned.

        Raises `FailedJobError` with the traceback where it raised, `UncompletedJobError` where
        there is no result, `TimeoutError`, and `RvError(USAGE)` for several tasks.
        """
        if self.num_tasks > 1:
            raise RvError(
                ErrorKind.USAGE, f"the job has {self.num_tasks} tasks", hint="use results()"
            )
        return self.results(timeout)[0]

    def results(self, timeout: Timeout = None) -> list[R]:
        """Wait, and return what the function returned in each task; raises as `result` does."""
        self.wait(timeout)
        return [self._load(rank) for rank in self._ranks()]

    def exception(self, timeout: Timeout = None) -> UncompletedJobError | None:
        """Wait, and return what `results` would raise; None where there are results."""
        self.wait(timeout)
        try:
            self.results()
        except UncompletedJobError as failure:
            return failure
        return None

    def future(self) -> "Future[R]":
        """Return it as a future of `concurrent.futures`, for `as_completed` and `wait`.

        The result is a list where it has several tasks. One thread waits for all of them.
        """
        from rv.api.watcher import watched

        if self._future is None:
            own: Future[Any] = Future()
            own.set_running_or_notify_cancel()
            watched(*self.race.parts).add_done_callback(lambda end: self._settle(own, end))
            self._future = own
        return self._future

    def _settle(self, own: "Future[Any]", end: "Future[Any]") -> None:
        try:
            self.race.ended(end.result())
            own.set_result(self.result() if self.num_tasks == 1 else self.results())
        except BaseException as failure:  # noqa: BLE001 - raised where it is waited for
            own.set_exception(failure)

    def awaitable(self) -> "AsyncJob[R]":
        """Return what has the waiting methods for asyncio."""
        return AsyncJob(self)

    def cancel(self, check: bool = True) -> None:  # noqa: FBT001, FBT002 - submitit's
        """Cancel it; `check` raises where nobody confirms that."""
        try:
            self.race.cancel()
        except RvError as failure:
            if check:
                raise
            warnings.warn(str(failure), stacklevel=2)

    def stdout(self) -> str | None:
        """What its nodes wrote to stdout, all tasks together; None where nothing was."""
        return self.race.logs("out") or None

    def stderr(self) -> str | None:
        """What its nodes wrote to stderr, all tasks together; None where nothing was."""
        return self.race.logs("err") or None

    def submission(self) -> DelayedSubmission:
        """Return the call as it was submitted."""
        data = self.race.read_own(SUBMITTED)
        if data is None:
            raise UncompletedJobError(f"the call of job {self.job_id} is no longer kept")
        call: DelayedSubmission = unpickled(data)
        return call

    def _ranks(self) -> Iterator[int]:
        yield from range(self.num_tasks) if self._task is None else (self._task,)

    @property
    def _header(self) -> CallHeader:
        if self._known is None:
            data = self.race.read_own(SUBMITTED, limit=_HEADER_BYTES)
            if data is None:
                hint = "rv.Race(id) is for commands"
                raise RvError(ErrorKind.USAGE, f"race {self.job_id} is no call", hint=hint)
            self._known = read_call_header(data)
        return self._known

    def _load(self, rank: int) -> R:
        """Read a task's result, which may come late over a network's file system."""
        data = self.race.read_own(result_file(rank))
        deadline = time.monotonic() + _LATE_S
        while data is None and self.race.exit_code == 0 and time.monotonic() < deadline:
            time.sleep(1)
            data = self.race.read_own(result_file(rank))
        if data is None:
            raise self.race.failure()
        try:
            header = read_result_header(data)
            value: Any = unpickled(data) if header.has_value else None
        except Exception as failure:
            told = _traceback(data)
            why = f"{type(failure).__name__}: {failure}"
            raise FailedJobError(
                f"the result of job {self.job_id} (task {rank}) cannot be read here: {why}{told}"
            ) from failure
        if header.traceback:
            cause = value if isinstance(value, BaseException) else None
            text = f"job {self.job_id} (task {rank}) raised:\n{header.traceback}"
            raise FailedJobError(text, hint=f"rv logs {self.job_id}") from cause
        result: R = value
        return result

    def _links(self) -> JobPaths:
        folder = Path(str(self._folder).replace("%j", self.job_id).replace("%A", self.job_id))
        task = self._task or 0
        return JobPaths(
            folder=folder,
            submitted_pickle=folder / f"{self.job_id}_submitted.pkl",
            result_pickle=folder / f"{self.job_id}_{task}_result.pkl",
            stdout=folder / f"{self.job_id}_{task}_log.out",
            stderr=folder / f"{self.job_id}_{task}_log.err",
        )

    def _own_paths(self) -> JobPaths:
        own = Path(self.race.directory)
        node = (self._task or 0) // self._header.tasks_per_node
        return JobPaths(
            folder=own,
            submitted_pickle=own / SUBMITTED,
            result_pickle=own / result_file(self._task or 0),
            stdout=own / f"output/node{node}.out",
            stderr=own / f"output/node{node}.err",
        )

    def _interrupt(self, timeout: bool = False) -> None:  # noqa: FBT001, FBT002 - submitit's
        """Do to a running job what a preemption would, or the end of its time; for tests."""
        self.race.interrupt(timeout=timeout)

    def __repr__(self) -> str:
        return f"Job<job_id={self._race.id if self._race else '-'}, task_id={self._task or 0}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_future": None}


class AsyncJob(Generic[R]):
    """A job whose waits do not keep the event loop waiting."""

    def __init__(self, job: Job[R]) -> None:
        self.job = job

    async def wait(self, timeout: Timeout = None) -> None:
        """Wait for its end."""
        await self.job.race.wait_async(timeout)

    async def result(self, timeout: Timeout = None) -> R:
        """Do what `Job.result` does."""
        await self.wait(timeout)
        return await asyncio.to_thread(self.job.result)

    async def results(self, timeout: Timeout = None) -> list[R]:
        """Do what `Job.results` does."""
        await self.wait(timeout)
        return await asyncio.to_thread(self.job.results)


def _files(paths: JobPaths) -> tuple[Path, ...]:
    return (paths.submitted_pickle, paths.result_pickle, paths.stdout, paths.stderr)


def _traceback(data: bytes) -> str:
    """Return the traceback of the node, which can be read where the exception cannot."""
    try:
        text = read_result_header(data).traceback
    except UncompletedJobError:
        return ""
    return f"\n{text}" if text else ""
