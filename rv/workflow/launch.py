"""Prepare a launch: snapshot, plan, scripts. A dry run shows it; `rv.workflow.start` submits it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rv import bundle
from rv.avoided_nodes import problem_of, reasons
from rv.config.gpu_models import load_catalogue
from rv.config.strategy_families import load_families
from rv.dataclass import dataclass
from rv.models.code import Code
from rv.models.plan import Plan
from rv.models.race import Chain, Race, job_name
from rv.models.request import Command, Request
from rv.models.site import Site
from rv.models.snapshot import Snapshot
from rv.planner import plan, require_feasible
from rv.race.new_race import NO_FILES, LaunchContext, script_context, scripts
from rv.render.script import ScriptContext, sbatch_line
from rv.workflow.saved_cluster import SavedCluster

if TYPE_CHECKING:
    from rv.workflow.cluster import Cluster

_NO_SITE: Final = Site()


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """A plan with the race it would become."""

    request: Request
    snapshot: Snapshot
    plan: Plan
    script: ScriptContext
    context: LaunchContext
    payloads: Mapping[str, bytes]

    @property
    def scripts(self) -> Mapping[int, str]:
        """Each submission's full script, by number."""
        from rv.workflow.templates import templates  # most dry runs render none

        rendered = scripts(self.plan.submissions, self.script, templates())
        return {submission.number: text for submission, text in rendered}

    @property
    def names(self) -> Mapping[int, str]:
        """Each submission's job name, by number."""
        return {number: job_name(self.script.race_id, number) for number in self.script.numbers}

    @property
    def sbatch_lines(self) -> Mapping[int, str]:
        """What a person would type for each submission, by number."""
        return {job.number: sbatch_line(job.strategy) for job in self.plan.submissions}


def prepare(
    request: Request,
    cluster: "Cluster | SavedCluster",
    workdir: str,
    environment: Mapping[str, str],
    now_s: float,
    site: Site = _NO_SITE,
    retry_of: str = "",
    code: Code | None = None,
    resumes: Race | None = None,
    files: Mapping[str, bytes] = NO_FILES,
) -> Launch:
    """Take a snapshot and plan.

    `retry_of` is the race that this one starts again, `code` what was sent for it, `resumes` the
    chain whose checkpoints it begins with, `files` what its directory has besides.

    Raises `RvError` where nothing can serve the request.
    """
    snapshot, planned = plan_request(request, cluster, site)
    require_feasible(planned, request)
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
        resumes=resumes,
        files=files,
    )
    payloads = payloads_of(request)
    return Launch(
        request=request,
        snapshot=snapshot,
        plan=planned,
        script=script_context(planned, request, context, _chain(request, planned), payloads),
        context=context,
        payloads=payloads,
    )


def with_command(launch: Launch, command: Command, files: Mapping[str, bytes]) -> Launch:
    """Return another race of the same plan, for another command with files of its own."""
    request = replace(launch.request, command=command)
    context = replace(launch.context, files=files)
    chain = _chain(request, launch.plan)
    script = script_context(launch.plan, request, context, chain, launch.payloads)
    return replace(launch, request=request, context=context, script=script)


def plan_request(
    request: Request, cluster: "Cluster | SavedCluster", site: Site
) -> tuple[Snapshot, Plan]:
    """Take a snapshot and plan; the planner's own data is read while the cluster answers.

    Nodes that acceptance found bad on this cluster are avoided, unless the request says otherwise.
    """
    if request.no_avoid:
        return _planned(request, cluster, site)
    snapshot, planned = _planned(request, cluster, avoiding(site, cluster.key, time.time()))
    if problem := problem_of(cluster.key):
        planned = replace(planned, notes=(*planned.notes, problem))
    return snapshot, planned


def _planned(
    request: Request, cluster: "Cluster | SavedCluster", site: Site
) -> tuple[Snapshot, Plan]:
    """Plan on a snapshot.

    Where nothing can be submitted now, the cluster is asked again unless the answer is just of now:
    another process may have had it half a minute ago.
    """
    answer = _asked(cluster)
    user_config = bundle.user_config_dir()
    catalogue = load_catalogue(user_config, site.aliases)
    families = load_families(user_config)
    if not isinstance(cluster, SavedCluster):
        from rv.workflow.past import load_past

        site = replace(site, past=load_past(cluster.cache))
    snapshot = answer()
    if not isinstance(cluster, SavedCluster):
        from rv.workflow.names import keep_names

        keep_names(cluster.cache, snapshot, catalogue)
    planned = plan(request, snapshot, catalogue, families, site)
    if planned.submissions or isinstance(cluster, SavedCluster):
        return snapshot, planned
    snapshot = cluster.take_fresh_snapshot()
    return snapshot, plan(request, snapshot, catalogue, families, site)


def _asked(cluster: "Cluster | SavedCluster") -> Callable[[], Snapshot]:
    """Ask a cluster for a snapshot, and return what waits for its answer."""
    if isinstance(cluster, SavedCluster):
        return cluster.take_snapshot
    from rv.transport.ahead import Ahead

    return Ahead(cluster.take_snapshot).answer


def avoiding(site: Site, cluster: str, now_s: float) -> Site:
    """Return the site with the nodes of a cluster that acceptance found bad."""
    return replace(site, avoided=reasons(cluster, now_s))


def _chain(request: Request, planned: Plan) -> Chain | None:
    """Return how a command that can resume is run; None for any other.

    Where each strategy has a time of its own, the longest stands for the race.
    """
    if not request.checkpoint:
        return None
    total = request.walltime
    if request.is_timed:
        raced = (strategy for job in planned.submissions for strategy in job.strategies)
        total = max((strategy.total or total for strategy in raced), default=total)
    return Chain(total=total, signal=request.checkpoint_signal)


def payloads_of(request: Request) -> Mapping[str, bytes]:
    """Return every bundled payload for a command that runs one: they share packages."""
    if request.command is None or not request.command.payload:
        return {}
    return bundle.payload_files()
