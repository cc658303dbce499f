"""What any rv command does for a race whose own client may be gone: push it on, or clean up."""

from typing import Final

from rv.errors import RvError
from rv.models.job import JobState
from rv.models.race import NEXT, Claim, JobStatus, Marks, Race, RaceState, RaceStatus
from rv.race.cancel import reap
from rv.race.chain import PREEMPTED
from rv.race.doubt import overdue
from rv.race.marks import leave_mark
from rv.race.observe import Observation
from rv.race.orphans import release
from rv.race.submit import Outcome, Submitted, note_ids, send
from rv.race.verdict import save_verdict
from rv.render.quote import shell
from rv.transport import Transport

_BROKEN: Final = frozenset({JobState.FAILED, JobState.NODE_FAIL, JobState.BOOT_FAIL})
_GAVE_OUT: Final = frozenset({RaceState.DECLINED, RaceState.FAILED, RaceState.ENDED})


def untried(race: Race, marks: Marks) -> tuple[int, ...]:
    """Number the submissions of later waves, and parts of refused ones, that nobody has sent."""
    if marks.gone:
        return ()
    refused = {number for number, _ in marks.refused}
    tried = refused | {number for number, _ in (*marks.job_ids, *marks.sent)}
    return tuple(
        entry.number
        for entry in race.entries
        if entry.number not in tried and (not entry.instead_of or entry.instead_of in refused)
    )


def advance(seen: Observation, transport: Transport) -> tuple[Submitted, ...]:
    """Do what the race needs now and its jobs could not do; return what was submitted.

    A job that nobody knew of is written down. A merged job was refused, or broke: send its parts,
    since what ended it may concern only some of them. Every job sent so far has ended without a
    start: send the later waves. Settled: cancel what is left in the queue and keep the verdict.
    Unclaimed: lift the hold of requeued jobs, and submit again what a node without scontrol gave
    up, what is in doubt for too long, and what Slurm has forgotten.
    """
    status = seen.status
    if not seen.reachable:
        return ()
    if seen.marks.gone:
        release(seen, transport)
        return ()
    _adopt(seen, transport)
    if status.claim and not status.state.is_over and _awaits_next(seen):
        return _send_next(status.race, status.claim, seen.marks, transport)
    if left := _owed(status, seen.marks):
        return send(status.race, left, transport)
    if status.claim or status.state.is_over or seen.marks.stopped:
        if status.state is RaceState.LOST and not seen.marks.lost:
            leave_mark(status.race, "lost", f"{status.why}\n", transport)
        reap(seen, transport)
        save_verdict(seen, transport)
        _close(status, transport)
        return ()
    _lift_holds(status, transport)
    return (*_submit_again(seen, transport), *_send_lost(seen, transport))


def _adopt(seen: Observation, transport: Transport) -> None:
    """Write down the ids that no submitter ever heard of: nothing else bears these names."""
    race, known = seen.status.race, dict(seen.marks.job_ids)
    fresh = {
        entry.number: record.job_id
        for entry in race.entries
        for record in seen.records
        if record.name == entry.name and record.job_id not in known.get(entry.number, ())
    }
    note_ids(race, fresh, transport)


def _send_lost(seen: Observation, transport: Transport) -> tuple[Submitted, ...]:
    """Send what Slurm does not have: what was in doubt for too long, and what it has forgotten."""
    race = seen.status.race
    lost = {*overdue(race, seen.marks, seen.records, seen.now), *seen.forgotten}
    for number in sorted(lost):
        leave_mark(race, f"absent/{number}", "", transport)  # its time begins anew
    return send(race, sorted(lost), transport)


def _owed(status: RaceStatus, marks: Marks) -> tuple[int, ...]:
    """Number the submissions that should be in the queue by now, and that nobody has sent."""
    gave_out = status.state in _GAVE_OUT
    if status.claim or marks.stopped or (status.state.is_over and not gave_out):
        return ()
    left = untried(status.race, marks)
    if not gave_out:
        left = tuple(n for n in left if (entry := status.race.entry(n)) and entry.instead_of)
    return left or _parts_of_broken(status, marks)


def _parts_of_broken(status: RaceStatus, marks: Marks) -> tuple[int, ...]:
    """Number the unsent parts of merged jobs that failed with nodes left to try.

    Not of one that was cancelled, or ended nobody knows how: a person may have meant it.
    """
    broken = {job.number for job in status.jobs if job.state in _BROKEN or _is_stuck(job)}
    broken -= {number for number, _ in marks.exhausted}
    tried = {number for number, _ in (*marks.job_ids, *marks.refused, *marks.sent)}
    return tuple(
        entry.number
        for entry in status.race.entries
        if entry.instead_of in broken and entry.number not in tried
    )


def _is_stuck(job: JobStatus) -> bool:
    """Whether Slurm holds the job after a launch that failed, such as a prolog on a bad node."""
    return job.state.is_pending and "launch_failed" in job.reason.lower().replace(" ", "_")


def _awaits_next(seen: Observation) -> bool:
    """Whether nobody on the cluster could or would send the chain's next segment."""
    is_stopped = seen.marks.stopped or seen.status.race.chain is None
    return not is_stopped and (NEXT in seen.marks.again or seen.status.why == PREEMPTED)


def _send_next(
    race: Race, claim: Claim, marks: Marks, transport: Transport
) -> tuple[Submitted, ...]:
    """Submit the winner's script once more, as the job of the next segment.

    On a disk that cannot be read or written now, it is left to the next look.
    """
    text = transport.read(f"{race.directory}/jobs/{claim.submission}.sh")
    if not text:
        return ()
    try:
        transport.write(f"{race.directory}/jobs/{NEXT}.sh", text)
    except RvError:
        return ()
    fates = send(race, [NEXT], transport, options=[f"--job-name={race.next_name}"])
    if NEXT in marks.again and all(fate.outcome in _TAKEN for fate in fates):
        transport.run(f"rm -f {shell(f'{race.directory}/again/{NEXT}')}", timeout=30)
    return fates


def _close(status: RaceStatus, transport: Transport) -> None:
    """A race that was never submitted stays so: no late submitter may wake it up."""
    if status.state is RaceState.CANCELLED and not status.claim:
        leave_mark(status.race, "stop", "never submitted\n", transport)


def _lift_holds(status: RaceStatus, transport: Transport) -> None:
    """A declined job is held for two minutes by Slurm; its own helper may have been killed."""
    if not status.warnings:
        return  # nothing was declined: what is held back is rv's own later wave
    held = [job.job_id for job in status.jobs if job.reason == "BeginTime" and job.job_id]
    if held:
        # Not at once: a node that was just left refuses the same job within the second.
        lines = [f"scontrol update jobid={job_id} starttime=now+2" for job_id in held]
        transport.run("\n".join(lines), timeout=30)


def _submit_again(seen: Observation, transport: Transport) -> tuple[Submitted, ...]:
    """Submit what a node without scontrol gave up; the mark goes only when Slurm has the job.

    Two clients may both do it: a duplicate is harmless, a lost job is not.
    """
    race = seen.status.race
    done: list[Submitted] = []
    for number in seen.marks.again:
        mark = f"{race.directory}/again/{number}"
        options, writer = _read_again(transport.read(mark) or b"")
        is_there = _is_waiting(seen, number, but=writer)
        fates = () if is_there else send(race, [number], transport, options=options)
        # Parts stand in for a merged one that was refused.
        if is_there or any(fate.outcome in _TAKEN for fate in fates):
            transport.run(f"rm -f {shell(mark)}", timeout=30)
        done.extend(fates)
    return tuple(done)


def _read_again(mark: bytes) -> tuple[list[str], str]:
    """The options that keep a job away from the nodes it gave up, and the id of that job."""
    nodes, writer = (*mark.decode("utf-8", errors="replace").splitlines(), "", "")[:2]
    is_plain = all(c.isalnum() or c in "-_.,[]" for c in nodes)
    return ([f"--exclude={nodes}"] if nodes and is_plain else []), writer


def _is_waiting(seen: Observation, number: int, but: str) -> bool:
    """Whether a job of this submission waits; not the one that gave up, as an old answer has it."""
    name = seen.status.race.name_of(number)
    return any(
        record.name == name and record.state.is_pending and str(record.job_id) != but
        for record in seen.records
    )


_TAKEN: Final = frozenset({Outcome.ACCEPTED, Outcome.SKIPPED})
