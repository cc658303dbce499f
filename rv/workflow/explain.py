"""Why a race waits: its jobs' records, everybody's queue, and plans of other requests."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from rv import bundle
from rv.models.explanation import Change, ExplainedJob, Explanation, WaitingJob
from rv.models.job import JobRecord, JobState
from rv.models.plan import Strategy
from rv.models.race import Race, RaceState, RaceStatus
from rv.models.site import Site
from rv.models.snapshot import Snapshot
from rv.slurm.probe import new_sentinel
from rv.slurm.waiting import parse_waiting, waiting_script
from rv.transport import Transport
from rv.workflow.cluster import Cluster
from rv.workflow.launch import avoiding
from rv.workflow.races import look_at

_WAITS = frozenset({RaceState.STAGED, RaceState.PENDING})


def explain_race(race: Race, target: Cluster, site: Site, now: float) -> Explanation:
    """Say why a race waits, and what would start now; of one that does not, only how it is."""
    status, records = look_at(race, target, now)
    if status.state not in _WAITS:
        return Explanation(status=status)
    with ThreadPoolExecutor(max_workers=1) as beside:
        asked = beside.submit(_waiting, target.transport)
        snapshot = target.take_fresh_snapshot()
        waiting = asked.result()
    jobs = _jobs(status, records, waiting or (), snapshot.taken_at)
    has_room, found = _changes(race, snapshot, avoiding(site, target.key, now))
    return Explanation(
        status=status,
        jobs=jobs,
        has_room=has_room,
        changes=found,
        notes=_notes(race, snapshot, is_known=waiting is not None),
    )


def _waiting(transport: Transport) -> tuple[WaitingJob, ...] | None:
    sentinel = new_sentinel()
    completed = transport.run(waiting_script(sentinel), timeout=25)
    return parse_waiting(completed.stdout, sentinel)


def _jobs(
    status: RaceStatus,
    records: Sequence[JobRecord],
    waiting: Sequence[WaitingJob],
    at: datetime,
) -> tuple[ExplainedJob, ...]:
    from rv.planner import queue_place

    own = {job.job_id for job in status.jobs}
    planned = {record.job_id: record.planned_start for record in records}
    explained = []
    for job in status.jobs:
        entry = status.race.entry(job.number)
        if entry and entry.instead_of and not job.job_id and job.state is JobState.UNKNOWN:
            continue  # a part that waits to stand in for its merged job
        partition = entry.partition if entry else ""
        places = (queue_place(job.job_id, name, waiting, own) for name in partition.split(","))
        start = planned.get(job.job_id)
        explained.append(
            ExplainedJob(
                job=job,
                partition=partition,
                place=min(filter(None, places), key=lambda found: found.place, default=None),
                planned_in=None if start is None else max(start - at, timedelta(0)),
            )
        )
    return tuple(explained)


def _changes(
    race: Race, snapshot: Snapshot, site: Site
) -> tuple[Strategy | None, tuple[Change, ...]]:
    """Plan again on the cluster as it would be without this race."""
    from rv.planner import Planner, changes, load_catalogue, load_families, without_jobs

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
    elif "jobs" in snapshot.config.private_data and snapshot.user != "root":
        notes.append("This cluster hides other users' jobs (PrivateData): places count yours only.")
    if race.request is None:
        notes.append("An older rv did not write the request down: no change can be tried.")
    return tuple(notes)
