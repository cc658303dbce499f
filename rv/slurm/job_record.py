"""One job's record, made of what squeue, scontrol or sacct printed."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from rv.models.job import JobRecord, JobState, job_state
from rv.models.race import NAME_PREFIX, NEXT, job_name, next_job_name
from rv.slurm import values
from rv.slurm.printable import printable

_JOB_SCRIPT: Final = re.compile(r".*/([a-z0-9]+)/jobs/(\d{1,6})\.sh(?: .*)?", re.ASCII | re.DOTALL)
_CANCELLED_BY: Final = re.compile(r"CANCELLED by (\d{1,10})", re.ASCII)


def own_job_name(name: str, command: str) -> str:
    """Return the name that rv gave a job; another program's keeps its own.

    A user may rename a job. Its `Command`, the path of the script that rv submitted, cannot change.
    """
    script = _JOB_SCRIPT.fullmatch(command)
    if script is None or name.startswith(NAME_PREFIX):
        return name
    race_id, number = script[1], int(script[2])
    return next_job_name(race_id) if number == NEXT else job_name(race_id, number)


def job_record(
    *,
    job_id: int,
    source: str,
    name: str,
    value: Mapping[str, str],
    times: Sequence[str],
    restarts: str = "",
    directory: str = "",
    array_id: int = 0,
) -> JobRecord:
    """Return the record; `value` is by column name, `times` are those of submit, start and end."""
    state = job_state(value.get("State", ""))
    submitted, start, end = map(values.time, times)
    exit_code, signal = _exit_code_and_signal(value.get("ExitCode", ""), state)
    return JobRecord(
        job_id=job_id,
        name=printable(name),
        state=state,
        source=source,
        reason=_reason(value, state),
        partition=value.get("Partition", ""),
        nodes=values.non_null(value.get("NodeList", "").removesuffix("None assigned")),
        submitted=submitted,
        started=None if state.is_pending else start,
        planned_start=start if state.is_pending else None,
        ended=end if state.is_terminal else None,
        exit_code=exit_code,
        signal=signal,
        restarts=values.number(restarts) or 0,
        directory=directory,
        array_id=array_id,
    )


def _reason(value: Mapping[str, str], state: JobState) -> str:
    """Return why a job waits or ended, or who cancelled it; an unknown state as Slurm writes it."""
    written_state = value.get("State", "")
    if state is JobState.UNKNOWN:
        return printable(written_state)
    cancelled = _CANCELLED_BY.fullmatch(written_state)
    if cancelled:
        return f"by uid {cancelled[1]}"
    return printable(values.non_null(value.get("Reason", "")))


def _exit_code_and_signal(text: str, state: JobState) -> tuple[int | None, int | None]:
    """Split `code:signal`; Slurm prints 0:0 for a job that has not ended, which means nothing."""
    if not state.is_terminal:
        return None, None
    code, _, signal = text.partition(":")
    return values.number(code), values.number(signal)
