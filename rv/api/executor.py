"""Submit Python functions as races: `rv.Executor`, in the shape of submitit's."""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from rv.api.connection import connect
from rv.api.delayed import DelayedSubmission
from rv.api.handle import Handle
from rv.api.job import Job, give_race, new_job
from rv.api.launch import Ready, get_ready
from rv.api.options import launch_options
from rv.api.parameters import Shape, as_options, checked, require_fit
from rv.api.pickles import SUBMITTED, CallHeader, dumps, this_python
from rv.api.quiet import QUIET
from rv.errors import ErrorKind, RvError
from rv.models.request import DEFAULT_MAX_SUBMISSIONS, Command, Pins, Request
from rv.render.quote import shell
from rv.workflow.cluster import Cluster
from rv.workflow.launch import with_command
from rv.workflow.options import RequestOptions
from rv.workflow.start import start_together

R = TypeVar("R")

_MODULE: Final = "rv.api.call"
_GB: Final = 1 << 30


class Executor:
    """Submits functions as races, with the parameters that were set.

    `folder` gets links to each job's files; `%j` in it is the job's id. `max_num_timeout` is how
    often a function with a `checkpoint` method may use its time again, `max_pickle_size_gb` what
    the calls that are submitted together may take. `python` is the interpreter on the nodes, this
    one unless it is given. `cluster` is as everywhere in rv.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        cluster: str = "",
        max_num_timeout: int = 3,
        max_pickle_size_gb: float = 1.0,
        python: str = "",
        slurm_max_num_timeout: int | None = None,
        slurm_python: str = "",
    ) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.max_num_timeout = (
            max_num_timeout if slurm_max_num_timeout is None else slurm_max_num_timeout
        )
        self.max_pickle_size_gb = max_pickle_size_gb
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
        require_fit({**self.parameters, **new})
        self.parameters |= new

    def submit(self, fn: Callable[..., R], *args: Any, **kwargs: Any) -> Job[R]:
        """Submit the call `fn(*args, **kwargs)`; inside of a batch, at its end."""
        call = DelayedSubmission(fn, *args, **kwargs)
        if self._batch is None:
            return self._submit([call])[0]
        job: Job[R] = new_job(self.folder)
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
        header = _header(shape)
        pickles = self._pickled_all(calls, header)
        python = self._interpreter(options)
        ready = get_ready(options, _command(calls[0], shape, python))
        resuming = [call.checkpoint is not None for call in calls]
        plans = {
            each: ready.prepared(self._asked(ready, can_resume=each)) for each in set(resuming)
        }
        self._make_folder(ready.cluster)
        launches = [
            with_command(plans[can_resume], _command(call, shape, python), {SUBMITTED: data})
            for call, data, can_resume in zip(calls, pickles, resuming, strict=True)
        ]
        records = start_together(launches, ready.cluster, QUIET, at_once=shape.array_parallelism)
        made = list(jobs or (new_job(self.folder) for _ in calls))
        for job, record in zip(made, records, strict=True):
            give_race(job, Handle(record, ready.cluster, options.cluster), header)
        return made

    def _pickled_all(self, calls: Sequence[DelayedSubmission], header: CallHeader) -> list[bytes]:
        pickles: list[bytes] = []
        left = self.max_pickle_size_gb * _GB
        for call in calls:
            pickles.append(_pickled(call, header))
            left -= len(pickles[-1])
            if left < 0:
                raise RvError(
                    ErrorKind.USAGE,
                    f"the pickles of {len(calls)} calls are more than {self.max_pickle_size_gb} GB",
                    hint="save a large object to a file and pass its path, or set"
                    " Executor(folder, max_pickle_size_gb=…)",
                )
        return pickles

    def _asked(self, ready: Ready, *, can_resume: bool) -> Request:
        """Return the request; a call that can be interrupted may use its time several times."""
        if not can_resume:
            return ready.request
        walltime = ready.request.walltime * (1 + self.max_num_timeout)
        return replace(ready.request, checkpoint=True, walltime=walltime)

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
    waits = 0 < shape.array_parallelism < calls  # for the end of an earlier one, which has one job
    most = 1 if waits else max(1, DEFAULT_MAX_SUBMISSIONS // calls)
    return replace(options, max_submissions=min(options.max_submissions, most))


def _header(shape: Shape) -> CallHeader:
    return CallHeader(
        tasks_per_node=shape.tasks_per_node,
        nodes=shape.nodes,
        path=tuple(folder for folder in sys.path if folder),
        python=this_python(),
        stderr_to_stdout=shape.stderr_to_stdout,
    )


def _pickled(call: DelayedSubmission, header: CallHeader) -> bytes:
    """Pickle a call. Raises `RvError(USAGE)` for one that cannot be."""
    try:
        return dumps(header, call)
    except Exception as failure:
        why = f"{type(failure).__name__}: {failure}"
        raise RvError(
            ErrorKind.USAGE,
            f"the call of {call.name} cannot be pickled: {why}",
            hint="open files, locks and connections in the function, on the node",
        ) from failure
