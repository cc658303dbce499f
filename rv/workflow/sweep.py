"""A sweep: prepare it, follow it, and run again what did not succeed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.models.code import Code
from rv.models.race import Race, RaceStatus
from rv.models.request import NodeLimit, Request
from rv.models.site import Site
from rv.models.sweep import TASKS_A_FOLDER, Sweep, Task, TaskState, read_tasks, write_tasks
from rv.planner import require_feasible
from rv.race.directory import load_race, load_state_files, write_state_file
from rv.race.new_race import LaunchContext, script_context
from rv.race.output import OutputReader
from rv.race.watch import Sink, Watch
from rv.workflow.cluster import Cluster
from rv.workflow.launch import Launch, payloads_of, plan_request
from rv.workflow.rerun import recorded_launch
from rv.workflow.saved_cluster import SavedCluster
from rv.workflow.sweep_size import Sized, with_arrays

TASK_LIST: Final = "task-list"
_NOT_FOR_SWEEPS: Final = {
    "checkpoint": "--checkpoint",
    "container": "--container",
    "notices": "--notify",
    "outputs": "--output",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepLaunch:
    """A launch whose jobs are workers, its tasks, and how the number of workers came about."""

    launch: Launch
    sweep: Sweep
    tasks: tuple[Task, ...]
    sized: Sized


def of_one_node(request: Request) -> Request:
    """Return a request as a sweep takes it. Raises `RvError(USAGE)` for what no sweep can do."""
    for name, option in _NOT_FOR_SWEEPS.items():
        if getattr(request, name):
            raise RvError(
                ErrorKind.USAGE, f"a sweep takes no {option}", hint="rv run has it, for one command"
            )
    if request.is_timed:
        raise RvError(
            ErrorKind.USAGE,
            "--for, --work and a range of GPUs are for one command, not for a sweep",
            hint="say with --gpu how many GPUs a task has",
        )
    if request.node_limit is NodeLimit.MULTI:
        raise RvError(
            ErrorKind.USAGE, "a task of a sweep has one node", hint="leave out --multi-node"
        )
    return replace(request, node_limit=NodeLimit.SINGLE)


def prepare_sweep(
    request: Request,
    sweep: Sweep,
    tasks: Sequence[Task],
    cluster: Cluster | SavedCluster,
    workdir: str,
    environment: Mapping[str, str],
    now_s: float,
    site: Site,
    retry_of: str = "",
    code: Code | None = None,
) -> SweepLaunch:
    """Take a snapshot, plan, and make arrays of workers of the jobs. Raises as `prepare` does.

    `retry_of` is the sweep whose tasks these are: no other may be made of it.
    """
    request = of_one_node(request)
    snapshot, planned = plan_request(request, cluster, site)
    require_feasible(planned, request)
    sized = with_arrays(planned, sweep, snapshot, site)
    if not sized.plan.submissions:
        raise RvError(
            ErrorKind.LIMIT,
            f"no worker of a sweep may be submitted: {'; '.join(sized.limits)}",
            hint="rv run has no job array; rv status shows your limits",
        )
    context = LaunchContext(
        cluster=cluster.key,
        race_root=cluster.race_root,
        workdir=workdir,
        slurm_path=cluster.slurm_path,
        environment=environment,
        config=snapshot.config,
        now_s=now_s,
        retry_of=retry_of,
        code=code,
        files={TASK_LIST: write_tasks(tasks)},
    )
    payloads = payloads_of(request)
    script = script_context(sized.plan, request, context, payloads=payloads, sweep=sweep)
    launch = Launch(
        request=request,
        snapshot=snapshot,
        plan=sized.plan,
        script=script,
        context=context,
        payloads=payloads,
    )
    return SweepLaunch(launch=launch, sweep=sweep, tasks=tuple(tasks), sized=sized)


def follow_sweep(
    race: Race, cluster: Cluster, sink: Sink, wait_timeout: timedelta | None
) -> RaceStatus:
    """Watch a sweep to its end. Raises `WaitTimedOut` where no task has started in time.

    None waits for ever: the limit of a launch is for the client that launched, not for a reader.
    """
    return Watch(race=race, queue=cluster.queue, sink=sink, wait_timeout=wait_timeout).run()


def tasks_of(race: Race, cluster: Cluster) -> tuple[Task, ...]:
    """Read the tasks of a sweep. Raises `RvError(STAGE)` where they are not kept any more."""
    data = cluster.transport.read(f"{race.directory}/{TASK_LIST}")
    if data is None or race.sweep is None:
        raise RvError(
            ErrorKind.STAGE,
            f"the tasks of sweep {race.race_id} are not kept any more",
            hint="rv sweep starts it anew",
        )
    return read_tasks(data, len(race.sweep.names))


def task_output(
    race: Race, number: int, cluster: Cluster, streams: Collection[str]
) -> OutputReader:
    """Return what reads the output of a task; of one that was carried over, of the sweep it ran in.

    Raises `RvError(USAGE)` for a task that there is not.
    """
    found: Race | None = race
    while found and found.sweep:
        numbers = [task.number for task in tasks_of(found, cluster)]
        if number in numbers:
            folder = f"tasks/{numbers.index(number) // TASKS_A_FOLDER}"
            return OutputReader(
                found, cluster.transport, number, streams, task_files=f"{folder}/{number}"
            )
        earlier = found.retry_of
        found = load_race(f"{cluster.race_root}/{earlier}", cluster.transport) if earlier else None
    hint = "rv logs alone lists tasks" if race.sweep else "rv logs --node is of a race's node"
    raise RvError(ErrorKind.USAGE, f"{race.race_id} has no task {number}", hint=hint)


def prepare_all(
    race: Race, request: Request, cluster: Cluster, site: Site, now_s: float
) -> SweepLaunch:
    """Prepare all tasks of a sweep again, as one that has nothing to do with it."""
    tasks = tasks_of(race, cluster)
    return _prepare_again(race, request, tasks, cluster, site, now_s)


def prepare_unfinished(
    race: Race, request: Request, cluster: Cluster, site: Site, now_s: float
) -> SweepLaunch:
    """Prepare the tasks of a sweep that have no success, as a sweep that carries the others over.

    The sweep must be over, and none of its tasks starts any more. By the workers' own files, read
    now: a task may have succeeded since its state was last told.
    Raises `RvError(USAGE)` where all have succeeded.
    """
    tasks = tasks_of(race, cluster)
    write_state_file(race, "stop", "run again\n", cluster.transport)
    runs = load_state_files(race, cluster.transport).tasks
    left = tuple(task for task in tasks if runs.state(task.number) is not TaskState.COMPLETED)
    if not left:
        raise RvError(
            ErrorKind.USAGE, f"all tasks of sweep {race.race_id} succeeded", hint="rv ps lists it"
        )
    carried = len(tasks) - len(left) + (race.sweep.carried if race.sweep else 0)
    return _prepare_again(
        race, request, left, cluster, site, now_s, carried=carried, retry_of=race.race_id
    )


def _prepare_again(
    race: Race,
    request: Request,
    tasks: tuple[Task, ...],
    cluster: Cluster,
    site: Site,
    now_s: float,
    carried: int = 0,
    retry_of: str = "",
) -> SweepLaunch:
    """Prepare tasks of a sweep on the cluster as it is now, as the sweep was recorded."""
    recorded = recorded_launch(race, cluster.transport)
    cluster.cache.forget()
    return prepare_sweep(
        request,
        replace(race.sweep or Sweep(tasks=0), tasks=len(tasks), carried=carried),
        tasks,
        replace(cluster, answer=None),
        recorded.workdir,
        recorded.environment,
        now_s,
        site,
        retry_of=retry_of,
        code=recorded.code,
    )
