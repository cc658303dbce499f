"""Recover what a killed client left: whatever rv command comes next does what its race needs."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from rv.errors import RvError
from rv.models.job import JobRecord, JobState, is_live
from rv.models.race import NEXT, Claim, JobStatus, Race, RaceState, RaceStatus, StateFiles
from rv.race.cancel import cancel_leftovers, cancel_waiting_ids
from rv.race.directory import CLOSED, write_state_file
from rv.race.file_names import STAGED
from rv.race.observe import RaceSnapshot
from rv.race.rules import AGAIN, PREEMPTED, TIMED_OUT, UNSENT
from rv.race.sources import confirmation_limit_s, to_resend
from rv.race.submit import SubmitOutcome, SubmitResult, note_ids, submit_once
from rv.race.verdict_file import save_verdict
from rv.render.quote import shell
from rv.slurm.script import new_sentinel
from rv.slurm.squeue import parse_work_folders
from rv.slurm.squeue_scripts import squeue_work_folders_script
from rv.transport import Transport

_BROKEN: Final = frozenset({JobState.FAILED, JobState.NODE_FAIL, JobState.BOOT_FAIL})
_ENDED_UNSTARTED: Final = frozenset({RaceState.DECLINED, RaceState.FAILED, RaceState.ENDED})
_DIRECTIVES: Final = re.compile(rb"(?:#.*\n)*")
_DELAY: Final = re.compile(rb"^#SBATCH --(?:begin=.*|hold)\n", re.MULTILINE)
"""What delays the first job of a chain alone: `--begin=22:00` means one night, not each."""

_TAKEN: Final = frozenset({SubmitOutcome.ACCEPTED, SubmitOutcome.SKIPPED})


def recover(snapshot: RaceSnapshot, transport: Transport) -> tuple[SubmitResult, ...]:
    """Do what a race needs now and its jobs cannot do; return what was submitted.

    An accepted job of which no client heard is written down. Where all jobs so far ended without a
    start the later waves are sent; where a merged job was refused or broke, its parts. An unclaimed
    race has the hold of requeued jobs lifted, and is sent again what a node without scontrol could
    not send, what has been unconfirmed for long, and what Slurm has forgotten. A decided race has
    its leftover jobs cancelled and its verdict saved.
    """
    if not snapshot.reachable:
        return ()
    if snapshot.files.deleted:
        _cancel_waiting(snapshot, transport)
        return ()
    _adopt(snapshot, transport)
    status = snapshot.status
    if status.claim and _needs_next_segment(snapshot):
        return _send_next(status.race, status.claim, snapshot.files, transport)
    if due := due_submissions(status, snapshot.files):
        return submit_once(status.race, due, transport)
    if status.claim or status.state.is_over or snapshot.files.stopped:
        _close(snapshot, transport)
        return ()
    _lift_holds(status, transport)
    return (*_submit_again(snapshot, transport), *_resend(snapshot, transport))


def unsent(race: Race, files: StateFiles) -> tuple[int, ...]:
    """Return the submissions of later waves, and the parts of refused ones, that were not sent."""
    if files.deleted:
        return ()
    refused = {number for number, _ in files.refused}
    sent = refused | {number for number, _ in (*files.job_ids, *files.sent)}
    return tuple(
        entry.number
        for entry in race.entries
        if entry.number not in sent and (not entry.instead_of or entry.instead_of in refused)
    )


def due_submissions(status: RaceStatus, files: StateFiles) -> tuple[int, ...]:
    """Return the submissions that should be in the queue by now and were not sent."""
    if files.stopped or _has_all(status):
        return ()
    due = unsent(status.race, files)
    if status.state not in _ENDED_UNSTARTED:
        if status.state.is_over:
            return ()
        parts = {entry.number for entry in status.race.entries if entry.instead_of}
        due = tuple(number for number in due if number in parts)
    return due or _parts_of_broken(status, files)


def _has_all(status: RaceStatus) -> bool:
    """Return whether a race has a winner, or a sweep the ends of its tasks: it needs no more."""
    return status.claim is not None or (status.tasks is not None and status.tasks.is_settled)


def _parts_of_broken(status: RaceStatus, files: StateFiles) -> tuple[int, ...]:
    """Return the unsent parts of merged jobs that failed with nodes left to try.

    Not of one that was cancelled, or whose end is unknown: a person may have meant it.
    """
    broken = {job.number for job in status.jobs if job.state in _BROKEN or _is_stuck(job)}
    broken -= {number for number, _ in files.exhausted}
    sent = {number for number, _ in (*files.job_ids, *files.refused, *files.sent)}
    return tuple(
        entry.number
        for entry in status.race.entries
        if entry.instead_of in broken and entry.number not in sent
    )


def _is_stuck(job: JobStatus) -> bool:
    """Return whether Slurm holds a job after a failed launch, such as a prolog on a bad node."""
    return job.state.is_pending and "launch_failed" in job.reason.lower().replace(" ", "_")


def _adopt(snapshot: RaceSnapshot, transport: Transport) -> None:
    """Write down job ids of which no client heard: no other job bears these names."""
    ids = dict(snapshot.files.job_ids)
    if snapshot.status.race.sweep and ids:  # each worker of an array has an id of its own
        return
    names = {entry.name: entry.number for entry in snapshot.status.race.entries}
    fresh = {
        names[record.name]: record.job_id
        for record in snapshot.records
        if record.name in names and record.job_id not in ids.get(names[record.name], ())
    }
    note_ids(snapshot.status.race, fresh, transport)


def _needs_next_segment(snapshot: RaceSnapshot) -> bool:
    """Return whether no job could or would send the chain's next segment."""
    status = snapshot.status
    if status.state.is_over or snapshot.files.stopped or status.race.chain is None:
        return False
    return (
        NEXT in snapshot.files.again
        or status.why in (AGAIN, PREEMPTED, TIMED_OUT, UNSENT)
        or _waits_for_another_layout(snapshot)
    )


def _waits_for_another_layout(snapshot: RaceSnapshot) -> bool:
    """Return whether the job that was to go on as before left a node, and could not call Slurm.

    Those with another layout, which may wait for long, are still there.
    """
    request, claim = snapshot.status.race.request, snapshot.status.claim
    if request is None or not request.switch or claim is None:
        return False
    is_running = any(r.job_id == claim.job_id and is_live(r.state) for r in snapshot.records)
    return snapshot.files.next_submission in snapshot.files.again and not is_running


def _send_next(
    race: Race, claim: Claim, files: StateFiles, transport: Transport
) -> tuple[SubmitResult, ...]:
    """Submit the winner's script, or that which it goes back to, as the job of the next segment.

    Where the disk cannot be read or written now, a later rv command does it.
    """
    if not _is_sender(race, claim, transport):
        return ()
    number = files.next_submission
    text = transport.read(f"{race.directory}/jobs/{number}.sh")
    if not text:
        return ()
    try:
        transport.write(f"{race.directory}/jobs/{NEXT}.sh", _as_next(text, claim.job_id))
    except RvError:
        return ()
    again = _left_by_its_jobs(race, files, transport)
    excluded, _ = _read_again(again.get(number, b""))
    options = [f"--job-name={race.next_name}", *excluded]
    results = submit_once(race, [NEXT], transport, options=options)
    for result in results:
        if result.job_id:
            path = f"segments/{claim.segment}.next"
            ids = (result.job_id, *files.next_job_ids[1:])
            write_state_file(race, path, f"{' '.join(map(str, ids))}\n", transport)
    if all(result.outcome in _TAKEN for result in results):
        for number, contents in again.items():
            _remove_again(race, number, contents, transport)
    return results


def _left_by_its_jobs(race: Race, files: StateFiles, transport: Transport) -> dict[int, bytes]:
    """Read what jobs of the chain left that could not call Slurm; by the number of their script."""
    left = [number for number in files.again if number in (NEXT, files.next_submission)]
    return {number: transport.read(_again(race, number)) or b"" for number in left}


# By a hard link, made once. By the disk's clock alone: those of two login nodes may disagree.
_BECOME_SENDER: Final = r"""
cd "$RV_DIR" && [ -O . ] || exit
draft=segments/.sender.$RV_MARK number=1
: >"$draft" || exit
trap 'rm -f "$draft"' EXIT
while link=segments/$RV_SEGMENT.sender.$number; ! ln -T "$draft" "$link" 2>/dev/null; do
  # NFS may report that one's own link exists already.
  [ ! "$draft" -ef "$link" ] || break
  made=$(stat -c %Y "$link") || exit
  [ $(($(stat -c %Y "$draft") - made)) -gt "$RV_LIMIT" ] || exit 1
  number=$((number + 1))
done
"""


def _is_sender(race: Race, claim: Claim, transport: Transport) -> bool:
    """Return whether this client is the one to send the segment after that of the claim.

    One that has had time for it and came to nothing, such as one that was killed, is followed by
    another.
    """
    limit_s = 2 * confirmation_limit_s(race) + 30
    settings = f"RV_DIR={shell(race.directory)} RV_SEGMENT={claim.segment} RV_LIMIT={limit_s:.0f}"
    script = f"{settings} RV_MARK={new_sentinel()}\n{_BECOME_SENDER}"
    return transport.run(script, timeout_s=30).returncode == 0


def _close(snapshot: RaceSnapshot, transport: Transport) -> None:
    """Cancel what a decided race still has in the queue, and save its verdict."""
    status = snapshot.status
    if status.state is RaceState.LOST and not snapshot.files.lost:
        write_state_file(status.race, "lost", f"{status.why}\n", transport)
    cancel_leftovers(snapshot, transport)
    save_verdict(snapshot, transport)
    if status.state is RaceState.CANCELLED and not (status.claim or snapshot.files.stopped):
        # It stays so: no late client may start it.
        write_state_file(status.race, "stop", f"{CLOSED}{status.why}\n", transport)


def _as_next(script: bytes, before: int) -> bytes:
    """Return a job script that delays nothing and comes after the job `before`, as one of its own.

    Directives stand at its top.
    """
    directives = _DIRECTIVES.match(script)
    top = directives[0] if directives else b""
    return _DELAY.sub(b"", top) + b"set -- %d\n" % before + script[len(top) :]


def _lift_holds(status: RaceStatus, transport: Transport) -> None:
    """Release jobs that left a rejected node: Slurm holds them for two minutes.

    The job's own helper that does this may have been killed.
    """
    if not status.warnings:
        return  # no node was rejected: what is held back is rv's own later wave
    held = [job.job_id for job in status.jobs if job.reason == "BeginTime" and job.job_id]
    if held:
        # Not at once: a node that a job just left refuses the same job within the second.
        lines = [f"scontrol update jobid={job_id} starttime=now+2" for job_id in held]
        transport.run("\n".join(lines), timeout_s=30)


def _submit_again(snapshot: RaceSnapshot, transport: Transport) -> tuple[SubmitResult, ...]:
    """Submit the jobs that left a node without scontrol; each file goes when Slurm has the job.

    Two clients may both do it: a duplicate is harmless, a lost job is not.
    """
    race = snapshot.status.race
    every: list[SubmitResult] = []
    for number in snapshot.files.again:
        contents = transport.read(_again(race, number)) or b""
        options, writer = _read_again(contents)
        if race.sweep:  # one worker left, not all of its array
            options.append("--array=1")
        is_there = _is_waiting(snapshot, number, but=writer)
        results = () if is_there else submit_once(race, [number], transport, options=options)
        # Parts stand in for a merged one that was refused.
        if is_there or any(result.outcome in _TAKEN for result in results):
            _remove_again(race, number, contents, transport)
        every.extend(results)
    return tuple(every)


def _again(race: Race, number: int) -> str:
    return f"{race.directory}/again/{number}"


def _remove_again(race: Race, number: int, contents: bytes, transport: Transport) -> None:
    """Remove what was done, unless the job that was sent for it has left a node meanwhile, too."""
    path, text = shell(_again(race, number)), shell(contents.decode("utf-8", "replace").strip())
    transport.run(f'[ "$(cat {path})" != {text} ] || rm -f {path}', timeout_s=30)


def _read_again(contents: bytes) -> tuple[list[str], str]:
    """Return the options that keep a job off the nodes it left, and the id of that job."""
    nodes, writer = (*contents.decode("utf-8", errors="replace").splitlines(), "", "")[:2]
    is_plain = all(c.isalnum() or c in "-_.,[]" for c in nodes)
    return ([f"--exclude={nodes}"] if nodes and is_plain else []), writer


def _is_waiting(snapshot: RaceSnapshot, number: int, but: str) -> bool:
    """Return whether a job of this submission waits, other than the job `but` that left a node."""
    name = snapshot.status.race.name_of(number)
    return any(
        record.name == name and record.state.is_pending and str(record.job_id) != but
        for record in snapshot.records
    )


def _resend(snapshot: RaceSnapshot, transport: Transport) -> tuple[SubmitResult, ...]:
    """Send what Slurm does not have: long unconfirmed submissions, and those it has forgotten."""
    race = snapshot.status.race
    missing = to_resend(race, snapshot.files, snapshot.records, snapshot.now_s)
    numbers = sorted({*missing, *snapshot.forgotten})
    for number in numbers:
        write_state_file(race, f"absent/{number}", "", transport)  # its time begins anew
    return submit_once(race, numbers, transport)


def _cancel_waiting(snapshot: RaceSnapshot, transport: Transport) -> None:
    """Cancel the waiting jobs of a race whose directory was deleted: they could only fail.

    Its winner goes on: what it uses may lie elsewhere.
    """
    claim = snapshot.files.claim
    waiting = [r.job_id for r in snapshot.records if r.state.is_pending]
    ids = [job_id for job_id in waiting if not claim or job_id != claim.job_id]
    if ids and _is_deleted(snapshot.status.race.directory, transport):
        cancel_waiting_ids(ids, transport)


def cancel_jobs_of_deleted_races(
    root: str, records: Sequence[JobRecord], transport: Transport
) -> None:
    """Cancel the waiting jobs of races below `root` whose directories were deleted.

    Races of another root, of which nothing is known here, are let alone.
    """
    pending = {record.name for record in records if record.state.is_pending}
    existing = set(transport.directories(root)) if pending else set()
    names = {name for name in pending if _race_id(name) not in existing}
    for job_id, name, directory in _work_folders(names, transport):
        is_ours = name in names and directory == f"{root}/{_race_id(name)}"
        if is_ours and _is_deleted(directory, transport):
            cancel_waiting_ids([job_id], transport)


def _work_folders(names: set[str], transport: Transport) -> list[tuple[int, str, str]]:
    """Return id, name and working directory of waiting jobs of these names."""
    if not names:
        return []
    answer = transport.run(squeue_work_folders_script(names), timeout_s=30)
    return parse_work_folders(answer.stdout)


def _race_id(job_name: str) -> str:
    return job_name.removeprefix("rv-").partition("-")[0]


def _is_deleted(directory: str, transport: Transport) -> bool:
    """Return whether a directory is deleted for certain, and not on another disk than this one.

    What proves the disk is the marker that staging left beside it: a folder of the same path may be
    another login node's, or lie under a disk that is not mounted now.
    """
    path = PurePosixPath(directory)
    name = shell(path.name)
    look = f"cd {shell(path.parent)} && [ -O . ] && [ -e {STAGED}/{name} ] && [ ! -e {name} ]"
    return transport.run(look, timeout_s=30).returncode == 0
