"""Submit Python functions as races: `rv.Executor`, in the shape of submitit's."""

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from rv.api.connection import connect
from rv.api.delayed import DelayedSubmission
from rv.api.job import Job
from rv.api.launch import QUIET, Ready, get_ready
from rv.api.options import launch_options
from rv.api.parameters import Shape, as_options, checked
from rv.api.pickles import SUBMITTED, CallHeader, dumps, this_python
from rv.api.race import Race
from rv.errors import ErrorKind, RvError
from rv.models.request import DEFAULT_MAX_SUBMISSIONS, Command, Pins
from rv.render.quote import shell
from rv.workflow.cluster import Cluster
from rv.workflow.launch import Launch, prepare, with_command
from rv.workflow.options import RequestOptions
from rv.workflow.start import start_together

R = TypeVar("R")

_MODULE: Final = "rv.api.call"


class Executor:
    """Submits functions as races, with the parameters that were set.

    `folder` gets links to each job's files; `%j` in it is the job's id. `max_num_timeout` is how
    often a function with a `checkpoint` method may use its time again. `python` is the interpreter
    on the nodes, this one unless it is given. `cluster` is as everywhere in rv.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        cluster: str = "",
        max_num_timeout: int = 3,
        python: str = "",
        slurm_max_num_timeout: int | None = None,
        slurm_python: str = "",
    ) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.max_num_timeout = (
            max_num_timeout if slurm_max_num_timeout is None else slurm_max_num_timeout
        )
        self.parameters: dict[str, Any] = {}
        self._cluster = "" if cluster in ("slurm", "auto") else cluster
        self._python = python or slurm_python
        self._batch: list[tuple[Job[Any], DelayedSubmission]] | None = None

    def update_parameters(self, **parameters: Any) -> None:
        """Set parameters of submitit, or options of `rv.launch`; None leaves one as it was.

        Raises `RvError(USAGE)`, which names the nearest, for one that is neither.
        """
        if self._batch is not None:
            raise RvError(
                ErrorKind.USAGE, "parameters cannot change inside a batch", hint="set them before"
            )
        new = checked(parameters)
        as_options({**self.parameters, **new})
        self.parameters |= new

    def submit(self, fn: Callable[..., R], *args: Any, **kwargs: Any) -> Job[R]:
        """Submit the call `fn(*args, **kwargs)`; inside of a batch, at its end."""
        call = DelayedSubmission(fn, *args, **kwargs)
        if self._batch is None:
            return self._submit([call])[0]
        job: Job[R] = Job.waiting(self.folder)
        self._batch.append((job, call))
        return job

    def map_array(self, fn: Callable[..., R], *iterable: Iterable[Any]) -> list[Job[R]]:
        """Submit a call for each item, as `map` would make it; one plan serves all of them."""
        return self._submit_all([DelayedSubmission(fn, *args) for args in zip(*iterable)])  # noqa: B905 - as map does

    def submit_array(self, fns: Sequence[Callable[[], R]]) -> list[Job[R]]:
        """Submit calls of functions that take no arguments."""
        return self._submit_all([DelayedSubmission(fn) for fn in fns])

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Submit what is submitted in it together, at its end; after an exception nothing."""
        if self._batch is not None:
            raise RvError(ErrorKind.USAGE, "a batch is open already", hint="end it before another")
        batch: list[tuple[Job[Any], DelayedSubmission]] = []
        self._batch = batch
        try:
            yield
        finally:
            self._batch = None
        if not batch:
            warnings.warn("nothing was submitted inside of the batch", RuntimeWarning, stacklevel=3)
            return
        jobs, calls = zip(*batch, strict=True)
        self._submit(calls, jobs)

    def _submit_all(self, calls: Sequence[DelayedSubmission]) -> list[Job[Any]]:
        if calls:
            return self._submit(calls)
        warnings.warn("there is nothing to submit", stacklevel=3)
        return []

    def _submit(
        self, calls: Sequence[DelayedSubmission], jobs: Sequence[Job[Any]] = ()
    ) -> list[Job[Any]]:
        """Submit calls with one snapshot, a plan for each kind of them, and few round trips."""
        given, shape = as_options(self.parameters)
        given["cluster"] = given.get("cluster", "") or self._cluster
        options = _for_many(launch_options(given), len(calls), shape)
        pickles = [_pickled(call, shape) for call in calls]
        python = self._interpreter(options)
        ready = get_ready(options, _command(calls[0], shape, python))
        plans: dict[bool, Launch] = {}
        self._make_folder(ready.cluster)
        launches = []
        for call, data in zip(calls, pickles, strict=True):
            can_resume = call.checkpoint is not None
            if can_resume not in plans:
                plans[can_resume] = self._plan(ready, can_resume=can_resume)
            command = _command(call, shape, python)
            launches.append(with_command(plans[can_resume], command, {SUBMITTED: data}))
        records = start_together(launches, ready.cluster, QUIET, at_once=shape.array_parallelism)
        made = list(jobs or (Job.waiting(self.folder) for _ in calls))
        for job, record in zip(made, records, strict=True):
            job.submitted(Race.of(record, ready.cluster, options.cluster))
        return made

    def _make_folder(self, cluster: Cluster) -> None:
        """Make the part of the folder that all jobs share. Raises `RvError(STAGE)`."""
        if cluster.login:
            return
        shared = Path(str(self.folder).partition("%")[0] + "_").parent
        try:
            shared.mkdir(parents=True, exist_ok=True)
        except OSError as failure:
            raise RvError(
                ErrorKind.STAGE,
                f"the folder {shared} cannot be made: {failure.strerror}",
                hint="Executor(folder=…) names one that you may write to",
            ) from failure

    def _plan(self, ready: Ready, *, can_resume: bool) -> Launch:
        """Plan a call; one that can be interrupted may use its time several times."""
        request = ready.request
        if can_resume:
            times = 1 + self.max_num_timeout
            request = replace(request, checkpoint=True, walltime=request.walltime * times)
        return prepare(
            request,
            ready.cluster,
            ready.workdir,
            ready.environment,
            time.time(),
            ready.site,
            code=ready.code,
        )

    def _interpreter(self, options: RequestOptions) -> str:
        """Return the words that start Python on a node: this one, where its path means the same."""
        is_elsewhere = bool(options.venv or options.conda or options.container)
        if self._python or is_elsewhere or connect(options.cluster).login:
            return self._python or '"$RV_PYTHON"'
        return shell(sys.executable)


def _command(call: DelayedSubmission, shape: Shape, python: str) -> Command:
    """Return the line that makes a call; the job's own variables say which it is."""
    pins = Pins()
    if shape.nodes > 1:
        flags = (f"nodes={shape.nodes}", f"gpus_per_node={shape.gpus_per_node}")
        pins = Pins(nodes=shape.nodes, processes_per_node=shape.gpus_per_node, flags=flags)
    return Command(line=f"{python} -u -m {_MODULE}", typed=f"{call.name}(…)", pins=pins)


def _for_many(options: RequestOptions, calls: int, shape: Shape) -> RequestOptions:
    """Share the jobs of one race between many calls: the queue is not flooded."""
    if "max_submissions" in options.typed:
        return options
    most = 1 if shape.array_parallelism else max(1, DEFAULT_MAX_SUBMISSIONS // calls)
    return replace(options, max_submissions=min(options.max_submissions, most))


def _pickled(call: DelayedSubmission, shape: Shape) -> bytes:
    """Pickle a call. Raises `RvError(USAGE)` for one that cannot be."""
    header = CallHeader(
        tasks_per_node=shape.tasks_per_node,
        nodes=shape.nodes,
        path=tuple(folder for folder in sys.path if folder),
        python=this_python(),
        stderr_to_stdout=shape.stderr_to_stdout,
    )
    try:
        return dumps(header, call)
    except Exception as failure:
        why = f"{type(failure).__name__}: {failure}"
        raise RvError(
            ErrorKind.USAGE,
            f"the call of {call.name} cannot be pickled: {why}",
            hint="open files, locks and connections in the function, on the node",
        ) from failure
