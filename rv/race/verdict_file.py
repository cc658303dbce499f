"""The file `verdict.json`: the state of a race that cannot change any more."""

import json
from typing import TYPE_CHECKING, Final

from rv.dataclass import dataclass
from rv.models.gpu_use import GpuUse
from rv.models.job import JobState, is_live
from rv.models.plain import build, plain
from rv.models.race import Claim, JobStatus, Race, RaceState, RaceStatus, StateFiles
from rv.models.sweep import TaskCounts, count
from rv.race.directory import is_moment, load_state_files, write_state_file
from rv.race.file_names import VERDICT
from rv.race.sources import own_end
from rv.transport import Transport

if TYPE_CHECKING:
    from rv.race.observe import RaceSnapshot

_LATEST_S: Final = 86400.0
_JobFields = tuple[int, int, JobState, str, str]


def save_verdict(snapshot: "RaceSnapshot", transport: Transport) -> None:
    """Write down a state that cannot change any more."""
    status = snapshot.status
    if not _is_final(snapshot):
        return
    data = {
        "state": status.state,
        "exit_code": status.exit_code,
        "started_at": status.started_at,
        "ended_at": status.ended_at,
        "why": status.why,
        "warnings": status.warnings,
        "saved_at": status.saved_at,
        "gpu_use": plain(status.gpu_use),
        "tasks": plain(status.tasks),
        "jobs": [[job.number, job.job_id, job.state, job.reason, job.nodes] for job in status.jobs],
    }
    write_state_file(status.race, VERDICT, json.dumps(data), transport)


def _is_final(snapshot: "RaceSnapshot") -> bool:
    """Return whether a race is over, has no job left, and no source may yet say more."""
    from rv.race.cancel import live_records  # a list of settled races loads nothing more
    from rv.race.status import awaits_code

    status = snapshot.status
    if not status.state.is_over or live_records(snapshot) or awaits_code(status, snapshot.records):
        return False
    if status.state is not RaceState.ENDED:
        return True
    # Of a job with an unknown end accounting may hear later; a day is enough.
    accounting_knows = snapshot.accounting_answered and not any(
        is_live(record.state) for record in snapshot.records
    )
    files, now_s = snapshot.files, snapshot.now_s
    absent = [at for _, at in files.absent_since]
    if files.winner_absent_since is not None:
        absent.append(files.winner_absent_since)
    return accounting_knows or now_s - max(absent, default=now_s) > _LATEST_S


def is_settled(directory: str, transport: Transport) -> bool:
    """Return whether a verdict is kept there, whatever it says."""
    return transport.read(f"{directory}/{VERDICT}", limit=1) is not None


def load_verdict(race: Race, transport: Transport) -> RaceStatus | None:
    """Read a settled state back; None where there is none, or where there is more evidence since.

    A node that was only out of touch may still bring the exit file, and a network disk may show a
    claim late.
    """
    text = transport.read(f"{race.directory}/{VERDICT}")
    if text is None:
        return None
    verdict = _read(text)
    if verdict is None:
        return None
    files = load_state_files(race, transport)
    if race.sweep and count(race.sweep, files.tasks) != verdict.tasks:
        return None
    if files.claim and (verdict.started_at is None or _ended_since(verdict, files.claim, files)):
        return None
    return RaceStatus(
        race=race,
        state=verdict.state,
        claim=files.claim,
        exit_code=verdict.exit_code,
        started_at=verdict.started_at,
        ended_at=verdict.ended_at,
        why=verdict.why,
        warnings=verdict.warnings,
        segments=files.segments,
        saved_at=verdict.saved_at,
        gpu_use=verdict.gpu_use,
        tasks=verdict.tasks,
        jobs=tuple(_job(race, files, fields) for fields in verdict.jobs),
    )


def _ended_since(verdict: "_Verdict", claim: Claim, files: StateFiles) -> bool:
    """Return whether the winner's exit file came after the verdict."""
    return verdict.ended_at is None and own_end(claim, files.ended) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Verdict:
    """What the file holds: `RaceStatus` without what the race's own record and files say."""

    state: RaceState
    exit_code: int | None
    started_at: float | None
    ended_at: float | None
    why: str
    warnings: tuple[str, ...]
    saved_at: float | None
    jobs: tuple[_JobFields, ...]
    gpu_use: GpuUse | None = None
    tasks: TaskCounts | None = None


def _read(text: bytes) -> _Verdict | None:
    try:
        verdict = build(_Verdict, json.loads(text))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    times = (verdict.started_at, verdict.ended_at, verdict.saved_at)
    return verdict if all(map(is_moment, times)) else None


def _job(race: Race, files: StateFiles, fields: _JobFields) -> JobStatus:
    number, job_id, state, reason, nodes = fields
    return JobStatus(
        number=number,
        name=race.name_of(number),
        strategy=race.strategy_of(number, files.claim),
        job_id=job_id,
        state=state,
        reason=reason,
        nodes=nodes,
    )
