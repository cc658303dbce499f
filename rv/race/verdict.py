"""The settled state of a race, written into its directory so that nobody has to ask again."""

import json
from typing import Any, Final

from rv.models.job import JobState
from rv.models.race import JobStatus, Marks, Race, RaceState, RaceStatus
from rv.race.cancel import live_records
from rv.race.marks import leave_mark
from rv.race.observe import Observation
from rv.transport import Transport

_FILE: Final = "verdict.json"


def save_verdict(seen: Observation, transport: Transport) -> None:
    """Keep a state that cannot change any more: it is over and no job of it is left."""
    status = seen.status
    if not status.state.is_over or live_records(seen):
        return
    data = {
        "state": status.state,
        "exit_code": status.exit_code,
        "started_at": status.started_at,
        "ended_at": status.ended_at,
        "why": status.why,
        "warnings": status.warnings,
        "saved_at": status.saved_at,
        "jobs": [[job.number, job.job_id, job.state, job.reason, job.nodes] for job in status.jobs],
    }
    leave_mark(status.race, _FILE, json.dumps(data), transport)


def load_verdict(race: Race, marks: Marks, transport: Transport) -> RaceStatus | None:
    """Read a settled state back; None where there is none, or where the winner spoke up since.

    A node that was only out of touch may still bring the exit file, which beats LOST and ENDED.
    """
    text = transport.read(f"{race.directory}/{_FILE}")
    if text is None:
        return None
    try:
        data: dict[str, Any] = json.loads(text)
        state = RaceState(data["state"])
        if state in (RaceState.LOST, RaceState.ENDED) and marks.ended is not None:
            return None
        return RaceStatus(
            race=race,
            state=state,
            claim=marks.claim,
            exit_code=data["exit_code"],
            started_at=data["started_at"],
            ended_at=data["ended_at"],
            why=data["why"],
            warnings=tuple(data["warnings"]),
            segments=marks.segments,
            saved_at=data["saved_at"],
            jobs=tuple(_job(race, marks, *fields) for fields in data["jobs"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _job(
    race: Race, marks: Marks, number: int, job_id: int, state: str, reason: str, nodes: str
) -> JobStatus:
    return JobStatus(
        number=number,
        name=race.name_of(number),
        strategy=race.strategy_of(number, marks.claim),
        job_id=job_id,
        state=JobState(state),
        reason=reason,
        nodes=nodes,
    )
