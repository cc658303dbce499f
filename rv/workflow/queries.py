"""Questions that change nothing: free GPUs, costs by model, and why a race waits."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final

from rv import bundle
from rv.config.gpu_models import load_catalogue
from rv.config.strategy_families import load_families
from rv.models.explanation import Change, ExplainedJob, Explanation, QueuePlace
from rv.models.job import JobRecord, JobState, WaitingJob
from rv.models.plan import Plan, PoolView, Strategy
from rv.models.race import Race, RaceState, RaceStatus
from rv.models.request import Request
from rv.models.site import Site
from rv.models.snapshot import Snapshot
from rv.planner import require_strategies
from rv.planner.report import (
    Planner,
    changes,
    cheapest,
    overview,
    planned_behind_own,
    queue_place,
    without_jobs,
)
from rv.slurm.script import new_sentinel
from rv.slurm.squeue import parse_squeue_waiting
from rv.slurm.squeue_scripts import squeue_waiting_script
from rv.transport import Transport
from rv.workflow.cluster import Cluster
from rv.workflow.launch import avoiding, plan_request
from rv.workflow.names import keep_names
from rv.workflow.races import look_at
from rv.workflow.saved_cluster import SavedCluster

_WAITS: Final = frozenset({RaceState.STAGED, RaceState.PENDING})


def free_gpus(cluster: Cluster | SavedCluster) -> tuple[PoolView, ...]:
    """Return what GPUs there are, how many are free, and who waits for them."""
    snapshot = cluster.take_snapshot()
    catalogue = load_catalogue(bundle.user_config_dir())
    if isinstance(cluster, Cluster):
        keep_names(cluster.cache, snapshot, catalogue)
    return overview(snapshot, catalogue)


def compare_costs(
    request: Request, cluster: Cluster | SavedCluster, site: Site
) -> tuple[Plan, tuple[Strategy, ...]]:
    """Plan the request, and pick the cheapest strategy of each GPU model.

    Raises `RvError` where no model can serve it.
    """
    _, plan = plan_request(request, cluster, site)
    require_strategies(plan, request)
    return plan, cheapest(plan, request)


def explain_race(race: Race, cluster: Cluster, site: Site, now_s: float) -> Explanation:
    """Say why a race waits, and what would start now; of one that does not, only how it is."""
    status, records = look_at(race, cluster, now_s)
    if status.state not in _WAITS:
        return Explanation(status=status)
    with ThreadPoolExecutor(max_workers=1) as executor:
        answer = executor.submit(_waiting, cluster.transport)
        snapshot = cluster.take_fresh_snapshot()
        waiting = answer.result()
    has_room, suggestions = _changes(race, snapshot, avoiding(site, cluster.key, now_s))
    return Explanation(
        status=status,
        jobs=_jobs(status, records, waiting or (), snapshot),
        has_room=has_room,
        changes=suggestions,
        notes=_notes(race, snapshot, is_known=waiting is not None),
    )


def _waiting(transport: Transport) -> tuple[WaitingJob, ...] | None:
    sentinel = new_sentinel()
    completed = transport.run(squeue_waiting_script(sentinel), timeout_s=25)
    return parse_squeue_waiting(completed.stdout, sentinel)


def _jobs(
    status: RaceStatus,
    records: Sequence[JobRecord],
    waiting: Sequence[WaitingJob],
    snapshot: Snapshot,
) -> tuple[ExplainedJob, ...]:
    planned = _planned_in(status, records, snapshot)
    explained = []
    for job in status.jobs:
        entry = status.race.entry(job.number)
        if entry and entry.instead_of and not job.job_id and job.state is JobState.UNKNOWN:
            continue  # a part that waits to stand in for its merged job
        partitions = entry.partition if entry else ""
        explained.append(
            ExplainedJob(
                job=job,
                partition=partitions,
                place=_best_place(status, job.job_id, partitions, waiting),
                planned_in=planned.get(job.job_id),
            )
        )
    return tuple(explained)


def _planned_in(
    status: RaceStatus, records: Sequence[JobRecord], snapshot: Snapshot
) -> dict[int, timedelta]:
    """Map jobs to how long from now Slurm plans to start them."""
    behind = planned_behind_own(snapshot, {job.job_id for job in status.jobs})
    planned = {}
    for record in records:
        if record.planned_start and record.job_id not in behind:
            planned[record.job_id] = max(record.planned_start - snapshot.taken_at, timedelta(0))
    return planned


def _best_place(
    status: RaceStatus, job_id: int, partitions: str, waiting: Sequence[WaitingJob]
) -> QueuePlace | None:
    """Return a job's foremost place in the queues of its partitions."""
    own = {job.job_id for job in status.jobs}
    places = [queue_place(job_id, name, waiting, own) for name in partitions.split(",")]
    return min(filter(None, places), key=lambda place: place.place, default=None)


def _changes(
    race: Race, snapshot: Snapshot, site: Site
) -> tuple[Strategy | None, tuple[Change, ...]]:
    """Plan again on the cluster as it would be without this race."""
    if race.request is None:
        return None, ()
    user_config = bundle.user_config_dir()
    planner = Planner(
        snapshot=without_jobs(snapshot, race.job_names),
        catalogue=load_catalogue(user_config, site.aliases),
        families=load_families(user_config),
        site=site,
    )
    has_room = planner.starts_now(race.request)
    return has_room, () if has_room else tuple(changes(race.request, planner))


def _notes(race: Race, snapshot: Snapshot, *, is_known: bool) -> tuple[str, ...]:
    notes = []
    if not is_known:
        notes.append("The queue could not be read: places in line are not known.")
    elif snapshot.hides_jobs:
        notes.append("This cluster hides other users' jobs (PrivateData): places count yours only.")
    if race.request is None:
        notes.append("An older rv did not write the request down: no change can be tried.")
    return tuple(notes)
