"""What sacct prints: the accounting database's records of rv's jobs."""

import re
import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from rv.models.job import JobRecord, JobState, job_state
from rv.slurm import values
from rv.slurm.job_record import job_record
from rv.slurm.script import exit_code_line, has_succeeded

_COLUMNS: Final = (
    "JobIDRaw", "State", "ExitCode", "Submit", "Start", "End", "Partition", "NodeList", "WorkDir",
    "JobName",
)  # fmt: skip
_STATES: Final = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,RV,S,TO"
"""Every state: asked for none, sacct leaves out jobs that ended before they were eligible."""

_JOB_ID: Final = re.compile(r"(\d{1,10})", re.ASCII)


def sacct_script(
    names: Iterable[str], since: datetime, sentinel: str, ids: Iterable[int] = ()
) -> str:
    """Return the script that asks for every record of jobs with these names, requeued ones too.

    It also asks the controller whether there is news that it has not delivered. `since` is on
    Slurm's clock. Jobs whose `ids` are known are asked for by id as well, in whatever
    span of time they were.
    """
    id_list = ",".join(map(str, ids))
    by_name = f"--name={shlex.quote(','.join(names))}"
    by_id = f" && rv_sacct -j {id_list}" if id_list else ""
    return (
        'rv_sacct() { timeout --foreground -k 1 20 sacct -X -D -n -P -u "$(id -un)"'
        f" --delimiter='|{sentinel}|'"
        f' -o {",".join(_COLUMNS)} "$@" </dev/null; }}\n'
        "timeout --foreground -k 1 5 sdiag </dev/null 2>/dev/null"
        f" | grep -q 'DBD Agent queue size: *[1-9]' && echo '{sentinel} behind'\n"
        f"rv_sacct {by_name} -s {_STATES} -S {since:%Y-%m-%dT%H:%M:%S} -E now+1day{by_id}\n"
        f"{exit_code_line(sentinel)}"
    )


def is_behind(text: str, sentinel: str) -> bool:
    """Return whether the controller had news for accounting: its silence proves nothing then."""
    return f"\n{sentinel} behind\n" in f"\n{text}"


def parse_sacct(text: str, sentinel: str) -> tuple[JobRecord, ...] | None:
    """Read the records, newest last; None where sacct failed or its output was cut off."""
    if not has_succeeded(text, sentinel):
        return None
    rows = (_row(line.split(f"|{sentinel}|")) for line in text.split("\n"))
    records = (row for row in rows if row is not None)
    return tuple(sorted(records, key=lambda record: record.submitted or datetime.min))  # noqa: DTZ901


def _row(columns: Sequence[str]) -> JobRecord | None:
    value = dict(zip(_COLUMNS, columns, strict=False))
    match = _JOB_ID.fullmatch(value.get("JobIDRaw", ""))
    if match is None or len(columns) != len(_COLUMNS):
        return None
    if job_state(value["State"]).is_terminal and values.time(value["End"]) is None:
        # A start that is recorded late shows a final state (FAILED 0:0) before it has an end.
        value["State"] = JobState.RUNNING
    return job_record(
        source="sacct",
        job_id=int(match[1]),
        name=value["JobName"],
        value=value,
        times=(value["Submit"], value["Start"], value["End"]),
        directory=value["WorkDir"],
    )
