"""Plan and launch from Python: the steps of `rv up`, without a word on the terminal."""

import asyncio
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from rv import bundle
from rv.api.connection import connect
from rv.api.handle import Handle
from rv.api.options import Options, launch_options
from rv.api.quiet import LOG, QUIET
from rv.api.race import Race, race_of
from rv.dataclass import dataclass
from rv.errors import RvError
from rv.models.code import Code
from rv.models.plan import Plan
from rv.models.race import Race as RaceRecord
from rv.models.request import Command, Request
from rv.models.site import Site
from rv.planner import require_feasible
from rv.workflow.cluster import Cluster, Early
from rv.workflow.command_line import KnownFiles, from_line, from_words
from rv.workflow.environments import (
    job_environment,
    planned,
    umask,
    with_environment,
    working_directory,
)
from rv.workflow.launch import Launch, plan_request, prepare
from rv.workflow.options import RequestOptions
from rv.workflow.read_options import build_request, patience_s
from rv.workflow.saved_cluster import saved_cluster
from rv.workflow.start import start_together


def plan(
    command: str | Sequence[str] | None = None, *, snapshot: str = "", **options: Unpack[Options]
) -> Plan:
    """Return what `launch` would submit, ranked, and what it would not, each with its reason.

    Nothing is submitted. `snapshot` is a file of `rv snapshot` to plan on in place of a cluster.
    Raises `RvError(INFEASIBLE)` where nothing can serve the request.
    """
    read = launch_options(options)
    request = build_request(read, _command(command) if command is not None else None)
    place = saved_cluster(snapshot) if snapshot else _connect(read)
    request = planned(request, place.race_root)
    _, made = plan_request(request, place, _site(read, request, place.key))
    require_feasible(made, request)
    return made


def launch(command: str | Sequence[str], **options: Unpack[Options]) -> Race:
    """Race for GPUs, run a command in the first that start, and return at once.

    `command` is a shell line, or a program with its arguments. Nobody has to watch: the race goes
    on when this process ends, and `rv.Race(id)` finds it again.
    Raises `RvError` where nothing was submitted.
    """
    read = launch_options(options)
    ready = get_ready(read, _command(command))
    made = ready.prepared(ready.request, resumes=_resumed(ready.request, ready.cluster))
    for note in (*made.plan.notes, *made.plan.job_notes):
        LOG.info(note)
    (record,) = start_together([made], ready.cluster, QUIET)
    return race_of(Handle(record, ready.cluster, read.cluster))


async def plan_async(
    command: str | Sequence[str] | None = None, *, snapshot: str = "", **options: Unpack[Options]
) -> Plan:
    """Do what `plan` does, without keeping the event loop waiting."""
    return await asyncio.to_thread(plan, command, snapshot=snapshot, **options)


async def launch_async(command: str | Sequence[str], **options: Unpack[Options]) -> Race:
    """Do what `launch` does, without keeping the event loop waiting; cancelled, so is the race."""
    launching = asyncio.create_task(asyncio.to_thread(launch, command, **options))
    try:
        return await asyncio.shield(launching)
    except asyncio.CancelledError:
        with suppress(RvError):  # of a race that nobody would know of
            await asyncio.to_thread((await launching).cancel)
        raise


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """All that a plan and its jobs are made of, but for the plan."""

    request: Request
    cluster: Cluster
    workdir: str
    environment: Mapping[str, str]
    site: Site
    code: Code | None

    def prepared(self, request: Request, *, resumes: RaceRecord | None = None) -> Launch:
        """Plan; nothing is submitted. Raises `RvError` where nothing can serve the request."""
        return prepare(
            request,
            self.cluster,
            self.workdir,
            self.environment,
            time.time(),
            self.site,
            code=self.code,
            resumes=resumes,
        )


def get_ready(options: RequestOptions, command: Command) -> Ready:
    """Find the cluster, and have there what the command needs: its environment and its code."""
    cluster = _connect(options)
    workdir, environ = working_directory(), dict(os.environ)
    if cluster.login:
        workdir, environ = cluster.login.home, dict(cluster.login.environ)
    request = build_request(options, command)
    variables = job_environment(options, environ) | {"RV_UMASK": umask()}
    request = with_environment(request, cluster, workdir, LOG.info)
    return Ready(
        request=request,
        cluster=cluster,
        workdir=workdir,
        environment=variables,
        site=_site(options, request, cluster.key),
        code=_send_code(options, command, cluster),
    )


def _connect(options: RequestOptions) -> Cluster:
    return connect(options.cluster, Early.PLAN, patience_s(options))


def _site(options: RequestOptions, request: Request, cluster: str) -> Site:
    """Return what is known of the site; of its GPUs' rates too where the plan needs them."""
    if not request.is_timed:
        return options.config.site
    from rv.accept.rates import rated

    return rated(options.config.site, cluster)


def _command(command: str | Sequence[str]) -> Command:
    """Read a command against the current directory. Raises `RvError(USAGE)`."""
    nearby: tuple[str, ...] = ()
    with suppress(OSError):
        nearby = tuple(path.name for path in Path().iterdir())
    payloads = tuple(name.removesuffix(".py") for name in bundle.payload_names())
    around = KnownFiles(is_file=os.path.isfile, payloads=payloads, nearby=nearby)
    if isinstance(command, str):
        return replace(from_line(command, around), typed=command)
    return replace(from_words(command, around), typed=shlex.join(command))


def _send_code(options: RequestOptions, command: Command, cluster: Cluster) -> Code | None:
    """Send the work tree to a cluster that is elsewhere; None where nothing is to be sent."""
    if cluster.login is None or command.payload or options.no_sync:
        return None
    from rv.workflow.sync import find_project, send_project

    here, named = working_directory(), options.send or ()
    project = find_project(cluster, here, named, or_else="no_sync=True")
    if project is None:
        return None
    return send_project(project, project.read(), cluster, lambda _: None).code


def _resumed(request: Request, cluster: Cluster) -> RaceRecord | None:
    """Return the chain of this name that this one goes on from; None for most launches."""
    if not request.checkpoint:
        return None
    from rv.workflow.resume import chain_to_resume

    status = chain_to_resume(request, cluster, time.time(), LOG.info)
    if status is None or status.saved_at is None:
        return None
    LOG.info("goes on from the checkpoints of race %s", status.race.race_id)
    return status.race
