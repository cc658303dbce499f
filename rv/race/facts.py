"""What the rules ask about one race, drawn from its state files and from what Slurm said."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import Claim, Ended, JobStatus, Race, RaceState, StateFiles
from rv.race.sources import (
    ENDED_BY_SLURM,
    KEPT_S,
    NODE_FAILURES,
    RACE_STATE,
    Sources,
    confirmation_limit_s,
    is_active,
    next_record,
    own_end,
    record_of,
    records_of,
    unconfirmed,
    unconfirmed_for_s,
    unconfirmed_text,
    without_earlier,
)

CACHED_S: Final = 60.0
"""How long an NFS client may remember that a file was not there (nfs(5): acdirmax)."""

_HELD: Final = {
    "jobhelduser": "held by its user, and `scontrol release {id}` lets it go",
    "jobheldadmin": "held by an administrator, who can `scontrol release {id}`",
    "launch_failed_requeued_held": "held after a failed start, and `scontrol release {id}` tries"
    " again",
    "jobholdmaxrequeue": "held: it was requeued too often; `scontrol release {id}` tries again",
}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One race as the rules see it, each fact computed once; durations in seconds.

    `claim`, `exit_file`, `segment_end` and `record` are about the winner's job. Facts that fill a
    rule's sentence are named as they read in it.
    """

    race: Race
    files: StateFiles
    sources: Sources
    jobs: Sequence[JobStatus]

    def __getitem__(self, name: str) -> object:
        """Return a fact by its name, for the sentence of a rule."""
        return getattr(self, name)

    # A race without a claim.

    @cached_property
    def any_live(self) -> bool:
        """Whether any of its jobs waits or runs."""
        return any(is_live(job.state) for job in self.jobs)

    @cached_property
    def ends(self) -> frozenset[JobState]:
        """How its jobs ended, by Slurm's records."""
        return frozenset(r.state for r in self.sources.records if r.state.is_terminal)

    @property
    def job_ends(self) -> str:
        """These ends in words."""
        return ", ".join(sorted(self.ends))

    @property
    def forgotten_jobs(self) -> str:
        """The numbers of the submissions that Slurm took and lost."""
        return ", ".join(map(str, self.sources.forgotten))

    @cached_property
    def unconfirmed(self) -> tuple[int, ...]:
        """The submissions that were sent and not acknowledged."""
        return unconfirmed(self.race, self.files, self.sources.records)

    @property
    def unconfirmed_jobs(self) -> str:
        """These submissions in a sentence."""
        return unconfirmed_text(self.files, self.unconfirmed, self.sources.now_s)

    @property
    def and_unconfirmed_jobs(self) -> str:
        """The same after a comma, "" where there are none."""
        return f", {self.unconfirmed_jobs}" if self.unconfirmed else ""

    @property
    def awaits_confirmation(self) -> bool:
        """Whether a submission of the last day is unconfirmed."""
        ages_s = (unconfirmed_for_s(self.files, n, self.sources.now_s) for n in self.unconfirmed)
        return any(age_s < KEPT_S for age_s in ages_s)

    @property
    def has_job_id(self) -> bool:
        """Whether the id of any job is known."""
        return any(job.job_id for job in self.jobs)

    def is_unsent_for(self, least_s: float) -> bool:
        """Return whether it was seen unsent for longer, or staged a day ago, by whatever clock."""
        now_s, since_s = self.sources.now_s, self.files.unsent_since
        is_old = now_s - self.race.submitted_at > KEPT_S
        return is_old or (since_s is not None and now_s - since_s > least_s)

    @property
    def but_not_noted(self) -> str:
        """What follows where no client can note that it is unsent, after a semicolon."""
        if self.files.unsent_since is not None or not self.sources.queue_answered:
            return ""
        return (
            "; its directory cannot be written from here, and it counts as never submitted a day"
            " after it was staged"
        )

    @property
    def all_refused(self) -> bool:
        """Whether Slurm refused every submission."""
        return 0 < len(self.files.refused) == len(self.race.entries)

    @property
    def refusal(self) -> str:
        """Why Slurm refused the first submission."""
        return self.files.refused[0][1]

    @property
    def rejected_nodes(self) -> str:
        """The nodes that failed the node check, with the reasons."""
        return "; ".join(f"{node}: {why}" for node, why in self.files.declined)

    @property
    def pending_reasons(self) -> str:
        """Why its jobs wait, who holds them, and what is unconfirmed."""
        pending = [job for job in self.jobs if job.state.is_pending]
        reasons = {job.reason for job in pending if not _held(job)} - {"", "None"}
        # BeginTime is rv's own later wave, and says nothing of the queue.
        slurm_reasons = sorted(reasons - {"BeginTime"} or reasons)
        texts = [*slurm_reasons, *map(_held, pending), self.unconfirmed_jobs]
        return ", ".join(filter(None, texts))

    @property
    def all_over(self) -> bool:
        """Whether every job that was ever sent has ended, or has been absent for long."""
        refused = dict(self.files.refused)
        sent = [job for job in self.jobs if job.job_id or job.number in refused]
        return all(map(self._is_over, sent))

    def _is_over(self, job: JobStatus) -> bool:
        if job.state.is_terminal or job.number in dict(self.files.exhausted):
            return True
        since = dict(self.files.absent_since).get(job.number)
        # By then it would be known to be forgotten, and sent again.
        limit_s = max(self.race.min_job_age.total_seconds(), confirmation_limit_s(self.race))
        return since is not None and self.sources.now_s - since > limit_s

    @property
    def completed_job(self) -> int:
        """The id of a job that completed and rejected no node, 0 for none.

        A job that lost the race completes too, but then a claim shows.
        """
        rejecting = {number for number, _ in self.files.exhausted} | {*self.files.again}
        completed = (
            job.job_id
            for job in self.jobs
            if job.state is JobState.COMPLETED and job.number not in rejecting
        )
        return next(completed, 0)

    @property
    def claim_may_show(self) -> bool:
        """Whether this machine may still remember a directory without the claim."""
        since_s = self.files.unclaimed_since
        return since_s is None or self.sources.now_s - since_s < CACHED_S

    @property
    def end_may_show(self) -> bool:
        """Whether this machine may still remember a directory without the chain's end."""
        since_s = self.files.unended_since
        return since_s is None or self.sources.now_s - since_s < CACHED_S

    @cached_property
    def ended_jobs(self) -> tuple[JobStatus, ...]:
        """The jobs that Slurm took and that have ended."""
        return tuple(job for job in self.jobs if job.job_id and job.state.is_terminal)

    @property
    def common_end(self) -> RaceState | None:
        """What Slurm did to all of them, where it is the same."""
        states = {RACE_STATE.get(job.state, RaceState.FAILED) for job in self.ended_jobs}
        return states.pop() if len(states) == 1 and states <= ENDED_BY_SLURM else None

    @property
    def node_failures(self) -> str:
        """The nodes that failed under its jobs, in brackets; "" for none."""
        failed = [job for job in self.ended_jobs if job.state in NODE_FAILURES]
        texts = sorted({f"{job.state} on {job.nodes}" for job in failed})
        return f" ({', '.join(texts)})" if texts else ""

    # A race with a claim.

    @property
    def claim(self) -> Claim:
        """The claim. Raises `LookupError` where there is none."""
        if self.files.claim is None:
            raise LookupError("nobody has claimed the race")
        return self.files.claim

    @cached_property
    def record(self) -> JobRecord | None:
        """Slurm's best record of the winner."""
        name = self.claim.job_name or self.race.name_of(self.claim.submission)
        return record_of(self.sources.records, name, self.claim.job_id)

    @property
    def slurm_state(self) -> JobState:
        """Slurm's state of the winner, UNKNOWN where it has no record of it."""
        return self.record.state if self.record else JobState.UNKNOWN

    @property
    def slurm_reason(self) -> str:
        """Slurm's own word for a state that rv does not know."""
        return self.record.reason if self.record and self.record.reason else "?"

    @property
    def by_user(self) -> str:
        """Who cancelled the winner, after a space; "" where Slurm does not say."""
        reason = self.record.reason if self.record else ""
        return f" {reason}" if reason.startswith("by ") else ""

    @property
    def slurm_code(self) -> int | None:
        """The winner's exit code in Slurm's record, 128+n for signal n; None for 0 or none."""
        if self.record is None:
            return None
        return (128 + self.record.signal if self.record.signal else self.record.exit_code) or None

    @property
    def race_state(self) -> RaceState | None:
        """What Slurm's record of the winner means for the race."""
        return RACE_STATE.get(self.slurm_state)

    @property
    def may_be_cancelled(self) -> bool:
        """Whether Slurm's record, if any, names no other end of the winner than a cancel."""
        return self.race_state in (None, RaceState.CANCELLED)

    @property
    def was_requeued(self) -> bool:
        """Whether Slurm has put the winner back into the queue since its claim."""
        return self.record is not None and self.record.restarts > self.claim.restart

    @property
    def only_in_accounting(self) -> bool:
        """Whether only accounting calls the winner alive; it may not have heard of the end."""
        return self.record is not None and is_live(self.slurm_state) and not is_active(self.record)

    @property
    def any_active(self) -> bool:
        """Whether the controller itself has a job of the race that waits, runs or completes."""
        return any(map(is_active, self.sources.records))

    @property
    def has_no_end_but_stop(self) -> bool:
        """Whether nothing but a stop can have ended the winner: no failure, limit or lost node."""
        if self.files.lost:
            return False
        is_silent = self.record is None or self.only_in_accounting
        return is_silent or self.segment_end is not None or self.slurm_state is JobState.CANCELLED

    @property
    def absent_s(self) -> int:
        """Whole seconds for which a healthy controller has not known the winner."""
        return round(self._absent_s)

    @property
    def _absent_s(self) -> float:
        since_s = dict(self.files.absent_since).get(self.claim.submission)
        if self.race.chain:
            since_s = self.files.winner_absent_since
        return 0.0 if since_s is None else self.sources.now_s - since_s

    def is_absent_for(self, least_s: float = 0.0) -> bool:
        """Return whether it is longer than MinJobAge, for which Slurm keeps what ended."""
        return self._absent_s > max(least_s, self.race.min_job_age.total_seconds())

    @property
    def has_exhausted_nodes(self) -> bool:
        """Whether the winner's job, restarted or sent again, found no node that may pass."""
        return self.files.next_submission in dict(self.files.exhausted)

    # What the winner left.

    @property
    def has_exit_file(self) -> bool:
        """Whether the winner wrote how its command ended; no other instance's file counts."""
        return own_end(self.claim, self.files.ended) is not None

    @property
    def exit_file(self) -> Ended:
        """The winner's exit file. Raises `LookupError` where there is none."""
        ended = own_end(self.claim, self.files.ended)
        if ended is None:
            raise LookupError("the winner left no exit file")
        return ended

    @property
    def succeeded(self) -> bool:
        """Whether the command ended by itself, with code 0."""
        return self.exit_file.code == 0 and not self.ended_by_signal

    @property
    def ended_by_signal(self) -> bool:
        """Whether a signal of Slurm's ended the command."""
        return bool(self.exit_file.signal)

    @property
    def out_of_touch(self) -> str:
        """Why the winner's node seemed lost meanwhile, "" where it did not."""
        if self.files.lost or self.race_state is not RaceState.LOST:
            return self.files.lost
        return f"Slurm says {self.slurm_state}"

    def ran_to_the_limit(self, margin_s: float) -> bool:
        """Return whether the command ran for the job's whole walltime, less a margin."""
        entry = self.race.entry(self.claim.submission)
        limit_s = entry.walltime.total_seconds() if entry else 0.0
        return 0 < limit_s <= self.exit_file.ended_at - self.claim.started_at + margin_s

    # A chain.

    @cached_property
    def segment_end(self) -> Ended | None:
        """How the segment that the claim names ended; None while it runs or where it wrote none."""
        ends = (one.ended for one in self.files.segments if one.number == self.claim.segment)
        return next((end for end in ends if end and own_end(self.claim, end)), None)

    @cached_property
    def next_job(self) -> JobRecord | None:
        """Slurm's record of the job that was sent for the next segment: of several the foremost."""
        ran = {one.claim.job_id for one in self.files.segments} | {self.claim.job_id}
        counted = without_earlier(self.race, self.files, self.sources.records)
        records = [record for record in counted if record.job_id not in ran]
        sent_ids = self.files.next_job_ids
        sent = next_record(self.race, records_of(sent_ids, records))
        other = next_record(self.race, records)
        # What was sent last may not show yet: one before it that left its node is not the next.
        is_next = not sent_ids or (other is not None and is_live(other.state))
        return sent or (other if is_next else None)

    @property
    def next_was_cancelled(self) -> bool:
        """Whether Slurm cancelled the very job that was sent for the next segment."""
        if self.next_job is None or self.next_job.job_id not in self.files.next_job_ids:
            return False
        return self.next_job.state is JobState.CANCELLED

    @property
    def next_segment(self) -> int:
        """The number of the next segment."""
        return self.claim.segment + 1

    @property
    def upcoming_job(self) -> JobRecord | None:
        """The job that will run a segment: the winner requeued, or the next one where that is over.

        It may run already, and check its node.
        """
        winner_is_live = is_live(self.slurm_state)
        if winner_is_live and self.was_requeued:
            return self.record
        if self.next_job is None or not is_live(self.next_job.state):
            return None
        return self.next_job if self.segment_end or not winner_is_live else None

    @property
    def upcoming_segment(self) -> int:
        """The segment that it will run: a requeued winner repeats one that did not end."""
        repeats = self.upcoming_job is self.record and self.segment_end is None
        return self.claim.segment if repeats else self.next_segment

    @property
    def upcoming_reason(self) -> str:
        """Why it waits, after a colon; "" where Slurm does not say."""
        reason = self.upcoming_job.reason if self.upcoming_job else ""
        return f": {reason}" if reason not in ("", "None") else ""


def _held(job: JobStatus) -> str:
    """Say who holds a job and what lets it go, "" where nobody does."""
    text = _HELD.get(job.reason.lower().replace(" ", "_"), "")
    return f"job {job.job_id} is {text.format(id=job.job_id)}" if text else ""
