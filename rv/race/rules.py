"""What decides the state of a race: one ordered list of rules; the first that applies decides.

The order of belief: the race directory, the queue, `scontrol show job`, accounting. Absence is
neither failure nor success: FAILED needs a terminal record or the winner's own exit file.
docs/how-rv-decides.md is generated from this list by tests/unit/race/test_rules.py.
"""

from typing import Final

from rv.models.job import JobState, is_live
from rv.models.race import NEXT, RaceState
from rv.race.facts import Facts
from rv.race.rule import Decision, Rule, Section
from rv.race.sources import ENDED_BY_SLURM, KEPT_S, MAY_GO_ON, NODE_FAILURES, RACE_STATE

STAGED_GRACE_S: Final = 300.0
"""How long a race may be seen without any submission before it counts as never submitted."""

CLAIMING_S: Final = 30.0
"""How long after its start a job may claim: the node check takes up to 20 s."""

LATE_ACCOUNTING_S: Final = 60.0
"""How long a job may be alive in accounting alone: its end comes seconds late, or never."""

OUT_OF_TIME: Final = "TIME"
"""The signal in the exit file of a chain whose time, segments or patience are used up."""

STOPPED: Final = "STOP"
"""The signal in the exit file of a job that saw a stop before its command, or its next segment."""

AGAIN: Final = "a job that left a rejected node waits to be submitted again"
PREEMPTED: Final = "it was preempted, and its next segment is to be sent"
TIMED_OUT: Final = "the segment ended at its time limit, and the next is to be sent"
UNSENT: Final = "the segment's job ended, and the next is to be sent"
_DELETED: Final = "its race directory was deleted"
_REQUEUED: Final = "Slurm requeued job {claim.job_id} after its claim on {claim.nodes}"
_NODE_FAILED: Final = "Slurm says {slurm_state} for job {claim.job_id} on {claim.nodes}"
_SLURM_SAYS: Final = "Slurm says {slurm_state}{by_user}"
_NOT_KNOWN: Final = "Slurm does not know job {claim.job_id} now"
_OUT_OF_TOUCH: Final = "the node was out of touch meanwhile: {out_of_touch}"
_VANISHED: Final = (
    "job {claim.job_id} started on {claim.nodes}, left no exit file, and Slurm has not known it for"
    " {absent_s} s: cause unknown"
)


def decide(facts: Facts) -> Decision:
    """Apply the first rule whose condition, and whose section's, holds."""
    rule = next(
        rule
        for section in SECTIONS
        if section.applies(facts)
        for rule in section.rules
        if rule.applies(facts)
    )
    return Decision(
        rule=rule,
        state=rule.state if isinstance(rule.state, RaceState) else rule.state(facts),
        exit_code=rule.code(facts) if rule.code else None,
        why=rule.says.format_map(facts),
    )


def as_slurm_says(facts: Facts) -> RaceState:
    """Return Slurm's state of the winner; FAILED where it has no name among a race's states."""
    return facts.race_state or RaceState.FAILED


def as_all_jobs_ended(facts: Facts) -> RaceState:
    """Return what Slurm did to all the jobs."""
    return facts.common_end or RaceState.FAILED


def as_next_job_ended(facts: Facts) -> RaceState:
    """Return Slurm's state of the next segment's job; LOST for COMPLETED, FAILED where no other."""
    job_state = facts.next_job.state if facts.next_job else JobState.UNKNOWN
    state = RACE_STATE.get(job_state, RaceState.FAILED)
    return RaceState.LOST if state is RaceState.COMPLETED else state


def exit_file_code(facts: Facts) -> int | None:
    """Return the code in the exit file."""
    return facts.exit_file.code


def slurm_code(facts: Facts) -> int | None:
    """Return the code in Slurm's record, 128+n for signal n."""
    return facts.slurm_code


def zero(_: Facts) -> int | None:
    """Return 0."""
    return 0


def _otherwise(_: Facts) -> bool:
    return True


def _is_unclaimed(facts: Facts) -> bool:
    return facts.files.claim is None


def _is_chain(facts: Facts) -> bool:
    return facts.race.chain is not None


def _has_left(facts: Facts) -> bool:
    """Whether the winner of a chain completed: by itself that says nothing of its command."""
    return _is_chain(facts) and facts.slurm_state is JobState.COMPLETED


def _may_have_written(facts: Facts) -> bool:
    """Whether the winner of a chain ended so that it may have written what follows."""
    return _is_chain(facts) and facts.slurm_state in MAY_GO_ON


def _left_next_unsent(facts: Facts) -> bool:
    """Whether another segment was to come, and the job did not send it: a TERM ended it first.

    What ended over a day ago was given up, and what it worked on may be in use.
    """
    end = facts.segment_end
    if end is None or end.next != "again" or not _may_have_written(facts):
        return False
    return facts.sources.now_s - end.ended_at < KEPT_S


def _never_accepted(facts: Facts) -> bool:
    return not facts.has_job_id and facts.sources.queue_answered


_CLAIM: Final = "claim"
_EXIT: Final = "exit file"
_FILES: Final = "state files"
_QUEUE: Final = "queue"
_SACCT: Final = "accounting"
_S = RaceState
_BY_SLURM: Final = tuple(state for state in _S if state in ENDED_BY_SLURM)

# fmt: off
SECTIONS: Final = (
    Section("The race directory was deleted, and its claim was never read", (_QUEUE, _SACCT),
            lambda f: _is_unclaimed(f) and f.files.deleted, (
        Rule("deleted, jobs left", (), "A job still waits or runs.",
             lambda f: any(is_live(record.state) for record in f.sources.records),
             _S.PENDING, _DELETED),
        Rule("deleted, no job known", (), "Slurm answers, and knows no job of it.",
             lambda f: not f.ends and f.sources.queue_answered,
             _S.ENDED, _DELETED),
        Rule("deleted, Slurm silent", (), "Slurm does not answer.",
             lambda f: not f.ends,
             _S.UNKNOWN, _DELETED),
        Rule("deleted, jobs cancelled", (), "All its jobs were cancelled.",
             lambda f: f.ends == {JobState.CANCELLED},
             _S.CANCELLED, _DELETED),
        Rule("deleted, a job completed", (), "A job is COMPLETED: the winner's, or one that lost.",
             lambda f: JobState.COMPLETED in f.ends,
             _S.ENDED, f"{_DELETED}; Slurm says COMPLETED"),
        Rule("deleted, jobs failed", (), "Its jobs ended in any other way.",
             _otherwise,
             _S.FAILED, f"{_DELETED}; Slurm says {{job_ends}}"),
    )),
    Section("No job has claimed the race", (_FILES,), _is_unclaimed, (
        Rule("stopping", (_QUEUE,), "It was stopped, and a job still waits or runs.",
             lambda f: f.any_live and f.files.stopped,
             _S.PENDING, "stopped; its jobs are being cancelled{and_unconfirmed_jobs}"),
        Rule("waiting", (_QUEUE,), "A job waits, or it runs and has not claimed yet.",
             lambda f: f.any_live,
             _S.PENDING, "{pending_reasons}"),
        Rule("closed", (), "rv stopped it, as a race of which no job could start any more.",
             lambda f: bool(f.files.closed),
             _S.CANCELLED, "{files.closed}"),
        Rule("stopped", (), "It was stopped.",
             lambda f: f.files.stopped,
             _S.CANCELLED, "stopped by you"),
        Rule("forgotten by Slurm", (_QUEUE, _SACCT),
             "Slurm took a job, knows no end of it, and does not have it any more.",
             lambda f: bool(f.sources.forgotten),
             _S.PENDING, "Slurm took job {forgotten_jobs}, lost it, and is to be sent it again"),
        Rule("another submission unconfirmed", (_QUEUE, _SACCT),
             "Within a day a job was sent and not acknowledged; another job is known.",
             lambda f: f.awaits_confirmation and f.has_job_id,
             _S.PENDING, "{unconfirmed_jobs}"),
        Rule("submission unconfirmed", (_QUEUE, _SACCT),
             "Within a day a job was sent and not acknowledged.",
             lambda f: f.awaits_confirmation,
             _S.STAGED, "{unconfirmed_jobs}"),
        Rule("refused", (), "Slurm refused every submission.",
             lambda f: not f.has_job_id and f.all_refused,
             _S.REFUSED, "{refusal}"),
        Rule("unconfirmed for a day", (_QUEUE, _SACCT),
             "Over a day ago a job was sent and not acknowledged; Slurm answers and knows none.",
             lambda f: _never_accepted(f) and bool(f.unconfirmed),
             _S.CANCELLED, "it was never known to be submitted, for a day"),
        Rule("never submitted", (_QUEUE,),
             "First seen unsent five minutes ago, or staged a day ago, and Slurm knows none.",
             lambda f: _never_accepted(f) and f.is_unsent_for(STAGED_GRACE_S),
             _S.CANCELLED, "it was never submitted"),
        Rule("staged", (), "No job of it is known.",
             lambda f: not f.has_job_id,
             _S.STAGED, "nothing is known to be submitted yet{but_not_noted}"),
        Rule("to be submitted again", (),
             "A job left a rejected node from which Slurm could not be called.",
             lambda f: bool(f.files.again),
             _S.PENDING, AGAIN),
        Rule("jobs unknown", (_QUEUE, _SACCT), "A job has neither ended nor been absent for long.",
             lambda f: not f.all_over,
             _S.UNKNOWN, "Slurm does not know its jobs now"),
        Rule("completed, claim not seen", (_QUEUE, _SACCT),
             "A job completed, and for less than a minute this machine has seen no claim of it.",
             lambda f: f.completed_job > 0 and f.claim_may_show,
             _S.UNKNOWN, "job {completed_job} completed, and its claim does not show here yet"),
        Rule("completed without a claim", (_QUEUE, _SACCT), "The same, for longer.",
             lambda f: f.completed_job > 0,
             _S.ENDED, "job {completed_job} completed, and no claim of it shows: cause unknown"),
        Rule("nodes rejected", (), "A job has no node left that might pass the node check.",
             lambda f: bool(f.files.exhausted),
             _S.DECLINED, "every node failed the node check: {rejected_nodes}"),
        Rule("ended by Slurm before the start", (_QUEUE, _SACCT),
             "Slurm ended all the jobs in one and the same way.",
             lambda f: f.common_end is not None,
             as_all_jobs_ended, "no job started the command", may_be=_BY_SLURM),
        Rule("ended before the start", (_QUEUE, _SACCT), "A job ended.",
             lambda f: bool(f.ended_jobs),
             _S.FAILED, "every job ended without starting the command{node_failures}"),
        Rule("vanished before the start", (_QUEUE, _SACCT), "All jobs have been absent for long.",
             _otherwise,
             _S.ENDED, "its jobs have vanished and none started the command: cause unknown"),
    )),
    Section("The winner left an exit file", (_CLAIM, _EXIT), lambda f: f.has_exit_file, (
        Rule("stopped before more began", (),
             "The winner saw the stop, and did not start its command, or its next segment.",
             lambda f: f.exit_file.signal == STOPPED,
             _S.CANCELLED, "stopped by you", exit_file_code),
        Rule("requeued under its command", (_QUEUE, _SACCT),
             "A signal ended the command, and Slurm has requeued the job since; not of a chain.",
             lambda f: f.ended_by_signal and not _is_chain(f) and f.was_requeued,
             _S.LOST, _REQUEUED),
        Rule("succeeded, node out of touch", (_FILES, _QUEUE, _SACCT),
             "Code 0 without a signal, from a node that was taken for lost.",
             lambda f: f.succeeded and bool(f.out_of_touch),
             _S.COMPLETED, _OUT_OF_TOUCH, exit_file_code),
        Rule("succeeded", (), "Code 0 without a signal.",
             lambda f: f.succeeded,
             _S.COMPLETED, "", exit_file_code),
        Rule("chain out of time", (), "The chain's own end: no time, or no segment, is left.",
             lambda f: f.exit_file.signal == OUT_OF_TIME,
             _S.TIMEOUT, "{exit_file.why}", exit_file_code),
        Rule("signal on a lost node", (_FILES, _QUEUE, _SACCT),
             "A signal ended the command, late, on a node that was taken for lost.",
             lambda f: f.ended_by_signal and bool(f.out_of_touch),
             _S.LOST, "{out_of_touch}", exit_file_code),
        Rule("stopped by rv", (_FILES, _QUEUE, _SACCT),
             "A signal ended the command after `rv stop`, and Slurm says no other cause.",
             lambda f: f.ended_by_signal and f.files.stopped and f.may_be_cancelled,
             _S.CANCELLED, "stopped by you", exit_file_code),
        Rule("ended by Slurm", (_QUEUE, _SACCT), "Slurm's record says why it ended the job.",
             lambda f: f.race_state in ENDED_BY_SLURM,
             as_slurm_says, "Slurm says {race_state}", exit_file_code, _BY_SLURM),
        Rule("ended at the time limit", (), "A signal came when the walltime was used up.",
             lambda f: f.ended_by_signal and f.ran_to_the_limit(CLAIMING_S),
             _S.TIMEOUT, "Slurm's SIGTERM came at the time limit", exit_file_code),
        Rule("ended by a signal", (), "A signal of Slurm's ended the command.",
             lambda f: f.ended_by_signal,
             _S.CANCELLED, "the job was ended by Slurm (SIGTERM)", exit_file_code),
        Rule("failed, node out of touch", (_FILES, _QUEUE, _SACCT),
             "Another code, from a node that was taken for lost.",
             lambda f: bool(f.out_of_touch),
             _S.FAILED, _OUT_OF_TOUCH, exit_file_code),
        Rule("failed", (), "Another code.",
             _otherwise,
             _S.FAILED, "the command ended with code {exit_file.code}", exit_file_code),
    )),
    Section("The race was stopped after its claim, and left no exit file", (_CLAIM, _FILES, _QUEUE),
            lambda f: f.files.stopped and not f.any_active, (
        Rule("stopped after its claim", (_SACCT,),
             "No job is left in the queue, and none is known to have ended by itself.",
             lambda f: f.sources.queue_answered and f.has_no_end_but_stop,
             _S.CANCELLED, "stopped by you"),
        Rule("stopped between segments", (_SACCT,),
             "A job of a chain saw the stop, and completed without running its segment.",
             lambda f: f.sources.queue_answered and _has_left(f) and not f.end_may_show,
             _S.CANCELLED, "stopped by you"),
    )),
    Section("A chain has no exit file yet", (_CLAIM, _FILES, _QUEUE, _SACCT), _is_chain, (
        Rule("cancelled between segments", (),
             "Slurm cancelled the winner's job, which may have sent the next one.",
             lambda f: f.slurm_state is JobState.CANCELLED,
             _S.CANCELLED, _SLURM_SAYS, slurm_code),
        Rule("segment waits", (),
             "The winner was requeued and waits; or its segment is over and the next job waits.",
             lambda f: f.upcoming_job is not None and f.upcoming_job.state.is_pending,
             _S.PENDING, "segment {upcoming_segment} waits{upcoming_reason}"),
        Rule("segment checks its node", (), "That job runs, and has not claimed the segment yet.",
             lambda f: f.upcoming_job is not None,
             _S.PENDING, "segment {upcoming_segment} is starting"),
        Rule("segment to be submitted again", (_FILES,),
             "A job left a rejected node from which Slurm could not be called.",
             lambda f: not is_live(f.slurm_state) and f.files.next_submission in f.files.again,
             _S.PENDING, AGAIN),
        Rule("segment's nodes rejected", (_FILES,),
             "A job of it has no node left that might pass the node check.",
             lambda f: not is_live(f.slurm_state) and f.has_exhausted_nodes,
             _S.DECLINED, "every node failed the node check: {rejected_nodes}"),
        Rule("over, end not seen", (),
             "It completed or failed; for less than a minute this machine has seen no end of it.",
             lambda f: f.segment_end is None and _may_have_written(f) and f.end_may_show,
             _S.UNKNOWN, "job {claim.job_id} is {slurm_state}, and its end does not show here yet"),
        Rule("completed without an end", (), "It completed, and the segment left no end.",
             lambda f: f.segment_end is None and _has_left(f),
             _S.ENDED, "Slurm says COMPLETED; segment {claim.segment} left no end: cause unknown"),
    )),
    Section("A chain's last segment ended, and no job for the next one is there",
            (_CLAIM, _FILES, _QUEUE, _SACCT),
            lambda f: _is_chain(f) and f.segment_end is not None, (
        Rule("segment is being sent", (),
             "The winner's job is not over, or rv's next command is to send the segment.",
             lambda f: NEXT in f.files.again or is_live(f.slurm_state),
             _S.PENDING, "segment {next_segment} is starting"),
        Rule("chain preempted", (), "Slurm preempted the winner's job; no next one was cancelled.",
             lambda f: f.slurm_state is JobState.PREEMPTED and not f.next_was_cancelled,
             _S.PENDING, PREEMPTED),
        Rule("next segment did not begin", (), "The next segment's job has ended.",
             lambda f: f.next_job is not None and f.next_job.state.is_terminal,
             as_next_job_ended,
             "job {next_job.job_id} of segment {next_segment} ended before it began",
             may_be=(*_BY_SLURM, _S.FAILED, _S.LOST)),
        Rule("segment timed out", (), "Slurm ended the winner's job at its time limit.",
             lambda f: f.slurm_state is JobState.TIMEOUT,
             _S.PENDING, TIMED_OUT),
        Rule("completed, next not seen", (),
             "Slurm says COMPLETED, and for less than a minute no job of the next segment shows.",
             lambda f: _has_left(f) and f.end_may_show,
             _S.UNKNOWN, "job {claim.job_id} completed, and no next one shows yet"),
        Rule("next segment was not sent", (),
             "The same for longer, or FAILED; by its end, of today, another segment was to come.",
             _left_next_unsent,
             _S.PENDING, UNSENT),
        Rule("completed after a segment", (), "It says COMPLETED for longer, and Slurm answers.",
             lambda f: f.sources.queue_answered and _has_left(f),
             _S.ENDED, "job {claim.job_id} completed, and no next one shows: cause unknown"),
        Rule("node failed after a segment", (), "The winner's node failed.",
             lambda f: f.slurm_state in NODE_FAILURES,
             _S.LOST, _NODE_FAILED),
        Rule("ended after a segment", (), "Slurm's record of the end of the winner's job.",
             lambda f: f.slurm_state.is_terminal and not _has_left(f),
             as_slurm_says, _SLURM_SAYS, slurm_code,
             (*(state for state in _BY_SLURM if state not in (_S.PREEMPTED, _S.TIMEOUT)),
              _S.FAILED)),
        Rule("vanished after a segment", (), "A healthy Slurm has not known the job for long.",
             lambda f: f.is_absent_for(),
             _S.ENDED, _VANISHED),
        Rule("unknown after a segment", (), "None of these.",
             _otherwise,
             _S.UNKNOWN, _NOT_KNOWN),
    )),
    Section("A job has claimed the race and left no exit file", (_CLAIM,), _otherwise, (
        Rule("restarted after its claim", (_FILES,), "The winner's job started again, and said so.",
             lambda f: bool(f.files.lost),
             _S.LOST, "{files.lost}"),
        Rule("vanished", (_FILES, _QUEUE, _SACCT),
             "A healthy Slurm has not known the job for long.",
             lambda f: f.slurm_state is JobState.UNKNOWN and f.is_absent_for(),
             _S.ENDED, _VANISHED),
        Rule("state not known to rv", (_QUEUE, _SACCT), "Slurm has a state that rv does not know.",
             lambda f: f.slurm_state is JobState.UNKNOWN and f.record is not None,
             _S.UNKNOWN, "Slurm calls job {claim.job_id} {slurm_reason}"),
        Rule("not known now", (_QUEUE, _SACCT), "Slurm does not know the job, or does not answer.",
             lambda f: f.record is None,
             _S.UNKNOWN, _NOT_KNOWN),
        Rule("vanished, accounting unaware", (_FILES, _QUEUE, _SACCT),
             "Accounting calls the job alive, and the controller has not had it for a minute.",
             lambda f: f.only_in_accounting and f.is_absent_for(LATE_ACCOUNTING_S),
             _S.ENDED, _VANISHED),
        Rule("accounting late", (_FILES, _QUEUE, _SACCT),
             "Accounting calls the job alive, and the controller does not have it.",
             lambda f: f.only_in_accounting,
             _S.RUNNING, "accounting calls job {claim.job_id} {slurm_state}"),
        Rule("completed", (_QUEUE, _SACCT), "Slurm says COMPLETED.",
             lambda f: f.slurm_state is JobState.COMPLETED,
             _S.COMPLETED, "no exit file; Slurm says COMPLETED", zero),
        Rule("node failed", (_QUEUE, _SACCT), "Slurm says NODE_FAIL or BOOT_FAIL.",
             lambda f: f.slurm_state in NODE_FAILURES,
             _S.LOST, _NODE_FAILED),
        Rule("ended without an exit file", (_QUEUE, _SACCT), "Slurm's record of the end.",
             lambda f: f.slurm_state.is_terminal,
             as_slurm_says, _SLURM_SAYS, slurm_code, (*_BY_SLURM, _S.FAILED)),
        Rule("requeued after its claim", (_QUEUE,), "Slurm has restarted the job since its claim.",
             lambda f: f.was_requeued,
             _S.LOST, _REQUEUED),
        Rule("running", (_QUEUE,), "Slurm has the job; its row may be older than the claim.",
             _otherwise,
             _S.RUNNING, ""),
    )),
)
# fmt: on
