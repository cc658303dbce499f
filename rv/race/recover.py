"""What any rv command does for a race whose own client may be gone: push it on, or clean up."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from rv.errors import RvError
from rv.models.job import JobRecord, JobState
from rv.models.race import NEXT, Claim, JobStatus, Race, RaceState, RaceStatus, StateFiles
from rv.race.cancel import cancel_ids, cancel_leftovers
from rv.race.chain import PREEMPTED
from rv.race.directory import write_state_file
from rv.race.observe import RaceSnapshot
from rv.race.submit import SubmitOutcome, SubmitResult, note_ids, send
from rv.race.unconfirmed import to_resend
from rv.race.verdict_file import save_verdict
from rv.render.quote import shell
from rv.transport import Transport

_BROKEN: Final = frozenset({JobState.FAILED, JobState.NODE_FAIL, JobState.BOOT_FAIL})
_GAVE_OUT: Final = frozenset({RaceState.DECLINED, RaceState.FAILED, RaceState.ENDED})


def unsent(race: Race, files: StateFiles) -> tuple[int, ...]:
    """Number the submissions of later waves, and parts of refused ones, that nobody has sent."""
    if files.deleted:
        return ()
    refused = {number for number, _ in files.refused}
    tried = refused | {number for number, _ in (*files.job_ids, *files.sent)}
    return tuple(
        entry.number
        for entry in race.entries
        if entry.number not in tried and (not entry.instead_of or entry.instead_of in refused)
    )


def advance(snapshot: RaceSnapshot, transport: Transport) -> tuple[SubmitResult, ...]:
    """Do what the race needs now and its jobs could not do; return what was submitted.

    A job that nobody knew of is written down. A merged job was refused, or broke: send its parts,
    since what ended it may concern only some of them. Every job sent so far has ended without a
    start: send the later waves. Settled: cancel what is left in the queue and keep the verdict.
    Unclaimed: lift the hold of requeued jobs, and submit again what a node without scontrol gave
    up, what is in doubt for too long, and what Slurm has forgotten.
    """
    status = snapshot.status
    if not snapshot.reachable:
        return ()
    if snapshot.files.deleted:
        _cancel_waiting(snapshot, transport)
        return ()
    _adopt(snapshot, transport)
    if status.claim and not status.state.is_over and _awaits_next(snapshot):
        return _send_next(status.race, status.claim, snapshot.files, transport)
    if left := _owed(status, snapshot.files):
        return send(status.race, left, transport)
    if status.claim or status.state.is_over or snapshot.files.stopped:
        if status.state is RaceState.LOST and not snapshot.files.lost:
            write_state_file(status.race, "lost", f"{status.why}\n", transport)
        cancel_leftovers(snapshot, transport)
        save_verdict(snapshot, transport)
        _close(status, transport)
        return ()
    _lift_holds(status, transport)
    return (*_submit_again(snapshot, transport), *_send_lost(snapshot, transport))


def _adopt(snapshot: RaceSnapshot, transport: Transport) -> None:
    """Write down the ids that no submitter ever heard of: nothing else bears these names."""
    race, known = snapshot.status.race, dict(snapshot.files.job_ids)
    fresh = {
        entry.number: record.job_id
        for entry in race.entries
        for record in snapshot.records
        if record.name == entry.name and record.job_id not in known.get(entry.number, ())
    }
    note_ids(race, fresh, transport)


def _send_lost(snapshot: RaceSnapshot, transport: Transport) -> tuple[SubmitResult, ...]:
    """Send what Slurm does not have: what was in doubt for too long, and what it has forgotten."""
    race = snapshot.status.race
    lost = {*to_resend(race, snapshot.files, snapshot.records, snapshot.now), *snapshot.forgotten}
    for number in sorted(lost):
        write_state_file(race, f"absent/{number}", "", transport)  # its time begins anew
    return send(race, sorted(lost), transport)


def _owed(status: RaceStatus, files: StateFiles) -> tuple[int, ...]:
    """Number the submissions that should be in the queue by now, and that nobody has sent."""
    gave_out = status.state in _GAVE_OUT
    if status.claim or files.stopped or (status.state.is_over and not gave_out):
        return ()
    left = unsent(status.race, files)
    if not gave_out:
        left = tuple(n for n in left if (entry := status.race.entry(n)) and entry.instead_of)
    return left or _parts_of_broken(status, files)


def _parts_of_broken(status: RaceStatus, files: StateFiles) -> tuple[int, ...]:
    """Number the unsent parts of merged jobs that failed with nodes left to try.

    Not of one that was cancelled, or ended nobody knows how: a person may have meant it.
    """
    broken = {job.number for job in status.jobs if job.state in _BROKEN or _is_stuck(job)}
    broken -= {number for number, _ in files.exhausted}
    tried = {number for number, _ in (*files.job_ids, *files.refused, *files.sent)}
    return tuple(
        entry.number
        for entry in status.race.entries
        if entry.instead_of in broken and entry.number not in tried
    )


def _is_stuck(job: JobStatus) -> bool:
    """Whether Slurm holds the job after a launch that failed, such as a prolog on a bad node."""
    return job.state.is_pending and "launch_failed" in job.reason.lower().replace(" ", "_")


def _awaits_next(snapshot: RaceSnapshot) -> bool:
    """Whether nobody on the cluster could or would send the chain's next segment."""
    is_stopped = snapshot.files.stopped or snapshot.status.race.chain is None
    return not is_stopped and (NEXT in snapshot.files.again or snapshot.status.why == PREEMPTED)


def _send_next(
    race: Race, claim: Claim, files: StateFiles, transport: Transport
) -> tuple[SubmitResult, ...]:
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
    results = send(race, [NEXT], transport, options=[f"--job-name={race.next_name}"])
    if NEXT in files.again and all(result.outcome in _TAKEN for result in results):
        transport.run(f"rm -f {shell(f'{race.directory}/again/{NEXT}')}", timeout=30)
    return results


def _close(status: RaceStatus, transport: Transport) -> None:
    """A race that was never submitted stays so: no late submitter may wake it up."""
    if status.state is RaceState.CANCELLED and not status.claim:
        write_state_file(status.race, "stop", "never submitted\n", transport)


def _lift_holds(status: RaceStatus, transport: Transport) -> None:
    """A declined job is held for two minutes by Slurm; its own helper may have been killed."""
    if not status.warnings:
        return  # nothing was declined: what is held back is rv's own later wave
    held = [job.job_id for job in status.jobs if job.reason == "BeginTime" and job.job_id]
    if held:
        # Not at once: a node that was just left refuses the same job within the second.
        lines = [f"scontrol update jobid={job_id} starttime=now+2" for job_id in held]
        transport.run("\n".join(lines), timeout=30)


def _submit_again(snapshot: RaceSnapshot, transport: Transport) -> tuple[SubmitResult, ...]:
    """Submit what a node without scontrol gave up; the mark goes only when Slurm has the job.

    Two clients may both do it: a duplicate is harmless, a lost job is not.
    """
    race = snapshot.status.race
    done: list[SubmitResult] = []
    for number in snapshot.files.again:
        mark = f"{race.directory}/again/{number}"
        options, writer = _read_again(transport.read(mark) or b"")
        is_there = _is_waiting(snapshot, number, but=writer)
        results = () if is_there else send(race, [number], transport, options=options)
        # Parts stand in for a merged one that was refused.
        if is_there or any(result.outcome in _TAKEN for result in results):
            transport.run(f"rm -f {shell(mark)}", timeout=30)
        done.extend(results)
    return tuple(done)


def _read_again(mark: bytes) -> tuple[list[str], str]:
    """The options that keep a job away from the nodes it gave up, and the id of that job."""
    nodes, writer = (*mark.decode("utf-8", errors="replace").splitlines(), "", "")[:2]
    is_plain = all(c.isalnum() or c in "-_.,[]" for c in nodes)
    return ([f"--exclude={nodes}"] if nodes and is_plain else []), writer


def _is_waiting(snapshot: RaceSnapshot, number: int, but: str) -> bool:
    """Whether a job of this submission waits; not the one that gave up, as an old answer has it."""
    name = snapshot.status.race.name_of(number)
    return any(
        record.name == name and record.state.is_pending and str(record.job_id) != but
        for record in snapshot.records
    )


_TAKEN: Final = frozenset({SubmitOutcome.ACCEPTED, SubmitOutcome.SKIPPED})


def _cancel_waiting(snapshot: RaceSnapshot, transport: Transport) -> None:
    """Cancel the waiting jobs of a race whose directory was deleted: they could only fail."""
    winner = snapshot.files.claim.job_id if snapshot.files.claim else 0
    left = [r.job_id for r in snapshot.records if r.state.is_pending and r.job_id != winner]
    if left and _is_deleted(snapshot.status.race.directory, transport):
        cancel_ids(left, transport)


def cancel_jobs_of_deleted_races(
    root: str, records: Sequence[JobRecord], transport: Transport
) -> None:
    """Cancel what waits for races below `root` that were deleted while nobody looked.

    Races of another root, of which nothing is known here, are let alone.
    """
    pending = {record.name for record in records if record.state.is_pending}
    known = set(transport.directories(root)) if pending else set()
    names = {name for name in pending if _race_id(name) not in known}
    if not names:
        return
    ask = (
        f"squeue --me -a -h -t PD --name={shell(','.join(sorted(names)))} -o '%A %j %Z' </dev/null"
    )
    for line in transport.run(ask, timeout=30).stdout.splitlines():
        job_id, name, directory = (*line.split(" ", 2), "", "")[:3]
        is_below = name in names and directory == f"{root}/{_race_id(name)}"
        if is_below and job_id.isdigit() and _is_deleted(directory, transport):
            cancel_ids([int(job_id)], transport)


def _race_id(job_name: str) -> str:
    return job_name.removeprefix("rv-").partition("-")[0]


def _is_deleted(directory: str, transport: Transport) -> bool:
    """Whether it is gone for certain, and not only its disk away for a while.

    The folder above it, being there and the user's own, proves the disk: what shows where a disk is
    not mounted is root's.
    """
    path = PurePosixPath(directory)
    look = f"cd {shell(path.parent)} && [ -O . ] && ls -a >/dev/null && [ ! -e {shell(path.name)} ]"
    return transport.run(look, timeout=30).returncode == 0
