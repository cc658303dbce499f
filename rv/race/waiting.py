"""A race that nobody has won yet: what it waits for, or how it ended without a start. Pure."""

from collections.abc import Sequence
from typing import Final

from rv.models.job import JobState, is_live
from rv.models.race import JobStatus, Race, RaceState, StateFiles
from rv.race.sources import BY_SLURM, RACE_STATE, Sources
from rv.race.unconfirmed import KEPT_S, age, patience, unconfirmed, unconfirmed_text

STAGED_GRACE_S: Final = 300.0
"""How long a race may sit without any submission before it counts as never submitted."""

_HELD: Final = {
    "jobhelduser": "held by its user, and `scontrol release {id}` lets it go",
    "jobheldadmin": "held by an administrator, who can `scontrol release {id}`",
    "launch_failed_requeued_held": "held after a failed start, and `scontrol release {id}` tries"
    " again",
    "jobholdmaxrequeue": "held: it was requeued too often; `scontrol release {id}` tries again",
}


def unclaimed(
    race: Race, files: StateFiles, jobs: Sequence[JobStatus], sources: Sources
) -> tuple[RaceState, str]:
    """Decide the state of a race without a winner, and say why."""
    unheard = unconfirmed(race, files, sources.records)
    unsure = unconfirmed_text(files, unheard, sources.now)
    if any(is_live(job.state) for job in jobs):
        stopping = "stopped; its jobs are being cancelled"
        reasons = stopping if files.stopped else _pending_reason(jobs)
        return RaceState.PENDING, ", ".join(filter(None, (reasons, unsure)))
    if files.stopped:
        return RaceState.CANCELLED, "stopped by rv"
    if sources.forgotten:
        numbers = ", ".join(map(str, sources.forgotten))
        return RaceState.PENDING, f"Slurm took job {numbers}, lost it, and is to be sent it again"
    is_known = any(job.job_id for job in jobs)
    if any(age(files, number, sources.now) < KEPT_S for number in unheard):
        return (RaceState.PENDING if is_known else RaceState.STAGED), unsure
    if not is_known:
        return _never_submitted(race, files, sources)
    if files.again:
        return RaceState.PENDING, "a declined job waits to be submitted again"
    if all(_is_settled(race, job, files, sources.now) for job in jobs if _was_tried(job, files)):
        return _ended_unclaimed(files, jobs)
    return RaceState.UNKNOWN, "Slurm does not know its jobs now"


def _was_tried(job: JobStatus, files: StateFiles) -> bool:
    return bool(job.job_id) or job.number in dict(files.refused)


def _is_settled(race: Race, job: JobStatus, files: StateFiles, now: float) -> bool:
    if job.state.is_terminal or job.number in dict(files.exhausted):
        return True
    since = dict(files.absent_since).get(job.number)
    # By then it would be known to be forgotten, and sent again.
    least = max(race.min_job_age.total_seconds(), patience(race))
    return since is not None and now - since > least


def _pending_reason(jobs: Sequence[JobStatus]) -> str:
    pending = [job for job in jobs if job.state.is_pending]
    reasons = {job.reason for job in pending if not _held(job)} - {"", "None"}
    # What rv itself holds back says nothing of the queue.
    told = sorted(reasons - {"BeginTime"} or reasons)
    return ", ".join([*told, *filter(None, map(_held, pending))])


def _held(job: JobStatus) -> str:
    """Say who holds a job and what lets it go, "" where nobody does."""
    said = _HELD.get(job.reason.lower().replace(" ", "_"), "")
    return f"job {job.job_id} is {said.format(id=job.job_id)}" if said else ""


def _never_submitted(race: Race, files: StateFiles, sources: Sources) -> tuple[RaceState, str]:
    if files.refused and len(files.refused) == len(race.entries):
        return RaceState.REFUSED, files.refused[0][1]
    if unconfirmed(race, files, sources.records) and sources.queue_answered:
        return RaceState.CANCELLED, "it was never known to be submitted, for a day"
    if sources.queue_answered and sources.now - race.submitted_at > STAGED_GRACE_S:
        return RaceState.CANCELLED, "it was never submitted"
    return RaceState.STAGED, "nothing is known to be submitted yet"


def _ended_unclaimed(files: StateFiles, jobs: Sequence[JobStatus]) -> tuple[RaceState, str]:
    if files.exhausted:
        nodes = "; ".join(f"{node}: {why}" for node, why in files.declined)
        return RaceState.DECLINED, f"every node was found unfit: {nodes}"
    tried = [job for job in jobs if job.job_id]  # the others were refused
    states = {RACE_STATE.get(job.state, RaceState.FAILED) for job in tried if job.state.is_terminal}
    if len(states) == 1 and (only := states.pop()) in BY_SLURM:
        return only, "no job started the command"
    if any(job.state.is_terminal for job in tried):
        failed = sorted({f"{j.state} on {j.nodes}" for j in tried if j.state in NODE_FAILURES})
        why = f" ({', '.join(failed)})" if failed else ""
        return RaceState.FAILED, f"every job ended without starting the command{why}"
    return RaceState.ENDED, "its jobs are gone and none started the command: cause unknown"


NODE_FAILURES: Final = frozenset({JobState.NODE_FAIL, JobState.BOOT_FAIL})
