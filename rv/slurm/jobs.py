"""What the watcher asks about the user's own jobs: pairs of bash text and parser.

Each script ends with a line that carries the command's exit code, so "no jobs" and "no answer"
differ: a parser returns None for an answer that is missing, cut off or an error.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from rv.models.job import JobRecord, JobState, job_state
from rv.slurm import words
from rv.slurm.fields import fields
from rv.slurm.text import printable

_OURS: Final = "rv-"
_QUEUE: Final = (
    "State", "RestartCnt", "SubmitTime", "StartTime", "EndTime", "Partition", "NodeList", "Reason",
)  # fmt: skip
_SACCT: Final = (
    "JobIDRaw", "State", "ExitCode", "Submit", "Start", "End", "Partition", "NodeList", "JobName",
)  # fmt: skip
_JOB: Final = re.compile(r"JobId=(\d{1,10}) (?:.*? )?JobName=(.*?) (UserId=.*)", re.ASCII)
_CANCELLED_BY: Final = re.compile(r"CANCELLED by (\d{1,10})", re.ASCII)
_ID: Final = re.compile(r"(\d{1,10})", re.ASCII)
# Only the first record of an answer is marked, so a newline in a job's name adds no record.
_SHOW_ONE: Final = r"""
show() {
  out=$(timeout --foreground -k 1 12 scontrol show job -d -o "$1" 2>&1 </dev/null)
  case $?/$out in
    0/JobId=*) printf '@S@ job %s\n' "$out" ;;
    0/*) printf '@S@ job JobId=%s\n' "${out#*$'\n'JobId=}" ;;
    */*'Invalid job id'*) ;;
    *) printf '%s\n' "$out" >&2; return 1 ;;
  esac
}
"""


def queue_script(sentinel: str) -> str:
    """Ask for all jobs of the user that Slurm still knows, ended ones too."""
    return _squeue(sentinel, "")


def find_by_name_script(names: Iterable[str], sentinel: str) -> str:
    """Ask for the user's jobs with these names; read the answer with `parse_queue`."""
    return _squeue(sentinel, f" --name={shlex.quote(','.join(names))}")


def parse_queue(text: str, sentinel: str) -> tuple[JobRecord, ...] | None:
    """Read rv's own jobs; None where squeue failed."""
    if not _succeeded(text, sentinel):
        return None
    rows = (_queue_row(line, sentinel) for line in text.split("\n"))
    return tuple(row for row in rows if row is not None and row.name.startswith(_OURS))


def show_jobs_script(job_ids: Sequence[int], sentinel: str) -> str:
    """Ask the controller for single jobs, by id, while it remembers them."""
    calls = "".join(f" && show {job_id}" for job_id in job_ids)
    return f"{_SHOW_ONE.replace('@S@', sentinel)}:{calls}\n{_end(sentinel)}"


def parse_show_jobs(text: str, sentinel: str) -> tuple[JobRecord, ...] | None:
    """Read the jobs found, unknown ids left out; None where the controller failed.

    Ids are recycled: the caller compares the name too.
    """
    if not _succeeded(text, sentinel):
        return None
    start = f"{sentinel} job "
    lines = (line.removeprefix(start) for line in text.split("\n") if line.startswith(start))
    rows = (_shown_job(line) for line in lines)
    return tuple(row for row in rows if row is not None)


def sacct_script(names: Iterable[str], since: datetime, sentinel: str) -> str:
    """Ask the accounting database for every record of jobs with these names, requeued ones too.

    `since` is on Slurm's clock.
    """
    return (
        'timeout --foreground -k 1 20 sacct -X -D -n -P -u "$(id -un)"'
        f" -S {since:%Y-%m-%dT%H:%M:%S} --name={shlex.quote(','.join(names))}"
        f" --delimiter='|{sentinel}|' -o {','.join(_SACCT)} </dev/null\n{_end(sentinel)}"
    )


def parse_sacct(text: str, sentinel: str) -> tuple[JobRecord, ...] | None:
    """Read the records, newest last; None where sacct failed."""
    if not _succeeded(text, sentinel):
        return None
    rows = (_sacct_row(line.split(f"|{sentinel}|")) for line in text.split("\n"))
    records = (row for row in rows if row is not None)
    return tuple(sorted(records, key=lambda record: record.submitted or datetime.min))  # noqa: DTZ901


def _squeue(sentinel: str, narrowed: str) -> str:
    # The sentinel also parts Slurm's reason from the name, so neither can move the other.
    *plain, reason = _QUEUE
    columns = ",".join(f"{field}:|" for field in plain)
    form = f"JobID:{sentinel}|,{columns},{reason}:|{sentinel}|,Name:|"
    return (
        f"timeout --foreground -k 1 20 squeue --me -a -h -t all{narrowed} -O '{form}' </dev/null\n"
        f"{_end(sentinel)}"
    )


def _end(sentinel: str) -> str:
    return f"printf '\\n{sentinel} end %s\\n' $?\n"


def _succeeded(text: str, sentinel: str) -> bool:
    return f"\n{sentinel} end 0\n" in f"\n{text}\n"


def _queue_row(line: str, sentinel: str) -> JobRecord | None:
    job_id, _, rest = line.partition(f"{sentinel}|")
    front, found, name = rest.partition(f"|{sentinel}|")
    columns = front.split("|", len(_QUEUE) - 1)
    if not found or len(columns) != len(_QUEUE) or not _ID.fullmatch(job_id):
        return None
    value = dict(zip(_QUEUE, columns, strict=True))
    return _record(
        source="squeue",
        job_id=int(job_id),
        name=name.removesuffix("|"),
        value=value,
        times=(value["SubmitTime"], value["StartTime"], value["EndTime"]),
        restarts=value["RestartCnt"],
    )


def _shown_job(line: str) -> JobRecord | None:
    match = _JOB.match(line)
    if match is None:
        return None
    value = fields(match[3])
    value["State"] = value.get("JobState", "")
    return _record(
        source="scontrol",
        job_id=int(match[1]),
        name=match[2],
        value=value,
        times=tuple(value.get(f"{which}Time", "") for which in ("Submit", "Start", "End")),
        restarts=value.get("Restarts", ""),
    )


def _sacct_row(columns: Sequence[str]) -> JobRecord | None:
    value = dict(zip(_SACCT, columns, strict=False))
    match = _ID.fullmatch(value.get("JobIDRaw", ""))
    if match is None or len(columns) != len(_SACCT):
        return None
    if job_state(value["State"]).is_terminal and words.time(value["End"]) is None:
        # A start that is recorded late bears a word for an end (FAILED 0:0) before it has one.
        value["State"] = JobState.RUNNING
    return _record(
        source="sacct",
        job_id=int(match[1]),
        name=value["JobName"],
        value=value,
        times=(value["Submit"], value["Start"], value["End"]),
    )


def _record(
    *,
    source: str,
    job_id: int,
    name: str,
    value: dict[str, str],
    times: Sequence[str],
    restarts: str = "",
) -> JobRecord:
    state = job_state(value.get("State", ""))
    submitted, start, end = map(words.time, times)
    exit_code, signal = _exit(value.get("ExitCode", ""), state)
    return JobRecord(
        job_id=job_id,
        name=printable(name),
        state=state,
        source=source,
        reason=_reason(value, state),
        partition=value.get("Partition", ""),
        nodes=_nodes(value.get("NodeList", "")),
        submitted=submitted,
        started=None if state.is_pending else start,
        planned_start=start if state.is_pending else None,
        ended=end if state.is_terminal else None,
        exit_code=exit_code,
        signal=signal,
        restarts=words.number(restarts) or 0,
    )


def _reason(value: dict[str, str], state: JobState) -> str:
    """Why a job waits or ended; who cancelled it; of a state without a name here, Slurm's word."""
    said = value.get("State", "")
    if state is JobState.UNKNOWN:
        return printable(said)
    author = _CANCELLED_BY.fullmatch(said)
    return f"by uid {author[1]}" if author else printable(words.word(value.get("Reason", "")))


def _nodes(text: str) -> str:
    return words.word(text.removesuffix("None assigned"))


def _exit(text: str, state: JobState) -> tuple[int | None, int | None]:
    """Split `code:signal`; Slurm prints 0:0 for a job that has not ended, which means nothing."""
    code, _, signal = text.partition(":")
    return (words.number(code), words.number(signal)) if state.is_terminal else (None, None)
