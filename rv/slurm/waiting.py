"""Everybody's waiting jobs with their priorities: one `squeue` and its parser."""

import re
from typing import Final

from rv.models.explanation import WaitingJob
from rv.slurm import words
from rv.slurm.text import printable

_ID: Final = re.compile(r"(\d{1,10})(?:_.*)?", re.ASCII)
_COLUMNS: Final = "PriorityLong:|,Partition:|,Reason:|"


def waiting_script(sentinel: str) -> str:
    """Ask for all that waits; the last line carries the exit code."""
    return (
        "timeout --foreground -k 1 20 squeue -a -h -t PENDING"
        f" -O 'JobArrayID:{sentinel}|,{_COLUMNS}' </dev/null\nprintf '\\n{sentinel} end %s\\n' $?\n"
    )


def parse_waiting(text: str, sentinel: str) -> tuple[WaitingJob, ...] | None:
    """Read the rows; None where squeue failed."""
    if f"\n{sentinel} end 0\n" not in f"\n{text}\n":
        return None
    rows = (_row(line, sentinel) for line in text.split("\n"))
    return tuple(row for row in rows if row is not None)


def _row(line: str, sentinel: str) -> WaitingJob | None:
    job_id, _, rest = line.partition(f"{sentinel}|")
    columns = rest.split("|", 2)
    match = _ID.fullmatch(job_id)
    if match is None or len(columns) != 3:
        return None
    return WaitingJob(
        job_id=int(match[1]),
        priority=words.number(columns[0]) or 0,
        partitions=words.words(columns[1]),
        reason=printable(columns[2].removesuffix("|")),
    )
