"""What any rv command does for a race whose own client may be gone: push it on, or clean up."""

import secrets
from collections.abc import Sequence
from typing import Final

from rv.models.race import Marks, Race, RaceState, RaceStatus
from rv.race.cancel import reap
from rv.race.observe import Observation
from rv.race.submit import Submitted, submit
from rv.race.verdict import save_verdict
from rv.render.quote import shell
from rv.transport import Transport

_GAVE_OUT: Final = frozenset({RaceState.DECLINED, RaceState.FAILED, RaceState.ENDED})


def untried(race: Race, marks: Marks) -> tuple[int, ...]:
    """Number the submissions of later waves that nobody has sent yet."""
    tried = {number for number, _ in (*marks.job_ids, *marks.refused)}
    return tuple(entry.number for entry in race.entries if entry.number not in tried)


def advance(seen: Observation, transport: Transport) -> tuple[Submitted, ...]:
    """Do what the race needs now and its jobs could not do; return what was submitted.

    Every job sent so far has ended without a start: send the later waves. Settled: cancel what is
    left in the queue and keep the verdict. Unclaimed: lift the hold of requeued jobs, and submit
    again what a node without scontrol gave up.
    """
    status = seen.status
    if not seen.reachable:
        return ()
    left = untried(status.race, seen.marks)
    if left and not status.claim and status.state in _GAVE_OUT and not seen.marks.stopped:
        return submit(status.race, left, transport)
    if status.claim or status.state.is_over:
        if status.state is RaceState.LOST and not seen.marks.lost:
            transport.write(f"{status.race.directory}/lost", f"{status.why}\n".encode())
        reap(status, transport)
        save_verdict(status, transport)
        _close(status, transport)
        return ()
    _lift_holds(status, transport)
    return _submit_again(status.race, seen.marks.again, transport)


def _close(status: RaceStatus, transport: Transport) -> None:
    """A race that was never submitted stays so: no late submitter may wake it up."""
    if status.state is RaceState.CANCELLED and not status.claim:
        transport.write(f"{status.race.directory}/stop", b"never submitted\n")


def _lift_holds(status: RaceStatus, transport: Transport) -> None:
    """A declined job is held for two minutes by Slurm; its own helper may have been killed."""
    held = [job.job_id for job in status.jobs if job.reason == "BeginTime" and job.job_id]
    requeued = [job_id for job_id in held if _has_declined(status)]
    if requeued:
        # Not at once: a node that was just left refuses the same job within the second.
        lines = [f"scontrol update jobid={job_id} starttime=now+2" for job_id in requeued]
        transport.run("\n".join(lines), timeout=30)


def _has_declined(status: RaceStatus) -> bool:
    return bool(status.warnings)


def _submit_again(
    race: Race, numbers: Sequence[int], transport: Transport
) -> tuple[Submitted, ...]:
    done: list[Submitted] = []
    for number in numbers:
        excluded = _take(race, number, transport)
        if excluded is not None:
            options = [f"--exclude={excluded}"] if excluded else []
            done.extend(submit(race, [number], transport, options=options))
    return tuple(done)


def _take(race: Race, number: int, transport: Transport) -> str | None:
    """Take the mark away atomically: of two clients, one submits again."""
    mark = f"{race.directory}/again/{number}"
    taken = f"{race.directory}/jobs/{number}.again.{secrets.token_hex(4)}"
    if transport.run(f"mv -T {shell(mark)} {shell(taken)}", timeout=30).returncode != 0:
        return None
    text = (transport.read(taken) or b"").decode("utf-8", errors="replace").strip()
    return text if all(c.isalnum() or c in "-_.,[]" for c in text) else ""
