"""One launch: snapshot, plan, stage, submit, watch. The dry run is the same plan, shown."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from rv import bundle
from rv.avoided_nodes import reasons
from rv.errors import ErrorKind, RvError
from rv.models.plan import Plan
from rv.models.race import Chain, Race, RaceStatus
from rv.models.request import Request
from rv.models.site import Site
from rv.models.snapshot import Snapshot
from rv.race.directory import load_state_files
from rv.race.recover import unsent
from rv.race.stage import LaunchContext, script_context, scripts, stage
from rv.race.submit import SubmitOutcome, SubmitResult, submit
from rv.race.watch import Sink, Watch
from rv.render.script import ScriptContext, job_name, sbatch_line
from rv.workflow.cluster import Cluster, SavedCluster

_LATER: str = "--begin=now+{seconds}"
_NO_SITE = Site()


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """A plan with the race it would become."""

    request: Request
    snapshot: Snapshot
    plan: Plan
    facts: ScriptContext
    around: LaunchContext

    @property
    def scripts(self) -> Mapping[int, str]:
        """Each submission's full script, by number."""
        rendered = scripts(self.plan.submissions, self.facts, read_template)
        return {submission.number: text for submission, text in rendered}

    @property
    def names(self) -> Mapping[int, str]:
        """Each submission's job name, by number."""
        return {n: job_name(self.facts.race_id, n) for n in self.facts.numbers}

    @property
    def sbatch_lines(self) -> Mapping[int, str]:
        """What a person would type for each submission, by number."""
        return {s.number: sbatch_line(s.strategy) for s in self.plan.submissions}


def read_template(name: str) -> str:
    """Read a template, the user's own before the bundled one."""
    found = bundle.find(bundle.Kind.TEMPLATES, name, bundle.user_config_dir())
    if found is None:
        raise RvError(
            ErrorKind.CONFIG, f"no template {name!r}", hint="see templates/ for their names"
        )
    try:
        return found.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RvError(
            ErrorKind.CONFIG, f"{found}: cannot be read: {error}", hint="rename it to do without"
        ) from error


def plan_on(request: Request, target: Cluster | SavedCluster, site: Site) -> tuple[Snapshot, Plan]:
    """Take a snapshot and plan; the planner and its data are loaded while the cluster answers.

    Nodes that acceptance found bad on this cluster are avoided, unless the request says otherwise.
    """
    if not request.no_avoid:
        site = avoiding(site, target.key, time.time())
    with ThreadPoolExecutor(max_workers=1) as beside:
        asked = beside.submit(target.take_snapshot)
        from rv.planner import load_catalogue, load_families, plan

        user_config = bundle.user_config_dir()
        catalogue = load_catalogue(user_config, site.aliases)
        families = load_families(user_config)
        snapshot = asked.result()
    return snapshot, plan(request, snapshot, catalogue, families, site)


def avoiding(site: Site, cluster: str, now: float) -> Site:
    """The site, with the nodes of a cluster that acceptance found bad."""
    return replace(site, avoided=reasons(cluster, now))


def prepare(
    request: Request,
    target: Cluster | SavedCluster,
    workdir: str,
    environment: Mapping[str, str],
    now: float,
    site: Site = _NO_SITE,
    retry_of: str = "",
) -> Launch:
    """Take a snapshot and plan; `retry_of` is the race that this one starts again.

    Raises `RvError` where nothing can serve the request.
    """
    snapshot, made = plan_on(request, target, site)
    from rv.planner import require_feasible

    require_feasible(made, request)
    around = LaunchContext(
        cluster=target.key,
        race_root=target.race_root,
        workdir=workdir,
        slurm_path=target.slurm_path,
        environment=environment,
        config=snapshot.config,
        now=now,
        retry_of=retry_of,
    )
    facts = script_context(made, request, around, _chain(request))
    return Launch(request=request, snapshot=snapshot, plan=made, facts=facts, around=around)


def _chain(request: Request) -> Chain | None:
    """How a command that says it can resume is run."""
    if not request.checkpoint:
        return None
    return Chain(total=request.walltime, signal=request.checkpoint_signal)


def start(launch: Launch, target: Cluster, sink: Sink, *, detached: bool) -> Race:
    """Stage the race and send its first wave; detached, the later waves wait in Slurm's own queue.

    Raises `RvError(REFUSED)` when Slurm takes none; nothing is then in the queue.
    """
    race = stage(
        launch.plan,
        launch.request,
        launch.facts,
        launch.around,
        _payloads(launch.request),
        read_template,
        target.transport,
    )
    target.cache.forget()
    results = list(_send(race, race.waves[0], target, sink))
    for wave in race.waves[1:]:
        if detached or _all_refused(results):
            results.extend(_send(race, wave, target, sink, _later(launch.request, results)))
    if _all_refused(results):
        raise _refused(results)
    return race


def send_rest(race: Race, request: Request, target: Cluster, sink: Sink) -> None:
    """Leave the strategies that nobody has sent yet to Slurm, which holds them back a while."""
    left = unsent(race, load_state_files(race, target.transport))
    if left:
        _send(race, left, target, sink, _later(request, []))


def _later(request: Request, results: list[SubmitResult]) -> tuple[str, ...]:
    """Nobody will be there to widen the race: Slurm holds the later waves back itself.

    Not where the user says when the jobs may begin: then none of them runs before that.
    """
    if "begin" in dict(request.sbatch) or (results and _all_refused(results)):
        return ()
    return (_LATER.format(seconds=max(1, round(request.widen_after.total_seconds()))),)


def _send(
    race: Race,
    wave: tuple[int, ...],
    target: Cluster,
    sink: Sink,
    options: tuple[str, ...] = (),
) -> tuple[SubmitResult, ...]:
    results = submit(race, wave, target.transport, options=options)
    sink.submitted(results)
    return results


def _all_refused(results: list[SubmitResult]) -> bool:
    return all(
        result.outcome in (SubmitOutcome.REFUSED, SubmitOutcome.UNSENT) for result in results
    )


def _refused(results: list[SubmitResult]) -> RvError:
    text = results[0].text
    if all(result.outcome is SubmitOutcome.UNSENT for result in results):
        return RvError(ErrorKind.STAGE, text, hint="name another disk with RV_RACE_ROOT=/path")
    kind = ErrorKind.LIMIT if "MaxSubmit" in text or "policy" in text else ErrorKind.REFUSED
    return RvError(
        kind,
        f"Slurm refused every job: {text}",
        hint="rv up --dry-run shows the jobs; -p, -A, --qos and --time change them",
    )


def watch(
    race: Race, launch: Launch, target: Cluster, sink: Sink, *, until_claim: bool
) -> RaceStatus:
    """Watch the race to its end, sending the later waves when the first does not start."""
    return Watch(
        race=race,
        queue=target.queue,
        sink=sink,
        waves=list(race.waves[1:]),
        widen_after=launch.request.widen_after,
        wait_timeout=launch.request.wait_timeout,
        until_claim=until_claim,
    ).run()


def _payloads(request: Request) -> Mapping[str, bytes]:
    """Every bundled payload travels with a command that runs one: they share a helper."""
    if request.command is None or not request.command.payload:
        return {}
    return bundle.payload_files()
