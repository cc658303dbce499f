"""A submitted call: its state, its result, its output, in submitit's shape."""

import asyncio
import time
import warnings
from concurrent.futures import Future
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from rv.api.delayed import DelayedSubmission
from rv.api.errors import FailedJobError, UncompletedJobError
from rv.api.handle import Handle, Timeout, find_handle
from rv.api.pickles import (
    RAISED,
    SUBMITTED,
    CallHeader,
    ResultHeader,
    read_call_header,
    read_result_header,
    result_file,
    unpickled,
)
from rv.api.quiet import LOG
from rv.api.race import Race, race_of
from rv.errors import ErrorKind, RvError
from rv.models.race import RaceState

R = TypeVar("R")

_LATE_S: Final = 30.0
_SOON_S: Final = 5.0
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
        self._begin(Path(folder).expanduser().absolute(), find_handle(job_id, cluster))

    def _begin(self, folder: Path, handle: Handle | None, task: int | None = None) -> None:
        """Be the job of a race, or without one a job that is submitted at its batch's end."""
        self._folder, self._submitted, self._task = folder, handle, task
        self._known: CallHeader | None = None
        self._future: Future[R] | None = None

    @property
    def _handle(self) -> Handle:
        if self._submitted is None:
            raise RvError(
                ErrorKind.USAGE,
                "the job is not submitted before its batch ends",
                hint="use it after the block of `with executor.batch():`",
            )
        return self._submitted

    @property
    def race(self) -> Race:
        """The race behind it. Raises `RvError(USAGE)` inside of `with executor.batch()`."""
        return race_of(self._handle)

    @property
    def job_id(self) -> str:
        """The id of its race."""
        return self._handle.record.race_id

    @property
    def task_id(self) -> int | None:
        """Which task of the job this is; None for the job itself where it has several."""
        if self._task is not None:
            return self._task
        return 0 if self.num_tasks == 1 else None

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
        if self.num_tasks == 1:
            return self
        return new_job(self._folder, self._handle, task_id)

    @property
    def paths(self) -> JobPaths:
        """Its files."""
        task = self._task or 0
        return self._links(task) if self._handle.is_here else self._own_paths(task)

    @property
    def state(self) -> str:
        """The state of its race: PENDING, RUNNING, COMPLETED, FAILED, TIMEOUT and so on."""
        state = self._handle.look().state
        return str(RaceState.PENDING if state is RaceState.STAGED else state)

    def done(self, force_check: bool = False) -> bool:  # noqa: ARG002, FBT001, FBT002 - submitit's
        """Whether it is over, however it ended."""
        return self._handle.look().state.is_over

    def wait(self, timeout: Timeout = None) -> None:
        """Wait for its end. Raises `TimeoutError`; Ctrl-C ends the waiting alone."""
        self._handle.wait(timeout)

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
        ranks = range(self.num_tasks) if self._task is None else (self._task,)
        return [self._load(rank) for rank in ranks]

    def exception(self, timeout: Timeout = None) -> UncompletedJobError | None:
        """Wait, and return what `results` would raise; None where there are results."""
        try:
            self.results(timeout)
        except UncompletedJobError as failure:
            return failure
        return None

    def future(self) -> "Future[R]":
        """Return it as a future of `concurrent.futures`, for `as_completed` and `wait`.

        The result is a list where it has several tasks. One thread waits for all of them.
        """
        if self._future is None:
            own: Future[Any] = Future()
            own.set_running_or_notify_cancel()
            self._handle.future().add_done_callback(lambda end: self._settle(own, end))
            self._future = own
        return self._future

    def _settle(self, own: "Future[Any]", end: "Future[Any]") -> None:
        try:
            end.result()
            own.set_result(self.result() if self.num_tasks == 1 else self.results())
        except BaseException as failure:  # noqa: BLE001 - raised where it is waited for
            own.set_exception(failure)

    def awaitable(self) -> "AsyncJob[R]":
        """Return what has the waiting methods for asyncio."""
        return AsyncJob(self)

    def cancel(self, check: bool = True) -> None:  # noqa: FBT001, FBT002 - submitit's
        """Cancel it; `check` raises where nobody confirms that."""
        try:
            self._handle.cancel()
        except RvError as failure:
            if check:
                raise
            warnings.warn(str(failure), stacklevel=2)

    def stdout(self) -> str | None:
        """What its nodes wrote to stdout, all tasks together; None where nothing was."""
        return self._handle.read("out") or None

    def stderr(self) -> str | None:
        """What its nodes wrote to stderr, all tasks together; None where nothing was."""
        return self._handle.read("err") or None

    def submission(self) -> DelayedSubmission:
        """Return the call as it was submitted. Raises `UncompletedJobError` where it is gone."""
        data = self._handle.read_own(SUBMITTED)
        if data is None:
            raise UncompletedJobError(f"the call of job {self.job_id} is no longer kept")
        read_call_header(data)
        call: DelayedSubmission = _read_here(data, f"the call of job {self.job_id}")
        return call

    @property
    def _header(self) -> CallHeader:
        if self._known is None:
            data = self._handle.read_own(SUBMITTED, limit=_HEADER_BYTES)
            if data is None:
                hint = "rv.Race(id) is for commands"
                raise RvError(ErrorKind.USAGE, f"race {self.job_id} is no call", hint=hint)
            self._known = read_call_header(data)
        return self._known

    def _load(self, rank: int) -> R:
        """Read a task's result."""
        data = self._result_file(rank)
        what = f"job {self.job_id} (task {rank})"
        if data is None and self._handle.code() == 0:
            hint = f"os._exit() in the function leaves none, nor does rm; rv logs {self.job_id}"
            raise UncompletedJobError(f"{what} ended with code 0 and left no result", hint=hint)
        if data is None:
            raise self._handle.failure()
        header = read_result_header(data)
        if header.traceback:
            text = f"{what} raised:\n{header.traceback}"
            raise FailedJobError(text, hint=f"rv logs {self.job_id}") from _cause(data, header)
        result: R = _read_here(data, f"the result of {what}")
        return result

    def _result_file(self, rank: int) -> bytes | None:
        """Read the file, which may come some time after the end over a network's file system."""
        data = self._handle.read_own(result_file(rank))
        until_s = self._may_come_until(time.time()) if data is None else 0.0
        while data is None and time.time() < until_s:
            time.sleep(1)
            data = self._handle.read_own(result_file(rank))
        return data

    def _may_come_until(self, now_s: float) -> float:
        """Return until when a result may still come; 0 where the call has left none."""
        status = self._handle.look()
        if status.state is RaceState.FAILED and status.exit_code == RAISED:
            return now_s + _SOON_S
        if self._handle.code() != 0:
            return 0.0
        ended_s = min(now_s, status.ended_at or now_s)
        return max(now_s + _SOON_S, ended_s + _LATE_S)

    def _links(self, rank: int) -> JobPaths:
        job, task = self.job_id, f"{self.job_id}_{rank}"
        folder = Path(str(self._folder).replace("%j", job).replace("%A", job))
        names = (f"{job}_submitted.pkl", f"{task}_result.pkl", f"{task}_log.out", f"{task}_log.err")
        return JobPaths(folder, *(folder / name for name in names))

    def _own_paths(self, task: int) -> JobPaths:
        own = Path(self._handle.record.directory)
        output = f"output/node{task // self._header.tasks_per_node}"
        names = (SUBMITTED, result_file(task), f"{output}.out", f"{output}.err")
        return JobPaths(own, *(own / name for name in names))

    def _become(self, handle: Handle, header: CallHeader) -> None:
        """Take the race that the call has become, and link to its files."""
        self._submitted, self._known = handle, header
        if not handle.is_here:
            return
        files: dict[Path, Path] = {}  # all tasks share the call
        for task in range(self.num_tasks):
            links, own = self._links(task), self._own_paths(task)
            files |= zip(astuple(links)[1:], astuple(own)[1:], strict=True)
        try:
            self.paths.folder.mkdir(parents=True, exist_ok=True)
            for link, file in files.items():
                link.symlink_to(file)
        except OSError as failure:  # the job runs, and has its files: only the links are missing
            LOG.info("no links for job %s: %s", self.job_id, failure)

    def _interrupt(self, timeout: bool = False) -> None:  # noqa: FBT001, FBT002 - submitit's
        """Do to a running job what a preemption would, or the end of its time; for tests."""
        self._handle.interrupt(timeout=timeout)

    def __repr__(self) -> str:
        job_id = self.job_id if self._submitted else "-"
        return f"Job<job_id={job_id}, task_id={self._task or 0}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_future": None}


def new_job(folder: Path, handle: Handle | None = None, task: int | None = None) -> Job[Any]:
    """Return the job of a race, or one that waits for the end of its batch."""
    job: Job[Any] = Job.__new__(Job)
    job._begin(folder, handle, task)  # noqa: SLF001 - made here
    return job


def give_race(job: Job[Any], handle: Handle, header: CallHeader) -> None:
    """Let a job of a batch be that race's."""
    job._become(handle, header)  # noqa: SLF001 - nobody else's business


class AsyncJob(Generic[R]):
    """A job whose waits do not keep the event loop waiting. `poll_interval` is not needed."""

    def __init__(self, job: Job[R]) -> None:
        self.job = job

    async def wait(self, poll_interval: float = 0, *, timeout: Timeout = None) -> None:
        """Wait for its end."""
        del poll_interval
        await self.job.race.wait_async(timeout)

    async def result(self, poll_interval: float = 0, *, timeout: Timeout = None) -> R:
        """Do what `Job.result` does."""
        await self.wait(poll_interval, timeout=timeout)
        return await asyncio.to_thread(self.job.result)

    async def results(self, poll_interval: float = 0, *, timeout: Timeout = None) -> list[R]:
        """Do what `Job.results` does."""
        await self.wait(poll_interval, timeout=timeout)
        return await asyncio.to_thread(self.job.results)


def _read_here(data: bytes, what: str) -> Any:
    try:
        return unpickled(data)
    except Exception as failure:
        why = f"{type(failure).__name__}: {failure}"
        hint = "it needs the modules and the Python that it was made with"
        raise UncompletedJobError(f"{what} cannot be read here: {why}", hint=hint) from failure


def _cause(data: bytes, header: ResultHeader) -> BaseException | None:
    """Return the exception of the node, None where it cannot be read here."""
    try:
        value = unpickled(data) if header.has_value else None
    except Exception:  # noqa: BLE001 - the traceback of the node says all
        return None
    return value if isinstance(value, BaseException) else None
